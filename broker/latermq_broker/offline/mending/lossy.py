"""Replay behind a range that is given up: records speak of what nobody remembers.

`latermq log repair` replays so, once, and closes the log with what came out (`closing.py`).

A LOST record stands for records that are gone. What follows was true when it was written, but the
functions that apply it count on what came before. So each record is looked at first: what it needs
is made up as far as it tells by itself, and what cannot be applied is passed over. Afterwards every
queue has an entry for each offset, those of lost messages leading to the LOST record; counters
agree; no id is given twice. Deliveries may be repeated, none is left out that can be read.

On a state that misses nothing all of this changes nothing.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from latermq_broker.engine.journal.apply_retention import count_entries
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.state.segment_use import SegmentUses
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import CorruptRecordError, StoreError, UnreplayableError
from latermq_broker.offline.mending.lossy_catalog import CatalogMender, Menders
from latermq_broker.offline.mending.lossy_deliveries import DeliveryMender
from latermq_broker.offline.mending.lossy_progress import ProgressMender
from latermq_broker.offline.mending.lossy_queues import QueueMender
from latermq_broker.offline.mending.lost_catalog import LostCatalog
from latermq_broker.store.records.kinds import unreplayable
from latermq_broker.store.records.record import Record, RecordType

CONFIG_BYTES_MIN: Final = 128  # of a record that gives out an id
IDS_PER_BYTE_MAX: Final = 4  # delivery ids in a byte of LEASE records, rounded up


class LossyReplay:
    """See the module."""

    def __init__(self, state: EngineState, journal: Journal, lost: LostCatalog) -> None:
        self._active = False  # from the first LOST record on
        self.given_up: list[UnreplayableError] = []
        """Records behind it that say what cannot be, even there: each was passed over."""
        self._state = state
        self._journal = journal
        deliveries = journal.deliveries
        mended = CatalogMender(state, journal.catalog, lost)
        self._queues = QueueMender(state, deliveries, mended)
        self._progress = ProgressMender(state, deliveries)
        held = DeliveryMender(state, deliveries, mended, self._progress)
        self._menders: Menders = mended.menders() | self._queues.menders() | held.menders()

    def replay(self, records: Sequence[Record]) -> None:
        """Apply what a broker would, and behind what is lost what can be applied.

        Raises GivenUpError: behind that position, the log tells all itself.
        """
        for index, record in enumerate(records):
            if self._active or (record.type is RecordType.LOST and not self._is_accounted(record)):
                self._replay(record)
            else:
                self._journal.replay(records[index : index + 1])

    def _is_accounted(self, record: Record) -> bool:
        """Tell whether a base behind a lost range is known to tell what was so."""
        return record.position <= self._state.store.dropped.behind

    def _replay(self, record: Record) -> None:
        if record.type is RecordType.LOST:
            self._begin(record)
            return
        try:
            self._apply(record)
        except (StoreError, OSError):
            raise
        except Exception as error:  # noqa: BLE001  it stands among what is given up
            self.given_up.append(unreplayable(record, error))

    def _apply(self, record: Record) -> None:
        payload, at = self._journal.decode(record)
        if self._state.store.dropped.headless:
            payload = self._queues.headless(record.type, payload, at)
        elif record.type in self._menders:
            payload = self._menders[record.type](payload, at)
        if payload is not None:
            self._journal.apply(record.type, payload, at)
            if self._queues.told_anew:
                self._queues.note_armed()

    def _begin(self, record: Record) -> None:
        """Begin at a LOST record: ids that the lost records may have given out never come again."""
        state = self._state
        self._queues.begin(first=not self._active)
        self._progress.begin()
        self._active = True
        state.lost_at = record.position
        state.leases.next_id += record.length * IDS_PER_BYTE_MAX
        state.catalog.next_topic_id += record.length // CONFIG_BYTES_MIN
        state.catalog.next_group_id += record.length // CONFIG_BYTES_MIN

    def end(self) -> None:
        """Count anew what needs each segment, after the replay: segments that were made anew may
        begin elsewhere than those that a checkpoint counted for."""
        state = self._state
        before, state.uses = state.uses, SegmentUses(state.store.log)
        for delivery in state.leases.deliveries.values():
            state.uses.hold(delivery.position)
            if delivery.first_attempt:
                state.uses.chain(delivery.first_attempt)
        count_entries(state)
        self._count_waiting(before)

    def _count_waiting(self, before: SegmentUses) -> None:
        """Count delayed and half messages; only where there are others than before, read them."""
        uses, base_of = self._state.uses, self._state.store.log.row.base_of
        waiting = [position for _, position in self._state.timer.in_order()]
        waiting += (half.position for half in self._state.halves)
        counts = Counter(map(base_of, waiting))
        right = {base for base, count in counts.items() if before.at(base).timers == count}
        for base in right:
            uses.at(base).timers = counts[base]
            uses.at(base).timer_bytes = before.at(base).timer_bytes
        for position in waiting:
            if base_of(position) not in right:
                uses.arm(position, self._length(position))

    def _length(self, position: int) -> int:
        try:
            return self._state.store.log.read(position).length
        except CorruptRecordError:
            return 0
