"""Arguments of a wrong type, refused before anything is sent: by name, with what was given."""

import reprlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from latermq_text.durations import DURATION_MS_MAX

# Looked at for every message that is sent: tuples, not unions, which are slower to look at.
OPTIONAL_TEXT: Final = (str, type(None))
MAPPING: Final = (dict, Mapping)  # the usual one first: an abstract class is slow to look at


COUNT_MAX: Final = 2**31 - 1
DURATION_MAX: Final = timedelta(milliseconds=DURATION_MS_MAX)


def wrong(name: str, expected: str, value: object) -> TypeError:
    """Make the error of an argument that should be `expected`."""
    return TypeError(f"{name} must be {expected}, not {_shown(value)}")


def any_text(name: str, value: object) -> None:
    """Raises TypeError: not a str."""
    if not isinstance(value, str):
        raise wrong(name, "a str", value)


def text(name: str, value: object) -> None:
    """Raises TypeError, ValueError: not a str, or one that has no bytes."""
    if not isinstance(value, str):
        raise wrong(name, "a str", value)
    if not value.isascii():
        _encodable(name, value)


def name_of(name: str, value: object) -> None:
    """Raises TypeError, ValueError: not a str, one that has no bytes, or empty."""
    text(name, value)
    if not value:
        raise ValueError(f"{name} must not be empty")


def optional_text(name: str, value: object) -> None:
    """Raises TypeError, ValueError: neither a str nor None, or one that has no bytes."""
    if not isinstance(value, OPTIONAL_TEXT):
        raise wrong(name, "a str or None", value)
    if isinstance(value, str) and not value.isascii():
        _encodable(name, value)


def not_blank(name: str, value: str | None, hint: str) -> None:
    """Raises TypeError, ValueError: neither a str nor None, or blank; it says `hint`."""
    optional_text(name, value)
    if value is not None and not value.strip():
        raise ValueError(f"{name} must not be empty: {hint}")


def texts(name: str, value: object) -> None:
    """Raises TypeError, ValueError: not a sequence of str, or one of them has no bytes."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise wrong(name, "a sequence of str", value)
    for item in value:
        if not isinstance(item, str):
            raise wrong(f"each of {name}", "a str", item)
        if not item.isascii():
            _encodable(f"each of {name}", item)


def text_mapping(name: str, value: object) -> None:
    """Raises TypeError, ValueError: not a mapping of str to str, or one of them has no bytes."""
    if not isinstance(value, MAPPING):
        raise wrong(name, "a mapping of str to str", value)
    for key, item in value.items():
        if not isinstance(key, str):
            raise wrong(f"each key of {name}", "a str", key)
        if not isinstance(item, str):
            raise wrong(f"{name}[{key!r}]", "a str", item)
        if not key.isascii():
            _encodable(f"each key of {name}", key)
        if not item.isascii():
            _encodable(f"{name}[{key!r}]", item)


def truth(name: str, value: object) -> None:
    """Raises TypeError: not a bool."""
    if not isinstance(value, bool):
        raise wrong(name, "a bool", value)


def whole(name: str, value: object) -> None:
    """Raises TypeError: not an int."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong(name, "an int", value)


def at_least_one(name: str, value: object) -> None:
    """Raises TypeError, ValueError: not an int, or below 1."""
    whole(name, value)
    if isinstance(value, int) and value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")


def count(name: str, value: object) -> None:
    """Raises TypeError, ValueError: not an int, below 1, or more than a call can say."""
    at_least_one(name, value)
    if isinstance(value, int):
        at_most(name, value, COUNT_MAX)


def at_most(name: str, value: int, most: int) -> None:
    """Raises ValueError: above `most`."""
    if value > most:
        raise ValueError(f"{name} must be at most {most}, not {value}")


def duration(name: str, value: object) -> None:
    """Raises TypeError, ValueError: not a timedelta, or of more than a hundred years."""
    if not isinstance(value, timedelta):
        raise wrong(name, "a timedelta, such as timedelta(seconds=5)", value)
    if not -DURATION_MAX <= value <= DURATION_MAX:
        raise ValueError(f"{name} must be at most {DURATION_MAX.days} days, not {value}")


def span(name: str, value: object) -> None:
    """Raises TypeError, ValueError: not a timedelta, negative, or of more than a hundred years."""
    duration(name, value)
    if isinstance(value, timedelta) and value < timedelta(0):
        raise ValueError(f"{name} must not be negative: {value}")


def optional_duration(name: str, value: object) -> None:
    """Raises TypeError, ValueError: neither a timedelta nor None, or of over a hundred years."""
    if value is not None:
        duration(name, value)


def optional_error(name: str, value: object) -> None:
    """Raises TypeError: neither an exception nor None."""
    if value is not None and not isinstance(value, BaseException):
        raise wrong(name, "an exception or None", value)


def _encodable(name: str, value: str) -> None:
    """Raises ValueError: half of a surrogate pair is in it, which UTF-8 has no bytes for."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        surrogate = value[error.start]
        raise ValueError(
            f"{name} must be text that UTF-8 can hold, and has {surrogate!r}: {_shown(value)}"
        ) from None


def _shown(value: object) -> str:
    return f"{reprlib.repr(value)} ({type(value).__name__})"
