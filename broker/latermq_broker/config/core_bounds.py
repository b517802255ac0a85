"""How much the core does in one go: what no operator sets, and tests make small.

No file, variable or flag names them, and `--print-config` does not show them.
"""

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final

from latermq_broker.config.number_bounds import check_minima

NO_SETTING: Final = {"setting": False}  # metadata of a field


class _Bounds:
    __slots__ = ()

    def __post_init__(self) -> None:
        """Refuse a number below 1. Raises ConfigError."""
        check_minima("bounds", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerBounds(_Bounds):
    """How much of what waits for its time is handled at once."""

    slice_entries_max: int = 8_192  # of a minute, taken apart in one go: some 2 ms
    load_entries_max: int = 8_192  # … and for one question
    chunk_entries_max: int = 4_096  # fresh ones that are sorted in one go
    run_entries_min: int = 1 << 16  # fewer stay in the checkpoint itself
    merge_runs_min: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreBounds(_Bounds):
    """How large parts of what is derived from the log become."""

    index_block_entries_max: int = 131_072  # of the message index: 256 in a bucket
    timer: TimerBounds = field(default_factory=TimerBounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanBounds(_Bounds):
    """How far one receive looks, or one page of what waits."""

    entries_max: int = 2_048  # in one queue, or in the retry lane
    ordered_entries_max: int = 2_048  # of a FIFO group
    filter_reads_max: int = 128  # messages that SQL looks into
    filter_read_bytes_max: int = 4 << 20
    held_reads_max: int = 512  # messages of a FIFO group read and then not delivered
    held_read_bytes_max: int = 4 << 20
    page_entries_max: int = 20_000
    page_rows_max: int = 4_096  # of ready retries, put in order for a page: some 2 ms


def settings_of(section: Any) -> Iterator["Field[Any]"]:
    """Yield the fields of a section, or of its class, that an operator sets."""
    return (each for each in fields(section) if each.metadata.get("setting", True))
