"""The names of work that is to be done once."""

from typing import Final

from latermq._values import arguments

NAME_CHARACTERS_MAX: Final = 255  # of a group and of a key: MySQL's index takes both
NAME_BYTES_MAX: Final = 4 * NAME_CHARACTERS_MAX  # of the same in UTF-8


def check_key(key: object) -> None:
    """Raises TypeError, ValueError: not text, empty, too long for a key, or no UTF-8."""
    arguments.name_of("key", key)
    if isinstance(key, str) and len(key) > NAME_CHARACTERS_MAX:
        raise ValueError(f"key must have {NAME_CHARACTERS_MAX} characters at most")
