"""Asks the disk for old records before they are read one by one.

What was written lately is in the page cache. Older records may not be: each would stop the loop for
as long as the disk takes, one after the other. Asked for together they come together; reading them
then waits for the slowest only. Asking for what is there already costs about a microsecond a range.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.log.commit_log import CommitLog

HOT_BYTES: Final = 64 << 20  # written last: in the page cache for all we know
RECORD_BYTES: Final = 4096  # asked for where a record's length is not known
GAP_BYTES: Final = 64 << 10  # read rather than asked for in two ranges
AHEAD_RECORDS_MIN: Final = 4  # so many in one range: somebody reads on from there
AHEAD_BYTES: Final = 128 << 10
ASKED_BYTES_MAX: Final = 16 << 20

Span = tuple[int, int]  # position, length


def read_ahead(log: CommitLog, spans: Iterable[Span], known: Container[int] = ()) -> None:
    """Have the disk read these records, the old ones among them; waits for nothing.

    Args:
        spans: looked at only where there is something old.
        known: positions that need not be read again.
    """
    cold_end = log.end - HOT_BYTES
    if cold_end <= 0:
        return
    cold: list[Span] = []
    size = 0
    for span in spans:
        if span[0] < cold_end and size < ASKED_BYTES_MAX and span[0] not in known:
            cold.append(span)
            size += span[1]
    for begin, end in _merged(sorted(cold)):
        with suppress(CorruptRecordError, OSError):  # reading it will tell
            segment = log.row.at(begin)
            segment.view().will_need(begin - segment.base, min(end, segment.end) - begin)


def _merged(spans: Sequence[Span]) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of what is to be asked for at once; `spans` are in order."""
    begin = end = count = 0
    for position, length in spans:
        if count and position - end <= GAP_BYTES:
            end = max(end, position + length)
            count += 1
            continue
        if count:
            yield begin, _read_on(end, count)
        begin, end, count = position, position + length, 1
    if count:
        yield begin, _read_on(end, count)


def _read_on(end: int, count: int) -> int:
    return end + AHEAD_BYTES if count >= AHEAD_RECORDS_MIN else end
