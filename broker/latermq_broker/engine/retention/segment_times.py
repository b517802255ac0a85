"""When segments were written, told by the record behind them; read once for each."""

from bisect import bisect_left, bisect_right

from latermq_broker.store.derived.consume_queue import Entry
from latermq_broker.store.log.commit_log import CommitLog
from latermq_broker.store.log.segment import SEGMENT_HEADER_BYTES, Segment


class SegmentTimes:
    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._last_ms: dict[int, int] = {}  # segment base: store time of its last record

    def written_ms(self, segment: Segment) -> int:
        """Tell when its last record was stored, by the first one behind it; another must follow."""
        known = self._last_ms.get(segment.base)
        if known is None:
            following = self._log.read(segment.end + SEGMENT_HEADER_BYTES)
            known = self._last_ms[segment.base] = following.store_ms
        return known

    def begun_ms(self, segment: Segment) -> int:
        """Return the store time of the segment's first record."""
        return self._log.read(segment.base + SEGMENT_HEADER_BYTES).store_ms

    def older(self, segment: Segment, age_ms: int, now_ms: int) -> bool:
        """Tell whether all of a segment is older than that; nothing is older than 0."""
        return bool(age_ms) and self.written_ms(segment) <= now_ms - age_ms

    def count_older(self, age_ms: int, now_ms: int) -> int:
        """Count the segments, from the oldest on, of which `older` is true; never the last."""
        row = self._log.row.row
        if not age_ms:
            return 0
        return bisect_right(row, now_ms - age_ms, hi=len(row) - 1, key=self.written_ms)

    def index_of(self, entry: Entry) -> int:
        """Return the index of the segment in which a queue entry came into being.

        That of a plain entry has its message; that of another one, such as a due message, was
        written at the entry's time.
        """
        row = self._log.row.row
        if entry.flags:
            return bisect_left(row, entry.time_ms, hi=len(row) - 1, key=self.written_ms)
        return max(0, bisect_right(row, entry.position, key=_base) - 1)

    def forget_before(self, position: int) -> None:
        self._last_ms = {base: ms for base, ms in self._last_ms.items() if base >= position}


def _base(segment: Segment) -> int:
    return segment.base
