"""A sent message → what is stored; what became of it → the response.

On send a v2.Message is split in two slices that are stored as they are (`Outgoing.rest`, `.sys`)
and never encoded again. Everything a client must not decide is dropped here: receipt handle, place,
attempt (C++ writes a truncated clock into it), store fields, digest. The digest is MD5 in
upper-case hex: the clients disagree on the text form of a CRC32, and C++ dies of a mismatch.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Protocol

from latermq_broker.engine.state.model import NO_PRIORITY, Outgoing, Sent
from latermq_broker.services.wire import wire
from latermq_broker.services.wire.wire_fields import (
    bytes_field,
    text_field,
    timestamp,
    varint,
    varints,
)
from latermq_proto.apache.rocketmq.v2 import definition_pb2

NORMAL: Final = definition_pb2.NORMAL
FIFO: Final = definition_pb2.FIFO
DELAY: Final = definition_pb2.DELAY
TRANSACTION: Final = definition_pb2.TRANSACTION
LITE: Final = definition_pb2.LITE
PRIORITY: Final = definition_pb2.PRIORITY

# Not the client's to say, or written anew by `StoreSide`.
_NOT_THE_CLIENTS: Final = (
    "body_digest", "body_encoding", "message_type", "store_timestamp", "store_host",
    "receipt_handle", "queue_id", "queue_offset", "invisible_duration", "delivery_attempt",
    "dead_letter_queue",
)  # fmt: skip

# Fields that mean something to some message types only and are dropped on others: a priority on a
# message of a message group is no error in RocketMQ either.
_OWNED_FIELDS: Final = {
    "delivery_timestamp": (DELAY,),
    "message_group": (FIFO, DELAY, TRANSACTION),
    "priority": (PRIORITY, DELAY),  # what is delayed comes by its priority when it is due
    "lite_topic": (LITE,),
    "orphaned_transaction_recovery_duration": (TRANSACTION,),
}

_DROPPED_FIELDS: Final = {
    kind: _NOT_THE_CLIENTS
    + tuple(name for name, owners in _OWNED_FIELDS.items() if kind not in owners)
    for kind in (NORMAL, FIFO, DELAY, TRANSACTION, LITE, PRIORITY)
}

# User properties that RocketMQ's consumers see beside the fields that hold the same: the message
# group, and the message id of what belonged to a transaction.
MESSAGE_GROUP_PROPERTY: Final = "__SHARDINGKEY"
TRANSACTION_PROPERTY: Final = "__transactionId__"
# A user property by which any client gives a message a dedup id (docs/protocol.md).
DEDUP_PROPERTY: Final = "LATERMQ_DEDUP_ID"
DUPLICATE_FIELD: Final = bytes_field(b"\x0a", wire.status(definition_pb2.OK, "DUPLICATE"))

DIGEST_HEAD: Final = b"\x22\x24\x08\x02\x12\x20"  # body_digest, 36 bytes: MD5, 32 hex digits


def message_type(message: definition_pb2.Message, delay_level: int) -> definition_pb2.MessageType:
    """Tell what the message is, told by what it carries.

    Only TRANSACTION is taken from the field.
    """
    properties = message.system_properties
    if properties.message_type == TRANSACTION:
        return TRANSACTION
    if delay_level or properties.HasField("delivery_timestamp"):
        return DELAY
    if properties.message_group:
        return FIFO
    if properties.HasField("priority"):
        return PRIORITY
    if properties.lite_topic:
        return LITE
    return NORMAL


class Ends(Protocol):
    """The two ends of the connection that a message came by: of a `Call`, or none."""

    @property
    def local(self) -> str:
        """Return the address that was called; "" when there is none."""

    @property
    def peer(self) -> str:
        """Return the caller's address; "" when there is none."""


class StoreSide:
    """What the broker adds to every message of one request.

    The caller's address stands in for the born host of a message that names none, the address it
    called is the store host.
    """

    __slots__ = ("_birth", "_call", "_now_ms")

    def __init__(self, *, now_ms: int, call: Ends) -> None:
        self._now_ms = now_ms
        self._call = call
        self._birth = b""

    def birth(self) -> bytes:
        """Encode the born timestamp, as a field, of messages that name none."""
        if not self._birth:
            self._birth = bytes_field(b"\x3a", timestamp(self._now_ms))
        return self._birth

    def outgoing(
        self,
        topic: str,
        message: definition_pb2.Message,
        kind: definition_pb2.MessageType,
        *,
        deliver_at_ms: int,
        delay_level: int,
    ) -> Outgoing:
        """Take the message apart into the form that is stored: it is incomplete afterwards.

        Args:
            deliver_at_ms: of a DELAY message; ignored for others. Not in the future: at once.
            delay_level: 0 for none.
        """
        properties = message.system_properties
        zipped = properties.body_encoding == definition_pb2.GZIP
        for name in _DROPPED_FIELDS[kind]:
            properties.ClearField(name)
        if kind == DELAY:
            _settle_delivery(properties, deliver_at_ms, delay_level)
        self._settle_birth(properties)
        keys = tuple(properties.keys)
        if "" in keys:
            keys = tuple(filter(None, keys))
            properties.ClearField("keys")
            properties.keys.extend(keys)
        if properties.message_group:
            message.user_properties[MESSAGE_GROUP_PROPERTY] = properties.message_group
        if kind == TRANSACTION:
            message.user_properties[TRANSACTION_PROPERTY] = properties.message_id
        sys = self.completed(properties.SerializeToString(), message.body, kind, zipped=zipped)
        tag, message_id = properties.tag, properties.message_id
        message_group = properties.message_group
        priority = properties.priority if properties.HasField("priority") else NO_PRIORITY
        lite_topic = properties.lite_topic
        dedup_id = ""
        if message.user_properties:
            dedup_id = message.user_properties.get(DEDUP_PROPERTY, "")
        message.ClearField("topic")
        message.ClearField("system_properties")
        return Outgoing(
            topic=topic,
            rest=message.SerializeToString(),
            sys=sys,
            message_id=message_id,
            tag=tag,
            keys=keys,
            deliver_at_ms=deliver_at_ms,
            delay_level=delay_level,
            message_group=message_group,
            priority=priority,
            lite_topic=lite_topic,
            dedup_id=dedup_id,
        )

    def completed(
        self,
        kept: bytes,
        body: bytes,
        kind: definition_pb2.MessageType = NORMAL,
        *,
        zipped: bool,
    ) -> bytes:
        """Complete system properties as stored.

        What is kept of the client's, and what the broker adds.
        """
        return b"".join((kept, DIGEST_HEAD, body_digest(body), self.ending(kind, zipped=zipped)))

    def ending(self, kind: definition_pb2.MessageType = NORMAL, *, zipped: bool) -> bytes:
        """Encode what follows the digest, equal for all messages of a request alike so far."""
        return _ending(self._now_ms, self._call.local, kind, zipped)

    def _settle_birth(self, properties: definition_pb2.SystemProperties) -> None:
        born = properties.born_timestamp
        if not (properties.HasField("born_timestamp") and wire.is_proper(born)):
            wire.set_timestamp(properties.born_timestamp, self._now_ms)
        if not properties.born_host:
            properties.born_host = self._call.peer


@lru_cache(maxsize=16)
def _ending(now_ms: int, store_host: str, kind: definition_pb2.MessageType, zipped: bool) -> bytes:
    """Encode body_encoding, message_type, store_timestamp, store_host.

    For requests of a millisecond.
    """
    encoding = b"\x28\x02\x30" if zipped else b"\x28\x01\x30"
    stored_at = bytes_field(b"\x4a", timestamp(now_ms))
    return b"".join((encoding, varint(kind), stored_at, text_field(b"\x52", store_host)))


def body_digest(body: bytes) -> bytes:
    return hashlib.md5(body, usedforsecurity=False).hexdigest().upper().encode()


def _settle_delivery(
    properties: definition_pb2.SystemProperties, deliver_at_ms: int, delay_level: int
) -> None:
    """Show a level's due time as the delivery timestamp; mend a malformed one."""
    if delay_level or not wire.is_proper(properties.delivery_timestamp):
        wire.set_timestamp(properties.delivery_timestamp, max(deliver_at_ms, 0))


def sent_response(outgoing: Sequence[Outgoing], sent: Sequence[Sent]) -> bytes:
    """Make the OK response: one entry per message in their order (clients index by position).

    The transaction id of what belongs to no transaction is the message id, as in RocketMQ; the
    recall handle names the wait of a delayed message and is empty for others. Of a message that
    was not stored because of its dedup id, all is said of the first one that had it.
    """
    parts = [wire.OK_FIELD]
    for index, place in enumerate(sent):
        message = outgoing[index]
        message_id = (place.first_id or message.message_id).encode()
        size = varint(len(message_id))
        status = DUPLICATE_FIELD if place.first_id else wire.OK_FIELD
        entry = [status, b"\x12", size, message_id]
        if place.transaction_id:
            entry.append(text_field(b"\x1a", place.transaction_id))
        else:
            entry += (b"\x1a", size, message_id)
        if place.queue_offset > 0:
            entry += (b"\x20", varint(place.queue_offset))
        if place.pending_id:
            entry.append(text_field(b"\x2a", place.pending_id))
        parts.append(bytes_field(b"\x12", b"".join(entry)))
    return b"".join(parts)


def plain_response(ids: Sequence[bytes], queue_offset: int) -> bytes:
    """Make the OK response for messages of now that stand one after another in one queue.

    Args:
        ids: message ids, UTF-8.
    """
    parts = [wire.OK_FIELD]
    id_bytes = place_bytes = -1
    head = again = b""
    for index, place in enumerate(varints(queue_offset, len(ids))):
        message_id = ids[index]
        if len(message_id) != id_bytes or len(place) != place_bytes:
            id_bytes, place_bytes = len(message_id), len(place)
            size = varint(id_bytes)
            entry_bytes = 2 * (1 + len(size) + id_bytes) + 1 + place_bytes + len(wire.OK_FIELD)
            head = b"".join((b"\x12", varint(entry_bytes), wire.OK_FIELD, b"\x12", size))
            again = b"\x1a" + size
        parts += (head, message_id, again, message_id, b"\x20", place)
    return b"".join(parts)
