"""Records → state: schedules. See `journal.py`."""

from latermq_broker.catalog.schedules import decode_schedule
from latermq_broker.engine.state.state import Applied, Appliers, EngineState, Stamp
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.records.schedule_records import (
    SCHEDULE_PUT,
    SCHEDULE_REMOVE,
    SchedulePayload,
)


class ScheduleApplier:
    """SCHEDULE: one was put or removed, or has ticked; what a tick sends is a MESSAGE beside it."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def appliers(self) -> Appliers:
        return {
            RecordType.SCHEDULE: Applied(self.schedule),
        }

    def schedule(self, change: SchedulePayload, at: Stamp) -> None:
        table = self._state.schedules
        if change.operation == SCHEDULE_PUT:
            table.put(decode_schedule(change.body))
            return
        name = change.body.decode()
        if change.operation == SCHEDULE_REMOVE:
            table.remove(name)
            return
        known = table.get(name)
        if known is not None:  # after a repair the record that put it may be lost
            table.put(known.ticked(change.tick_ms, change.next_ms))
