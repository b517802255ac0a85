"""Steps of the wall clock, into the log: later lives tell times of day by them, too."""

from contextlib import suppress

from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import StoreError
from latermq_broker.store.records.record import RecordType


class ClockSteps:
    def __init__(self, state: EngineState, journal: Journal) -> None:
        self._wall = state.wall
        self._log = state.store.log
        self._journal = journal

    def stepped(self, ahead_ms: int, now_ms: int) -> None:
        """Have the wall clock be so far ahead of `now_ms`, which is the broker's own time.

        What comes due by that is done at the next tick; so is the record, if there is no room now.
        """
        self._wall.ahead_ms = ahead_ms
        with suppress(StoreError):
            self.note(now_ms)

    def note(self, now_ms: int) -> None:
        """Write the last step, if it is not in the log. Raises StoreFullError.

        It is later than all that was stored before it: of one millisecond the clock would be both.
        """
        if self._wall.ahead_ms != self._wall.noted_ahead_ms:
            from_ms = max(now_ms, self._log.last_store_ms + 1)
            self._journal.write(RecordType.CLOCK, self._wall.ahead_ms, from_ms)
