"""Records → state: steps of the wall clock, and lives of the broker. See `journal.py`."""

from latermq_broker.engine.journal.apply_deliveries import require_id
from latermq_broker.engine.state.state import Applied, Appliers, EngineState, Stamp
from latermq_broker.store.records.own_records import LifePayload
from latermq_broker.store.records.record import RecordType


class ClockApplier:
    """CLOCK: from here on the wall clock is so far ahead of the broker's own time.

    LIFE: from here on delivery ids begin there, and generations are so far apart.
    """

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def appliers(self) -> Appliers:
        return {RecordType.CLOCK: Applied(self.clock), RecordType.LIFE: Applied(self.life)}

    def clock(self, ahead_ms: int, at: Stamp) -> None:
        wall = self._state.wall
        wall.step(at.store_ms, ahead_ms)
        assert wall.noted_ahead_ms == ahead_ms

    def life(self, life: LifePayload, at: Stamp) -> None:
        leases = self._state.leases
        require_id(life.first_id)
        leases.next_id = max(leases.next_id, life.first_id)
        leases.stride = life.stride
        self._state.lives.begin(at.store_ms, life.stride)
