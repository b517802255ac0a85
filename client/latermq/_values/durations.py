"""Durations as arguments: a timedelta, or text such as "1h30m"."""

from datetime import timedelta

from latermq._values.arguments import span, wrong
from latermq_text.durations import parse_duration_ms


def span_of(name: str, value: object) -> timedelta:
    """Return a duration that is given as a timedelta or as text; never negative.

    Raises:
        TypeError: neither.
        ValueError: negative, not a duration, or of more than a hundred years.
    """
    if isinstance(value, str):
        try:
            return timedelta(milliseconds=parse_duration_ms(value))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if not isinstance(value, timedelta):
        raise wrong(name, 'a timedelta, or text such as "1h30m"', value)
    span(name, value)
    return value
