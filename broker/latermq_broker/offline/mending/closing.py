"""Closes a log that was repaired: a BASE at its end says from what a broker goes on.

A broker replays strictly and cannot go on behind a LOST record. So the log is replayed here, once,
from the best checkpoint there is and as far as its records tell (`lossy.py`); what came out is
written behind it all, as DROP records of kind BASE (`store/records/retention_records.py`). Other
than retention's they carry everything that a checkpoint has. Queue entries alone are left to the
log, but those that no record of it tells any more.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from latermq_broker.config.config import Config
from latermq_broker.engine.checkpoint.snapshot import is_whole, restore
from latermq_broker.engine.journal.apply_retention import base_sections
from latermq_broker.engine.journal.checkpoints import Checkpoints
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.retention.retention import BASE_PART_BYTES
from latermq_broker.engine.state.segment_use import QueueKey
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import (
    DamagedQueueError,
    GivenUpError,
    HalfRestoredError,
    UnreplayableError,
)
from latermq_broker.offline.mending.lossy import LossyReplay
from latermq_broker.offline.mending.lost_catalog import read_lost
from latermq_broker.schedule.timer import Timer
from latermq_broker.store.derived.checkpoint import (
    MOVED,
    MOVED_SECTION,
    decode_sections,
    encode_sections,
)
from latermq_broker.store.derived.consume_queue import ENTRY, ConsumeQueue
from latermq_broker.store.derived.moved_entries import MovedEntries
from latermq_broker.store.files import Files
from latermq_broker.store.offline.inspect import scan_directory
from latermq_broker.store.records.letter_records import decode_dead
from latermq_broker.store.records.message_records import decode_message_head, decode_ref
from latermq_broker.store.records.record import Record, RecordType
from latermq_broker.store.records.retention_records import (
    DROP_BASE,
    BaseParts,
    base_records,
    decode_drop,
    encode_drop,
)
from latermq_broker.store.store import Store

SLICE: Final = 4_096  # queue entries looked at in one go


class Ending:
    """Learns from the records of a log, in their order, whether it is closed."""

    def __init__(self) -> None:
        self.open = False  # records are given up, and no base behind them says how to go on
        self._base = BaseParts()

    def look(self, record: Record) -> None:
        if record.type is RecordType.LOST:
            self.open = True
            self._base.forget()
        elif self.open and record.type is RecordType.DROP:
            drop = decode_drop(record.payload)
            data = self._base.add(drop) if drop.kind == DROP_BASE else None
            with suppress(ValueError):  # of one that nobody of ours wrote
                self.open = data is None or not is_whole(decode_sections(data))


def close_log(path: Path, files: Files, config: Config, now_ms: int) -> Sequence[UnreplayableError]:
    """Have the log of a directory end with what a lenient replay makes of it, and a checkpoint.

    Dying anywhere leaves a log that is not closed, and can be closed again.

    Returns the records behind a loss that say what cannot be; they were passed over.
    Raises:
        UnreplayableError: one before any loss does.
        StoreLockedError: a broker runs on it.
        StoreUnusableError: the file system refuses.
        StoreError: as a start does.
    """
    try:
        return _close_log(path, files, config, now_ms)
    except DamagedQueueError:  # with it the checkpoints went that vouched for its file
        return _close_log(path, files, config, now_ms)


def _close_log(
    path: Path, files: Files, config: Config, now_ms: int
) -> Sequence[UnreplayableError]:
    store = Store.open(path, config.store, files, now_ms)
    try:
        given_up: list[UnreplayableError] = []
        state = replayed(store, config, now_ms, given_up)
        _write_base(store, whole_sections(state, scan_directory(path, files)), config, now_ms)
        checkpoints = Checkpoints(state)
        store.close(partial(checkpoints.take, now_ms), now_ms)
        checkpoints.release()
        return given_up
    finally:
        store.abandon()


def replayed(
    store: Store, config: Config, now_ms: int, given_up: list[UnreplayableError] | None = None
) -> EngineState:
    """Return the state that a lenient replay brings. Raises as `Store.recover`.

    Args:
        given_up: gets the records that were passed over.
    """
    lost, singly = read_lost(store.files, store.directory), False
    while True:
        state = EngineState(store, config)
        journal = Journal(state)
        replay = LossyReplay(state, journal, lost)
        journal.singly = singly
        try:
            store.recover(partial(restore, state), replay.replay, now_ms)
        except GivenUpError as error:
            if error.position <= store.dropped.behind:
                raise
            store.dropped.behind = error.position
        except HalfRestoredError:
            pass
        except UnreplayableError as refusal:
            if not store.choice.distrust(refusal) and singly:
                raise
            singly = True
        else:
            replay.end()
            if given_up is not None:
                given_up += replay.given_up
            return state
        Checkpoints(state).release()


def whole_sections(state: EngineState, records: Iterable[Record]) -> bytes:
    """Encode what a BASE carries that closes the log of these records."""
    timer = Timer(state.config.store.bounds.timer)  # in memory: runs are derived, and may go
    timer.arm_fresh(list(state.timer.in_order()))
    return encode_sections(
        decode_sections(base_sections(state))
        | timer.snapshot()
        | {"runs": b"[]", "uses": state.uses.snapshot()}
        | {MOVED_SECTION: _entries_told_by_nothing_else(state, records)}
    )


def _entries_told_by_nothing_else(state: EngineState, records: Iterable[Record]) -> bytes:
    gaps = _gaps(records)
    parts: list[bytes] = []
    for key in state.store.queue_keys():
        queue = state.queue(*key)
        moved = MovedEntries()
        moved.restore(queue.moved.snapshot())
        for low, high in [*gaps.gaps.get(key, ()), (gaps.ends.get(key, 0), queue.next)]:
            _add_entries(queue, low, high, moved)
        if len(moved):
            data = moved.snapshot()
            parts += (MOVED.pack(*key, 0, 0, len(data)), data)
    return b"".join(parts)


def _add_entries(queue: ConsumeQueue, low: int, high: int, moved: MovedEntries) -> None:
    offset = max(low, queue.first, queue.begin)
    end = min(high, queue.next)
    while offset < end:
        for entry in queue.scan(offset, min(SLICE, end - offset)):
            moved.put(offset, ENTRY.pack(*entry))
            offset += 1


class _Gaps:
    """Queue offsets that no record of the log tells."""

    def __init__(self) -> None:
        self.gaps: dict[QueueKey, list[tuple[int, int]]] = {}  # but those behind the last one
        self.ends: dict[QueueKey, int] = {}

    def add(self, key: QueueKey, offset: int) -> None:
        """Note an entry that a record tells, and the gap before it."""
        end = self.ends.get(key, 0)
        if offset > end:
            self.gaps.setdefault(key, []).append((end, offset))
        self.ends[key] = max(end, offset + 1)


def _gaps(records: Iterable[Record]) -> _Gaps:
    gaps = _Gaps()
    for key, offset in _entries(records):
        gaps.add(key, offset)
    return gaps


def _entries(records: Iterable[Record]) -> Iterator[tuple[QueueKey, int]]:
    """Yield the queue and the offset of each entry that a record makes, in the log's order."""
    for record in records:
        made: Any
        if record.type is RecordType.MESSAGE:
            made = decode_message_head(record.payload)
        elif record.type is RecordType.REF:
            made = decode_ref(record.payload)
        elif record.type is RecordType.DEAD:
            head = decode_dead(record.payload).head
            yield (head.dlq_topic_id, 0), head.queue_offset
            continue
        else:
            continue
        if made.queue_offset >= 0:
            yield (made.topic_id, made.queue_id), made.queue_offset


def _write_base(store: Store, sections: bytes, config: Config, now_ms: int) -> None:
    """Append it to the log; nothing of the state changes by it."""
    part_bytes = min(BASE_PART_BYTES, config.store.record_bytes_max // 2)
    records = base_records(store.dropped.start, sections, part_bytes)
    payloads = [b"".join(encode_drop(record)) for record in records]
    store.log.reserve(list(map(len, payloads)), spare=True, large=True)
    store.log.append_group(RecordType.DROP, payloads, now_ms)
