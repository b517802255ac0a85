"""Replay behind a range that an operator gave up: records speak of what nobody remembers.

A LOST record stands for records that are gone. What follows was true when it was written, but the
functions that apply it count on what came before. So each record is looked at first: what it needs
is made up as far as it tells by itself, and what cannot be applied is passed over. Afterwards every
queue has an entry for each offset, those of lost messages leading to the LOST record; counters
agree; no id is given twice. Deliveries may be repeated, none is left out that can be read.

On a state that misses nothing all of this changes nothing: a log with a LOST record may be replayed
from before or behind it, with or without a checkpoint.
"""

from typing import Any, Final

from latermq_broker.engine.journal.apply_catalog import CatalogApplier
from latermq_broker.engine.journal.apply_deliveries import DeliveryApplier
from latermq_broker.engine.journal.mend.lossy_catalog import CatalogMender, Menders
from latermq_broker.engine.journal.mend.lossy_deliveries import DeliveryMender
from latermq_broker.engine.journal.mend.lossy_progress import ProgressMender
from latermq_broker.engine.journal.mend.lossy_queues import QueueMender
from latermq_broker.engine.state.state import EngineState, Stamp
from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.records.record import Record, RecordType

CONFIG_BYTES_MIN: Final = 128  # of a record that gives out an id
IDS_PER_BYTE_MAX: Final = 4  # delivery ids in a byte of LEASE records, rounded up


class LossyReplay:
    """See the module. `active` from the first LOST record on."""

    def __init__(
        self, state: EngineState, deliveries: DeliveryApplier, catalog: CatalogApplier
    ) -> None:
        self.active = False
        self._state = state
        mended = CatalogMender(state, catalog)
        self._queues = QueueMender(state, deliveries, mended)
        self._progress = ProgressMender(state, deliveries)
        held = DeliveryMender(state, deliveries, mended, self._progress)
        self._menders: Menders = mended.menders() | self._queues.menders() | held.menders()

    def begin(self, record: Record) -> None:
        """A LOST record: ids that the lost records may have given out are never given again."""
        state = self._state
        self._queues.begin(first=not self.active)
        self._progress.begin()
        self.active = True
        state.lost_at = record.position
        state.leases.next_id += record.length * IDS_PER_BYTE_MAX
        state.catalog.next_topic_id += record.length // CONFIG_BYTES_MIN
        state.catalog.next_group_id += record.length // CONFIG_BYTES_MIN

    def mend(self, type: RecordType, payload: Any, at: Stamp) -> Any:
        """Make the state such that the payload can be applied; what of it can, or None."""
        mender = self._menders.get(type)
        return payload if mender is None else mender(payload, at)

    def mend_headless(self, type: RecordType, payload: Any, at: Stamp) -> Any:
        """Mend a record while replay has no state yet: timers and queues are all there is."""
        return self._queues.headless(type, payload, at)

    def end(self) -> None:
        """Replay is over."""
        if self.active:
            state = self._state
            waiting = [position for _, position in state.timer.in_order()]
            waiting += (half.position for half in state.halves)
            state.uses.recount_waiting(waiting, self._length)
            self._queues.end()

    def _length(self, position: int) -> int:
        try:
            return self._state.store.log.read(position).length
        except CorruptRecordError:
            return 0
