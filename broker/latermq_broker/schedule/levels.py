"""Delay levels: names for durations, as RocketMQ numbers them, from 1."""


def level_ms(level: int, table_ms: tuple[int, ...]) -> int:
    """Return the duration of a level, in ms; levels above the last mean the last.

    Raises ValueError below 1.
    """
    if level < 1:
        raise ValueError(f"delay level {level} is below 1")
    return table_ms[min(level, len(table_ms)) - 1]
