"""Records → state: ids that senders gave their messages. See `journal.py`."""

from collections.abc import Sequence

from latermq_broker.engine.state.state import Applied, Appliers, EngineState, Stamp
from latermq_broker.store.records.dedup_records import DedupRow
from latermq_broker.store.records.record import RecordType


class DedupApplier:
    """DEDUP: which messages have the ids, and until when."""

    def __init__(self, state: EngineState) -> None:
        self._ids = state.dedup

    def appliers(self) -> Appliers:
        return {RecordType.DEDUP: Applied(self.dedup)}

    def dedup(self, rows: Sequence[DedupRow], at: Stamp) -> None:
        """Remember them, and forget as many that are over: a replay holds no more than was held."""
        self._ids.put(rows)
        self._ids.forget(at.store_ms, 2 * len(rows))
