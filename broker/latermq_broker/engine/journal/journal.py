"""The log and the state, changed together.

`Journal.write` encodes a payload, appends the record to the log's batch and applies it to the
state; `Journal.replay` decodes and applies: the same functions live and in replay, so the two
cannot differ. They stand in `apply_messages.py`, `apply_deliveries.py` and `apply_catalog.py`, one
method per record type, each taking a decoded payload and the `Stamp` of its record; they decide
nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from latermq_broker.engine.journal.apply_catalog import CatalogApplier
from latermq_broker.engine.journal.apply_deliveries import DeliveryApplier
from latermq_broker.engine.journal.apply_lite import LiteApplier
from latermq_broker.engine.journal.apply_messages import MessageApplier
from latermq_broker.engine.journal.apply_retention import RetentionApplier
from latermq_broker.engine.journal.apply_transactions import TransactionApplier
from latermq_broker.engine.journal.mend.lossy import LossyReplay
from latermq_broker.engine.state.state import EngineState, Stamp
from latermq_broker.errors import StoreError
from latermq_broker.store.log.commit_log import NO_SPARE_TYPES
from latermq_broker.store.records import (
    catalog_records,
    change_records,
    lease_records,
    lite_records,
    message_records,
    retention_records,
    transaction_records,
)
from latermq_broker.store.records.message_records import (
    MessagePayload,
    MessageRun,
    RefPayload,
    encode_message_run,
    encode_ref,
    message_rows,
)
from latermq_broker.store.records.record import HEADER_BYTES, Record, RecordType

REF_GROUP: Final = 32  # REFs in one atomic group, which has to fit into the smallest segment
RUN_TYPES: Final = frozenset({RecordType.MESSAGE, RecordType.REF})  # many are applied at once


class _Kind(NamedTuple):
    encode: Callable[[Any], list[lease_records.Bytes]]
    decode: Callable[[Any], Any]
    apply: Callable[[Any, Stamp], None]  # payload, stamp


class Journal:
    """The log and the state, changed together."""

    def __init__(self, state: EngineState) -> None:
        self._log = state.store.log
        self.deliveries = deliveries = DeliveryApplier(state)
        self._messages = messages = MessageApplier(state)
        others = CatalogApplier(state)
        retention = RetentionApplier(state)
        transactions = TransactionApplier(state)
        self.lossy = LossyReplay(state, deliveries, others)
        message, lease, catalog = message_records, lease_records, catalog_records
        change, expiry = change_records, retention_records
        lite = lite_records
        self._dropped = state.store.dropped
        self._kinds: dict[RecordType, _Kind] = {
            RecordType.MESSAGE: _Kind(
                message.encode_message, message.decode_message_head, messages.message
            ),
            RecordType.REF: _Kind(lambda ref: [encode_ref(ref)], message.decode_ref, messages.ref),
            RecordType.LEASE_FRESH: _Kind(
                lease.encode_lease_fresh, lease.decode_lease_fresh, deliveries.lease_fresh
            ),
            RecordType.LEASE_RETRY: _Kind(
                lease.encode_lease_retry, lease.decode_lease_retry, deliveries.lease_retry
            ),
            RecordType.LEASE_ORDERED: _Kind(
                lease.encode_lease_ordered, lease.decode_lease_ordered, deliveries.lease_ordered
            ),
            RecordType.ACK: _Kind(
                lambda ids: [lease.encode_ids(ids)], lease.decode_ids, deliveries.ack
            ),
            RecordType.EXTEND: _Kind(lease.encode_extend, lease.decode_extend, deliveries.extend),
            RecordType.ATTEMPT: _Kind(
                lease.encode_attempt, lease.decode_attempt, deliveries.attempt
            ),
            RecordType.DEAD: _Kind(message.encode_dead, message.decode_dead, deliveries.dead),
            RecordType.DEAD_CHANGE: _Kind(
                message.encode_dead_change, message.decode_dead_change, messages.dead_change
            ),
            RecordType.REDRIVE: _Kind(
                message.encode_redrive, message.decode_redrive, deliveries.redrive
            ),
            RecordType.TIMER: _Kind(message.encode_timer, message.decode_timer, messages.timer),
            RecordType.CONFIG: _Kind(catalog.encode_config, catalog.decode_config, others.config),
            RecordType.OFFSET: _Kind(catalog.encode_offset, catalog.decode_offset, others.offset),
            RecordType.RESET: _Kind(catalog.encode_reset, catalog.decode_reset, others.reset),
            RecordType.CLIENT: _Kind(lease.encode_client, lease.decode_client, others.client),
            RecordType.ACCESS: _Kind(change.encode_change, change.decode_change, others.access),
            RecordType.LIMIT: _Kind(change.encode_change, change.decode_change, others.limit),
            RecordType.MOVE: _Kind(expiry.encode_move, expiry.decode_move, retention.move),
            RecordType.DROP: _Kind(expiry.encode_drop, expiry.decode_drop, retention.drop),
            RecordType.LITE: _Kind(lite.encode_lite, lite.decode_lite, LiteApplier(state).lite),
            RecordType.HALF: _Kind(
                message.encode_message, message.decode_message_head, transactions.half
            ),
            RecordType.TXN: _Kind(
                transaction_records.encode_txn, transaction_records.decode_txn, transactions.txn
            ),
        }
        self._headless: dict[RecordType, Callable[[Any, Stamp], None]] = {
            RecordType.MESSAGE: messages.message,
            RecordType.REF: messages.ref,
            RecordType.TIMER: messages.timer,
            RecordType.DEAD: deliveries.bury,
            RecordType.CONFIG: others.config_headless,
            RecordType.MOVE: retention.move,
            RecordType.DROP: retention.drop,
            RecordType.HALF: transactions.half,
            RecordType.TXN: transactions.txn,
        }

    def write(self, type: RecordType, payload: Any, now_ms: int) -> Stamp:
        """Append one record to the batch and apply it.

        Raises StoreFullError, StoreReadOnlyError before anything has changed.
        """
        kind = self._kinds[type]
        parts = kind.encode(payload)
        position = self._log.append(type, parts, now_ms)
        stamp = Stamp(position, self._log.last_store_ms, HEADER_BYTES + sum(map(len, parts)))
        self._apply(kind.apply, payload, stamp)
        return stamp

    def write_mixed(self, messages: Sequence[MessagePayload], now_ms: int) -> list[int]:
        """Messages that recovery takes all or none of, delayed ones too; their positions.

        Raises StoreFullError, StoreReadOnlyError before anything has changed.
        """
        payloads = [b"".join(message_records.encode_message(message)) for message in messages]
        positions, lengths = self._log.append_group(RecordType.MESSAGE, payloads, now_ms)
        rows = message_rows(messages, positions, lengths, self._log.last_store_ms)
        self._apply(self._messages.messages, rows)
        return positions

    def write_refs(self, refs: Sequence[RefPayload], now_ms: int) -> None:
        """References; those of a group all or none.

        Raises StoreFullError, StoreReadOnlyError: the first groups may have been written.
        """
        for at in range(0, len(refs), REF_GROUP):
            group = refs[at : at + REF_GROUP]
            payloads = [encode_ref(ref) for ref in group]
            self._log.append_group(RecordType.REF, payloads, now_ms)
            self._apply(self._messages.refs, group, self._log.last_store_ms)

    def write_group(self, items: Sequence[tuple[RecordType, Any]], now_ms: int) -> list[Stamp]:
        """The same for several records that recovery takes all or none of."""
        encoded = [self._kinds[type].encode(payload) for type, payload in items]
        sizes = [sum(map(len, parts)) for parts in encoded]
        self._log.reserve(sizes, spare=items[0][0] not in NO_SPARE_TYPES)
        stamps = []
        last = len(items) - 1
        for index, ((type, payload), parts) in enumerate(zip(items, encoded, strict=True)):
            position = self._log.append(type, parts, now_ms, more=index < last)
            stamp = Stamp(position, self._log.last_store_ms, HEADER_BYTES + sizes[index])
            self._apply(self._kinds[type].apply, payload, stamp)
            stamps.append(stamp)
        return stamps

    def write_messages(self, run: MessageRun, now_ms: int) -> list[int]:
        """The same for messages that enter one queue; their positions."""
        positions, lengths = self._log.append_group(
            RecordType.MESSAGE, encode_message_run(run), now_ms
        )
        store_ms = self._log.last_store_ms
        self._apply(self._messages.message_run, run, positions, lengths, store_ms)
        return positions

    def _apply(self, apply: Callable[..., None], *facts: Any) -> None:
        """A record that cannot be applied is a bug, and no start could replay it: it is void.

        Raises what `apply` does; after a bug, the log takes nothing more.
        """
        try:
            apply(*facts)
        except StoreError:
            raise
        except BaseException:
            self._log.void()
            raise

    def replay(self, records: Sequence[Record]) -> None:
        """Whole groups, in the order of the log."""
        at = 0
        while at < len(records):
            record = records[at]
            if self.lossy.active or self._dropped.headless or record.type is RecordType.LOST:
                self._replay_in_parts(record)
            elif record.type in RUN_TYPES:
                end = at + 1
                while end < len(records) and records[end].type is record.type:
                    end += 1
                self._replay_run(record.type, records[at:end])
                at = end
                continue
            else:
                _, decode, apply = self._kinds[record.type]
                stamp = Stamp(record.position, record.store_ms, record.length)
                apply(decode(record.payload), stamp)
            at += 1

    def _replay_run(self, type: RecordType, records: Sequence[Record]) -> None:
        if type is RecordType.MESSAGE:
            self._messages.messages(message_records.decode_message_rows(records))
            return
        refs: list[RefPayload] = []
        store_ms = records[0].store_ms
        for record in records:
            if record.store_ms != store_ms:
                self._messages.refs(refs, store_ms)
                refs, store_ms = [], record.store_ms
            refs.append(message_records.decode_ref(record.payload))
        self._messages.refs(refs, store_ms)

    def _replay_in_parts(self, record: Record) -> None:
        """The same while something is missing before it: dropped segments, or a lost range."""
        if record.type is RecordType.LOST:
            self.lossy.begin(record)
            return
        kind = self._kinds[record.type]
        stamp = Stamp(record.position, record.store_ms, record.length)
        if self._dropped.headless:
            apply = self._headless.get(record.type)
            if apply is None:
                return
            payload = kind.decode(record.payload)
            if self.lossy.active:
                payload = self.lossy.mend_headless(record.type, payload, stamp)
        else:
            apply = kind.apply
            payload = kind.decode(record.payload)
            if self.lossy.active:
                payload = self.lossy.mend(record.type, payload, stamp)
        if payload is not None:
            apply(payload, stamp)
