"""The least and the largest number that each setting may be.

The largest is what the fields hold that carry it.

On disk a record's, in memory a column's, on the wire a client's. A setting above its bound would
end the broker where the number is written, in a tick, and at each start again. What no field
carries is bounded all the same, by what its kind of number can mean.
"""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

from latermq_broker.errors import ConfigError

U16_MAX: Final = (1 << 16) - 1
INT32_MAX: Final = (1 << 31) - 1
U32_MAX: Final = (1 << 32) - 1

MS_MAX: Final = 100 * 366 * 86_400_000  # dates that far ahead can be written, and waited for
COUNT_MAX: Final = INT32_MAX
BYTES_MAX: Final = 1 << 50  # positions in the log have 51 bits in a timer run
LEVEL_MS_MAX: Final = 49 * 86_400_000  # 32 bits in ATTEMPT and EXTEND, with what a lease had left
HISTORY_ATTEMPTS_MAX: Final = 256  # more would not fit into a dead letter's 40 KiB

MAXIMA: Final = {
    "store.segment_bytes": 1 << 34,  # records may take a quarter; their length has 32 bits
    "store.message_body_bytes_max": INT32_MAX - (1 << 20),  # a protobuf message, in what carries it
    "delivery.max_attempts": U16_MAX,  # ATTEMPT, DEAD, the column
    "delivery.max_attempts_max": U16_MAX,
    "delivery.delay_levels_ms": LEVEL_MS_MAX,  # each; also the waits between attempts
    "delivery.invisible_ms_min": U32_MAX,  # LEASE_*, EXTEND
    "delivery.invisible_ms_max": U32_MAX,
    "delivery.auto_renew_lease_ms": U32_MAX,
    "delivery.history_attempts_max": HISTORY_ATTEMPTS_MAX,
    "delivery.failure_class_bytes_max": U16_MAX,  # ATTEMPT; all three together, see config.py
    "delivery.failure_text_bytes_max": U16_MAX,
    "delivery.failure_stack_bytes_max": U16_MAX,
    "transaction.checks_max": U16_MAX,  # TXN, the section of half messages
    "catalog.default_queue_count": U16_MAX,  # ids are one less; FFFF is none
    "catalog.queue_count_max": U16_MAX,
    "replication.replicas": 15,
    "replication.replicas_min": 15,
    "http2.header_list_bytes_max": U32_MAX,  # told in SETTINGS
}


def maximum(setting: str) -> int:
    """Tell the largest value that `section.name` may have."""
    known = MAXIMA.get(setting)
    if known is not None:
        return known
    name = setting.rpartition(".")[2]
    if name.endswith("_percent"):
        return 100
    if name.endswith("_bytes") or "_bytes_" in name:
        return BYTES_MAX
    return MS_MAX if name.endswith("_ms") or "_ms_" in name else COUNT_MAX


def numbers(section: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (name, its numbers) of each setting of a section that has some."""
    for field in fields(section):
        value = getattr(section, field.name)
        if isinstance(value, int) and not isinstance(value, bool):
            yield field.name, (value,)
        elif isinstance(value, tuple) and value and isinstance(value[0], int):
            yield field.name, value


def check_minima(room: str, section: Any, *may_be_zero: str) -> None:
    """Raises ConfigError: a number is below 1, and not one of those that may be 0."""
    for name, values in numbers(section):
        least = 0 if name in may_be_zero else 1
        if min(values, default=least) < least:
            raise ConfigError(f"{room}.{name}", f"must be at least {least}")


def check_maxima(room: str, section: Any) -> None:
    """Raises ConfigError: a number is larger than what carries it holds."""
    for name, values in numbers(section):
        setting = f"{room}.{name}"
        if values and max(values) > maximum(setting):
            raise ConfigError(setting, f"{max(values)} is too large: at most {maximum(setting)}")
