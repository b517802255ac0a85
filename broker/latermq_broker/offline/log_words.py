"""What a log record says, in names and numbers: for `latermq log dump`.

Ids of topics, groups and clients become names as far as the records read before have told them;
a dump that begins in the middle of a log shows the bare numbers.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from latermq_broker.catalog.access import decode_user
from latermq_broker.catalog.catalog import OnDead, TopicType
from latermq_broker.catalog.limits import FIELDS, decode_limit
from latermq_broker.delivery.history import Outcome, decode_history
from latermq_broker.engine.state.model import DeadState
from latermq_broker.services.wire.wire_stored import stored_message
from latermq_broker.store.records.catalog_records import (
    CONFIG_PUT,
    CONFIG_TOPIC,
    OFFSET_REWIND,
    OFFSET_SKIP,
    decode_config,
    decode_offset,
    decode_reset,
)
from latermq_broker.store.records.change_records import PUT, decode_change
from latermq_broker.store.records.lease_records import (
    EXTEND_KEEP_HANDLE,
    EXTEND_RENEWAL,
    LEASE_AUTO_RENEW,
    NO_QUEUE,
    ORDERED_HOLD,
    ORDERED_KEEP,
    ORDERED_PASS,
    ORDERED_TAKE,
    decode_attempt,
    decode_client,
    decode_extend,
    decode_ids,
    decode_lease_fresh,
    decode_lease_ordered,
    decode_lease_retry,
)
from latermq_broker.store.records.lite_records import LITE_EXPIRED, decode_lite
from latermq_broker.store.records.lost_records import decode_lost
from latermq_broker.store.records.message_records import (
    DEAD_PARKS,
    DEAD_REASONS,
    QUEUE_UNSET,
    REF_COMMITTED,
    REF_DUE,
    REF_REDRIVE,
    dead_slices,
    decode_dead_change,
    decode_dead_head,
    decode_message_head,
    decode_redrive,
    decode_ref,
    decode_timer,
    message_slices,
)
from latermq_broker.store.records.record import Record, RecordType
from latermq_broker.store.records.retention_records import (
    DROP_BASE,
    MOVE_HISTORY,
    decode_drop,
    decode_move,
    original,
)
from latermq_broker.store.records.transaction_records import CAUSES, TXN_CHECKED, decode_txn

Fields = dict[str, Any]

_REF_REASONS: Final = {REF_DUE: "due", REF_REDRIVE: "redrive", REF_COMMITTED: "committed"}
_OFFSET_ACTS: Final = {OFFSET_SKIP: "skip", OFFSET_REWIND: "rewind"}
_ORDERED_ACTS: Final = {
    ORDERED_TAKE: "leased",
    ORDERED_HOLD: "held_back",
    ORDERED_PASS: "filtered_out",
    ORDERED_KEEP: "kept",
}  # as queue:offset


class RecordReader:
    """Reads the records of one log in order and remembers the names they tell."""

    def __init__(self) -> None:
        self._topics: dict[int, str] = {}
        self._groups: dict[int, str] = {}
        self._clients: dict[int, str] = {}
        self._readers: dict[RecordType, Callable[[Record], Fields]] = {
            RecordType.MESSAGE: self._message,
            RecordType.REF: self._ref,
            RecordType.LEASE_FRESH: self._lease_fresh,
            RecordType.LEASE_RETRY: self._lease_retry,
            RecordType.LEASE_ORDERED: lambda record: _ordered(record, self),
            RecordType.ACK: lambda record: {"deliveries": list(decode_ids(record.payload))},
            RecordType.EXTEND: self._extend,
            RecordType.ATTEMPT: self._attempt,
            RecordType.DEAD: self._dead,
            RecordType.DEAD_CHANGE: self._dead_change,
            RecordType.REDRIVE: self._redrive,
            RecordType.TIMER: self._timer,
            RecordType.CONFIG: self._config,
            RecordType.OFFSET: self._offset,
            RecordType.RESET: self._reset,
            RecordType.CLIENT: self._client,
            RecordType.ACCESS: _access,
            RecordType.LIMIT: _limit,
            RecordType.MOVE: self._move,
            RecordType.DROP: lambda record: _drop(record, self.topic),
            RecordType.HALF: self._message,
            RecordType.TXN: _txn,
            RecordType.LITE: lambda record: _lite(record, self),
            RecordType.LOST: _lost,
        }

    def fields(self, record: Record) -> Fields:
        """The payload by name; empty for the store's own records and for later types."""
        if record.type is RecordType.MARK:
            return {"clean": record.is_clean_mark}
        read = self._readers.get(record.type)
        return {} if read is None else read(record)

    def _message(self, record: Record) -> Fields:
        head = decode_message_head(record.payload)
        stored = stored_message(*message_slices(record.payload))
        fields = place(record, self)
        fields["message_id"] = stored.message_id
        if head.due_ms:
            name = "check_at_ms" if record.type is RecordType.HALF else "due_at_ms"
            fields[name] = head.due_ms
        if head.delay_level:
            fields["delay_level"] = head.delay_level
        if head.lite_topic:
            fields["lite_topic"] = head.lite_topic
        if stored.tag:
            fields["tag"] = stored.tag
        if stored.keys:
            fields["keys"] = list(stored.keys)
        return fields | {"body_bytes": len(stored.body)}

    def _ref(self, record: Record) -> Fields:
        ref = decode_ref(record.payload)
        return {
            "topic": self.topic(ref.topic_id),
            "queue": ref.queue_id,
            "offset": ref.queue_offset,
            "reason": _REF_REASONS.get(ref.reason, str(ref.reason)),
            "message_at": ref.origin,
        }

    def _lease_fresh(self, record: Record) -> Fields:
        lease = decode_lease_fresh(record.payload)
        return {
            "group": self.group(lease.group_id),
            "topic": self.topic(lease.topic_id),
            "queue": lease.queue_id,
            "offsets": [lease.first_offset + delta for delta in lease.deltas],
            "deliveries": [lease.first_id + index for index in range(len(lease.deltas))],
            "invisible_ms": lease.invisible_ms,
            "auto_renew": bool(lease.flags & LEASE_AUTO_RENEW),
            "client": self.client_name(lease.client),
        }

    def _lease_retry(self, record: Record) -> Fields:
        lease = decode_lease_retry(record.payload)
        return {
            "deliveries": list(lease.ids),
            "invisible_ms": lease.invisible_ms,
            "auto_renew": bool(lease.flags & LEASE_AUTO_RENEW),
            "client": self.client_name(lease.client),
        }

    def _extend(self, record: Record) -> Fields:
        extend = decode_extend(record.payload)
        return {
            "delivery": extend.id,
            "invisible_ms": extend.invisible_ms,
            "handle_stays": bool(extend.flags & EXTEND_KEEP_HANDLE),
            "renewal": bool(extend.flags & EXTEND_RENEWAL),
        }

    def _attempt(self, record: Record) -> Fields:
        attempt = decode_attempt(record.payload)
        fields: Fields = {
            "delivery": attempt.id,
            "attempt": attempt.attempt,
            "outcome": Outcome(attempt.outcome).name.lower(),
            "ran_ms": attempt.duration_ms,
            "backoff_ms": attempt.backoff_ms,
            "client": self.client_name(attempt.client),
            "previous_at": attempt.previous,
        }
        if attempt.failure is not None:
            fields["failure_class"], fields["failure_text"] = attempt.failure[:2]
        return fields

    def _dead(self, record: Record) -> Fields:
        head = decode_dead_head(record.payload)
        history, rest, sys = dead_slices(record.payload)
        stored = stored_message(rest, sys)
        return {
            "group": self.group(head.group_id),
            "offset": head.queue_offset,
            "reason": DEAD_REASONS.get(head.reason, str(head.reason)),
            "delivery": head.id,
            "attempts": head.attempt_count,
            "origin_topic": self.topic(head.origin_topic_id),
            "origin_queue": head.origin_queue_id,
            "origin_offset": head.origin_offset,
            "message_id": stored.message_id,
            "signature": decode_history(history).signature,
            "redrives": head.redrive_count,
            "body_bytes": len(stored.body),
            "parks": bool(head.flags & DEAD_PARKS),
        }

    def _dead_change(self, record: Record) -> Fields:
        change = decode_dead_change(record.payload)
        return {
            "topic": self.topic(change.dlq_topic_id),
            "state": DeadState(change.state).name.lower(),
            "offsets": list(change.offsets),
        }

    def _redrive(self, record: Record) -> Fields:
        redrive = decode_redrive(record.payload)
        return {
            "group": self.group(redrive.group_id),
            "letter": redrive.letter_offset,
            "topic": self.topic(redrive.topic_id),
            "delivery": redrive.id,
            "letter_at": redrive.letter,
        }

    def _timer(self, record: Record) -> Fields:
        timer = decode_timer(record.payload)
        fields: Fields = {"message_at": timer.position, "was_due_at_ms": timer.due_ms}
        if timer.new_due_ms:
            return fields | {"due_at_ms": timer.new_due_ms}
        return fields | {"cancelled": True}

    def _config(self, record: Record) -> Fields:
        config = decode_config(record.payload)
        is_topic, is_put = config.kind == CONFIG_TOPIC, config.operation == CONFIG_PUT
        names = self._topics if is_topic else self._groups
        fields: Fields = {"what": "topic" if is_topic else "group"}
        if not is_put:
            return fields | {"deleted": names.get(config.id, f"#{config.id}")}
        body = json.loads(config.body)
        names[config.id] = body["name"]
        fields["name"] = body["name"]
        if is_topic:
            return fields | {
                "topic_type": TopicType(body["type"]).name.lower(),
                "queues": body["queue_count"],
                "topic_epoch": body["epoch"],
            }
        return fields | {
            "fifo": body["fifo"],
            "on_dead": OnDead(body.get("on_dead", OnDead.SKIP)).name.lower(),
            "max_attempts": body["max_attempts"],
            "backoff": body["backoff"],
        }

    def _offset(self, record: Record) -> Fields:
        offset = decode_offset(record.payload)
        return {
            "group": self.group(offset.group_id),
            "topic": self.topic(offset.topic_id),
            "queue": offset.queue_id,
            "next_offset": offset.offset,
            **({"act": _OFFSET_ACTS.get(offset.act, str(offset.act))} if offset.act else {}),
        }

    def _reset(self, record: Record) -> Fields:
        reset = decode_reset(record.payload)
        return {
            "group": self.group(reset.group_id),
            "topic": self.topic(reset.topic_id),
            "next_offsets": list(reset.offsets),
        }

    def _client(self, record: Record) -> Fields:
        name = self._clients[record.position] = decode_client(record.payload)
        return {"client": name}

    def _move(self, record: Record) -> Fields:
        move = decode_move(record.payload)
        if move.kind == MOVE_HISTORY:
            attempts = decode_history(bytes(move.inner)).attempts
            return {"what": "history", "delivery": move.ids[0], "attempts": len(attempts)}
        inner = original(record)
        fields: Fields = {"what": inner.type.name.lower(), "message_at": move.old}
        if move.due_ms:
            fields["due_at_ms"] = move.due_ms
        if move.ids:
            fields["deliveries"] = list(move.ids)
        for entry in move.entries[:1]:
            fields |= {"topic": self.topic(entry.topic_id), "queue": entry.queue_id}
        if move.entries:
            fields["offsets"] = [entry.queue_offset for entry in move.entries]
        return fields

    def topic(self, topic_id: int) -> str:
        return self._topics.get(topic_id, f"#{topic_id}")

    def group(self, group_id: int) -> str:
        return self._groups.get(group_id, f"#{group_id}")

    def client_name(self, position: int) -> str:
        return self._clients.get(position, f"@{position}")


def _access(record: Record) -> Fields:
    """All of a user but its secret."""
    access = decode_change(record.payload)
    if access.operation != PUT:
        return {"deleted_user": access.body.decode()}
    user = decode_user(access.body)
    grants = [f"{one.kind}:{one.pattern}:{'+'.join(one.rights)}" for one in user.grants]
    return {
        "user": user.access_key,
        "admin": user.admin,
        "disabled": user.disabled,
        "rotated_at_ms": user.rotated_ms,
        "grants": grants,
    }


def _lite(record: Record, reader: RecordReader) -> Fields:
    lite = decode_lite(record.payload)
    fields: Fields = {"topic": reader.topic(lite.topic_id)}
    if lite.kind == LITE_EXPIRED:
        what, word = "lite topics have expired", "upto"
    else:
        fields["group"] = reader.group(lite.group_id)
        what, word = "goes on elsewhere", "from"
    rows = [f"{key:016x}:{offset}" for key, offset in lite.rows]
    return fields | {"what": what, word: rows}


def _txn(record: Record) -> Fields:
    txn = decode_txn(record.payload)
    if txn.kind == TXN_CHECKED:
        checked: Fields = {"message_at": txn.position, "what": "a producer was asked"}
        return checked | {"checks": txn.checks, "check_at_ms": txn.due_ms}
    cause = CAUSES.get(txn.cause, str(txn.cause))
    return {"message_at": txn.position, "what": "rolled back", "cause": cause}


def _drop(record: Record, topic: Callable[[int], str]) -> Fields:
    drop = decode_drop(record.payload)
    if drop.kind == DROP_BASE:
        part = f"{drop.part + 1}/{drop.parts}"
        return {"what": "segments", "log_begins_at": drop.start, "part": part}
    fields: Fields = {"what": "expired", "queues": len(drop.queues)}
    for queue in drop.queues[:1]:
        fields["topic"] = topic(queue.topic_id)
        fields |= {"queue": queue.queue_id, "first_offset": queue.first}
    return fields


def _ordered(record: Record, names: RecordReader) -> Fields:
    lease = decode_lease_ordered(record.payload)
    fields: Fields = {"group": names.group(lease.group_id), "topic": names.topic(lease.topic_id)}
    if lease.queue_id != NO_QUEUE:
        fields |= {"queue": lease.queue_id, "next_offset": lease.next_offset}
    for act, name in _ORDERED_ACTS.items():
        places = [f"{row.queue_id}:{row.offset}" for row in lease.rows if row.act == act]
        if places:
            fields[name] = places
    taken = sum(row.act == ORDERED_TAKE for row in lease.rows)
    if taken:
        fields |= {
            "deliveries": [lease.first_id + index for index in range(taken)],
            "invisible_ms": lease.invisible_ms,
            "auto_renew": bool(lease.flags & LEASE_AUTO_RENEW),
            "client": names.client_name(lease.client),
        }
    return fields


def _lost(record: Record) -> Fields:
    lost = decode_lost(record)
    return {"lost_bytes": lost.length, "given_up_at_ms": lost.given_up_ms}


def place(record: Record, names: RecordReader) -> Fields:
    """Where a message belongs, though its body may make no sense; of other records nothing."""
    if record.type not in (RecordType.MESSAGE, RecordType.HALF):
        return {}
    head = decode_message_head(record.payload)
    fields: Fields = {"topic": names.topic(head.topic_id)}
    if head.queue_id != QUEUE_UNSET:
        fields |= {"queue": head.queue_id, "offset": head.queue_offset}
    return fields


def _limit(record: Record) -> Fields:
    change = decode_change(record.payload)
    limit = decode_limit(change.body)
    fields: Fields = {"scope": limit.scope.name.lower(), "name": limit.name}
    if change.operation != PUT:
        return fields | {"unset": True}
    return fields | {field: most for field in FIELDS if (most := getattr(limit, field))}
