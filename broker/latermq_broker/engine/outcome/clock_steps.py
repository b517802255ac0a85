"""The begin of a life of the broker, and steps of the wall clock, into the log.

Later lives tell times of day by the steps, too.
"""

from contextlib import suppress
from secrets import randbits
from typing import Final

from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import StoreError
from latermq_broker.store.records.own_records import LifePayload
from latermq_broker.store.records.record import RecordType

STRIDE_BITS: Final = 32  # of a generation


class ClockSteps:
    def __init__(self, state: EngineState, journal: Journal) -> None:
        self._wall = state.wall
        self._leases = state.leases
        self._life: LifePayload | None = None  # this one, once it has begun
        self._log = state.store.log
        self._journal = journal

    def begin_life(self, first_id: int, now_ms: int) -> None:
        """Draw the stride of generations of the life whose delivery ids begin at `first_id`.

        Without room for its record now, a tick writes it.
        """
        self._life = LifePayload(first_id, randbits(STRIDE_BITS) | 1)
        with suppress(StoreError):
            self._note_life(now_ms)

    def _note_life(self, now_ms: int) -> None:
        life = self._life
        if life is not None and life.stride != self._leases.stride:
            self._journal.write(RecordType.LIFE, life, now_ms)

    def stepped(self, ahead_ms: int, now_ms: int) -> None:
        """Have the wall clock be so far ahead of `now_ms`, which is the broker's own time.

        What comes due by that is done at the next tick; so is the record, if there is no room now.
        """
        self._wall.ahead_ms = ahead_ms
        with suppress(StoreError):
            self.note(now_ms)

    def note(self, now_ms: int) -> None:
        """Write the life and the last step that are not in the log. Raises StoreFullError.

        It is later than all that was stored before it: of one millisecond the clock would be both.
        """
        self._note_life(now_ms)
        if self._wall.ahead_ms != self._wall.noted_ahead_ms:
            from_ms = max(now_ms, self._log.last_store_ms + 1)
            self._journal.write(RecordType.CLOCK, self._wall.ahead_ms, from_ms)
