"""When segments were written, told by the record behind them; read once for each."""

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

    def older(self, segment: Segment, age_ms: int, now_ms: int) -> bool:
        """Tell whether all of a segment is older than that; nothing is older than 0."""
        return bool(age_ms) and self.written_ms(segment) <= now_ms - age_ms

    def forget_before(self, position: int) -> None:
        self._last_ms = {base: ms for base, ms in self._last_ms.items() if base >= position}
