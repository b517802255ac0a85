"""Durations as arguments: a timedelta, or text such as "1h30m"."""

from datetime import timedelta

from latermq._values.arguments import wrong
from latermq_text.durations import parse_duration_ms


def span_of(name: str, value: object) -> timedelta:
    """Return a duration that is given as a timedelta or as text; never negative.

    Raises:
        TypeError: neither.
        ValueError: negative, or not a duration.
    """
    if isinstance(value, str):
        return timedelta(milliseconds=parse_duration_ms(value))
    if not isinstance(value, timedelta):
        raise wrong(name, 'a timedelta, or text such as "1h30m"', value)
    if value < timedelta(0):
        raise ValueError(f"{name} must not be negative: {value}")
    return value
