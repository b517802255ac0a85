"""Records → state: steps of the wall clock. See `journal.py`."""

from latermq_broker.engine.state.state import Applied, Appliers, EngineState, Stamp
from latermq_broker.store.records.record import RecordType


class ClockApplier:
    """CLOCK: from here on the wall clock is so far ahead of the broker's own time."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def appliers(self) -> Appliers:
        return {RecordType.CLOCK: Applied(self.clock)}

    def clock(self, ahead_ms: int, at: Stamp) -> None:
        wall = self._state.wall
        wall.step(at.store_ms, ahead_ms)
        assert wall.noted_ahead_ms == ahead_ms
