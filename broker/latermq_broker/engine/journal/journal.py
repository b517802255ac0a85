"""The log and the state, changed together.

`Journal.write` encodes a payload, appends the record to the log's batch and applies it to the
state; `Journal.replay` decodes and applies: the same functions live and in replay, so the two
cannot differ. They stand in the `apply_*.py`, one method per record type, each taking a decoded
payload and the `Stamp` of its record; they decide nothing. Each module says in `appliers` which
types are its own; how those are encoded and decoded is known by `store/records/kinds.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from latermq_broker.delivery.halves import HalfMessage
from latermq_broker.engine.journal.apply_ahead import AheadApplier
from latermq_broker.engine.journal.apply_catalog import CatalogApplier
from latermq_broker.engine.journal.apply_clock import ClockApplier
from latermq_broker.engine.journal.apply_dedup import DedupApplier
from latermq_broker.engine.journal.apply_deliveries import DeliveryApplier
from latermq_broker.engine.journal.apply_lite import LiteApplier
from latermq_broker.engine.journal.apply_messages import MessageApplier
from latermq_broker.engine.journal.apply_retention import RetentionApplier
from latermq_broker.engine.journal.apply_schedules import ScheduleApplier
from latermq_broker.engine.journal.apply_transactions import TransactionApplier
from latermq_broker.engine.state.state import Appliers, EngineState, Stamp
from latermq_broker.errors import StoreError
from latermq_broker.store.log.commit_log import NO_SPARE_TYPES
from latermq_broker.store.records.dedup_records import (
    DedupId,
    DedupRow,
    DedupValue,
    dedup_bytes,
    dedup_chunks,
    encode_dedup,
    encode_dedup_value,
)
from latermq_broker.store.records.kind import Bytes, Kind
from latermq_broker.store.records.kinds import KINDS, unreplayable
from latermq_broker.store.records.message_records import (
    MessagePayload,
    MessageRun,
    RefPayload,
    decode_message_rows,
    decode_ref,
    encode_message,
    encode_message_run,
    encode_ref,
    message_rows,
)
from latermq_broker.store.records.own_records import LifePayload
from latermq_broker.store.records.record import HEADER_BYTES, Record, RecordType
from latermq_broker.store.records.transaction_records import (
    HalfSenderPayload,
    encode_half_sender,
)

tuple_new: Final = tuple.__new__  # as Stamp(...), without its keyword handling
REF_GROUP: Final = 32  # REFs in one atomic group, which has to fit into the smallest segment
RUN_TYPES: Final = frozenset({RecordType.MESSAGE, RecordType.REF})  # many are applied at once


class _Way(NamedTuple):
    """What the journal does with records of one type: a `Kind` and an `Applied` in one row."""

    encode: Callable[[Any], list[Bytes]]
    decode: Callable[[Any], Any]
    apply: Callable[[Any, Stamp], Any]
    headless: Callable[[Any, Stamp], Any] | None


class Journal:
    """The log and the state, changed together."""

    def __init__(self, state: EngineState) -> None:
        self._log = state.store.log
        self._dropped = state.store.dropped
        self._ways: dict[RecordType, _Way] = {}
        self._life: LifePayload | None = None  # this one, until its record is written
        self.singly = False
        """Replay one record at a time, so that an UnreplayableError names the very one."""
        self.deliveries = DeliveryApplier(state)
        self._messages = MessageApplier(state)
        self.catalog = CatalogApplier(state)
        self._dedup = DedupApplier(state)
        for appliers in (
            self._messages.appliers(),
            TransactionApplier(state).appliers(),
            self.deliveries.appliers(),
            AheadApplier(state, self.deliveries).appliers(),
            self.catalog.appliers(),
            LiteApplier(state).appliers(),
            self._dedup.appliers(),
            ScheduleApplier(state).appliers(),
            RetentionApplier(state).appliers(),
            ClockApplier(state).appliers(),
        ):
            self.register(appliers)

    def register(self, appliers: Appliers, kinds: Mapping[RecordType, Kind] = KINDS) -> None:
        """Have records of these types written and replayed so."""
        for type, (apply, headless) in appliers.items():
            kind = kinds[type]
            self._ways[type] = _Way(kind.encode, kind.decode, apply, headless)

    def begin_life(self, life: LifePayload, now_ms: int) -> None:
        """Write the record of this life of the broker before all others that the life writes.

        Without room for it now, the next write tries first.
        """
        self._life = life
        with suppress(StoreError):
            self._write_life(now_ms)

    def _write_life(self, now_ms: int) -> None:
        self.write(RecordType.LIFE, self._life, now_ms)
        self._life = None

    def write(self, type: RecordType, payload: Any, now_ms: int) -> Any:
        """Append one record to the batch and apply it. Returns what that made: see the appliers.

        Raises StoreFullError, StoreReadOnlyError before anything has changed.
        """
        if self._life is not None and type is not RecordType.LIFE:
            self._write_life(now_ms)
        way = self._ways[type]
        parts = way.encode(payload)
        position = self._log.append(type, parts, now_ms)
        length = HEADER_BYTES
        for part in parts:
            length += len(part)
        stamp = tuple_new(Stamp, (position, self._log.last_store_ms, length))
        return self._apply(way.apply, payload, stamp)

    def write_mixed(self, messages: Sequence[MessagePayload], now_ms: int) -> list[int]:
        """Write messages that recovery takes all or none of, also delayed; return their positions.

        Raises StoreFullError, StoreReadOnlyError before anything has changed.
        """
        if self._life is not None:
            self._write_life(now_ms)
        payloads = [b"".join(encode_message(message)) for message in messages]
        positions, lengths = self._log.append_group(RecordType.MESSAGE, payloads, now_ms)
        rows = message_rows(messages, positions, lengths, self._log.last_store_ms)
        self._apply(self._messages.messages, rows)
        return positions

    def write_once(
        self,
        messages: Sequence[MessagePayload],
        ids: Sequence[DedupId],
        until_ms: int,
        now_ms: int,
    ) -> list[int]:
        """Write and apply messages and, in one group with them, the dedup ids that some have.

        Raises as `write_mixed`.
        """
        if self._life is not None:
            self._write_life(now_ms)
        payloads = [b"".join(encode_message(message)) for message in messages]
        sizes = list(map(len, payloads))
        chunks = dedup_chunks(ids)
        id_sizes = [
            sum([dedup_bytes(id.key, id.message_id, id.made_by) for id in chunk])
            for chunk in chunks
        ]
        self._log.reserve([*sizes, *id_sizes])
        positions = [
            self._log.append(RecordType.MESSAGE, [payload], now_ms, more=True)
            for payload in payloads
        ]
        store_ms = self._log.last_store_ms
        lengths = [HEADER_BYTES + size for size in sizes]
        self._apply(self._messages.messages, message_rows(messages, positions, lengths, store_ms))
        for chunk in chunks:
            rows: list[DedupRow] = []
            for index, key, message_id, made_by in chunk:
                message = messages[index]
                value = DedupValue(
                    positions[index], message.queue_offset, message.due_ms, until_ms,
                    message_id, made_by,
                )  # fmt: skip
                rows.append((key, encode_dedup_value(value)))
            parts = encode_dedup(rows)
            position = self._log.append(
                RecordType.DEDUP, parts, now_ms, more=chunk is not chunks[-1]
            )
            stamp = Stamp(position, store_ms, HEADER_BYTES + sum(map(len, parts)))
            self._apply(self._dedup.dedup, rows, stamp)
        return positions

    def write_halves(
        self, halves: Sequence[MessagePayload], sender: str, now_ms: int
    ) -> list[HalfMessage]:
        """Write and apply half messages and, in one group with them, who sent them.

        Args:
            sender: an access key; empty: users have no names.
        Raises as `write_mixed`.
        """
        items = [(RecordType.HALF, half) for half in halves]
        if not sender:
            return self.write_group(items, now_ms)
        unplaced = encode_half_sender(HalfSenderPayload((0,) * len(halves), sender))
        made: list[HalfMessage] = self.write_group(items, now_ms, sum(map(len, unplaced)))
        positions = tuple(half.position for half in made)
        self.write(RecordType.HALF_SENDER, HalfSenderPayload(positions, sender), now_ms)
        return made

    def write_refs(self, refs: Sequence[RefPayload], now_ms: int) -> None:
        """Write references; those of a group all or none.

        Raises StoreFullError, StoreReadOnlyError: the first groups may have been written.
        """
        if self._life is not None:
            self._write_life(now_ms)
        for at in range(0, len(refs), REF_GROUP):
            group = refs[at : at + REF_GROUP]
            payloads = [encode_ref(ref) for ref in group]
            self._log.append_group(RecordType.REF, payloads, now_ms)
            self._apply(self._messages.refs, group, self._log.last_store_ms)

    def write_group(
        self, items: Sequence[tuple[RecordType, Any]], now_ms: int, behind_bytes: int = 0
    ) -> list[Any]:
        """Write and apply several records that recovery takes all or none of; what each made.

        Args:
            behind_bytes: of one that the caller writes next, into the same group; 0: none.
        """
        assert items
        if self._life is not None:
            self._write_life(now_ms)
        encoded = [self._ways[type].encode(payload) for type, payload in items]
        sizes = [sum(map(len, parts)) for parts in encoded]
        behind = [behind_bytes] if behind_bytes else []
        self._log.reserve([*sizes, *behind], spare=items[0][0] not in NO_SPARE_TYPES)
        made = []
        last = len(items) - 1
        for index, (type, payload) in enumerate(items):
            more = index < last or bool(behind)
            position = self._log.append(type, encoded[index], now_ms, more=more)
            stamp = Stamp(position, self._log.last_store_ms, HEADER_BYTES + sizes[index])
            made.append(self._apply(self._ways[type].apply, payload, stamp))
        return made

    def write_messages(self, run: MessageRun, now_ms: int) -> list[int]:
        """Write and apply messages that enter one queue; their positions."""
        if self._life is not None:
            self._write_life(now_ms)
        positions, lengths = self._log.append_group(
            RecordType.MESSAGE, encode_message_run(run), now_ms
        )
        store_ms = self._log.last_store_ms
        self._apply(self._messages.message_run, run, positions, lengths, store_ms)
        return positions

    def _apply(self, apply: Callable[..., Any], *facts: Any) -> Any:
        """Apply a record. If it cannot be, void it: it is in the batch and not in the state.

        It may be a bug, and no start could replay it; or a queue's file cannot be read any more
        that could be when the record was decided, and a start can.
        Raises what `apply` does; the log takes nothing more.
        """
        try:
            return apply(*facts)
        except StoreError as error:
            self._log.void(f"the broker failed at a record ({error}); restart it to recover")
            raise
        except BaseException:
            self._log.void()
            raise

    def replay(self, records: Sequence[Record]) -> None:
        """Replay whole groups of records, in the order of the log.

        Raises UnreplayableError: one of them, or of a run the first, says what cannot be.
        """
        at = 0
        try:
            while at < len(records):
                record = records[at]
                if record.type in RUN_TYPES and not (self._dropped.headless or self.singly):
                    end = at + 1
                    while end < len(records) and records[end].type is record.type:
                        end += 1
                    self._replay_run(record.type, records[at:end])
                    at = end
                else:
                    self.apply(record.type, *self.decode(record))
                    at += 1
        except (StoreError, OSError):
            raise
        except Exception as error:
            raise unreplayable(records[at], error) from error

    def _replay_run(self, type: RecordType, records: Sequence[Record]) -> None:
        if type is RecordType.MESSAGE:
            self._messages.messages(decode_message_rows(records))
            return
        assert type is RecordType.REF
        refs: list[RefPayload] = []
        store_ms = records[0].store_ms
        for record in records:
            if record.store_ms != store_ms:
                self._messages.refs(refs, store_ms)
                refs, store_ms = [], record.store_ms
            refs.append(decode_ref(record.payload))
        self._messages.refs(refs, store_ms)

    def decode(self, record: Record) -> tuple[Any, Stamp]:
        """Return its payload and its stamp."""
        stamp = Stamp(record.position, record.store_ms, record.length)
        return self._ways[record.type].decode(record.payload), stamp

    def apply(self, type: RecordType, payload: Any, at: Stamp) -> None:
        """Apply one record of the log; of it what counts, while replay has no state yet."""
        way = self._ways[type]
        apply = way.headless if self._dropped.headless else way.apply
        if apply is not None:
            apply(payload, at)
