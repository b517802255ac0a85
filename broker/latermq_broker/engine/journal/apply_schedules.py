"""Records → state: schedules. See `journal.py`."""

from latermq_broker.catalog.schedules import decode_schedule
from latermq_broker.engine.state.state import Applied, Appliers, EngineState, Stamp
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.records.schedule_records import (
    SCHEDULE_DECLARED,
    SCHEDULE_PUT,
    SCHEDULE_REMOVE,
    SCHEDULE_WITHDRAWN,
    SchedulePayload,
    read_declared,
)


class ScheduleApplier:
    """SCHEDULE: one was put or removed, has ticked, or an app declares it, or does no more.

    What a tick sends is a MESSAGE beside it.
    """

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
        if change.operation in (SCHEDULE_DECLARED, SCHEDULE_WITHDRAWN):
            self._declared(change)
            return
        name = change.body.decode()
        if change.operation == SCHEDULE_REMOVE:
            table.remove(name)
            self._state.declarations.forget(name)
            return
        known = table.get(name)
        if known is not None:  # after a repair the record that put it may be lost
            table.put(known.ticked(change.tick_ms, change.next_ms))

    def _declared(self, change: SchedulePayload) -> None:
        declarations, table = self._state.declarations, self._state.schedules
        app, names = read_declared(change.body)
        if change.operation == SCHEDULE_WITHDRAWN:
            declarations.withdraw(app, names)
            return
        # after a repair the record that put a schedule may be lost
        present = [name for name in names if table.get(name) is not None]
        declarations.note(app, present, change.tick_ms)
