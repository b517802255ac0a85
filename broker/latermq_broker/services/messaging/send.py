"""SendMessage: check, take apart, store, answer entry by entry.

All messages of a request are stored, or none: a refusal carries the status and no entries. Plain
messages take a shorter way to the same result (`wire_plain`).
Protocol: service.proto, SendMessage.
"""

from collections.abc import Sequence
from typing import Final

from latermq_broker.catalog.shares import key_of
from latermq_broker.config.config import RECORD_BODY_OVERHEAD_BYTES
from latermq_broker.deferred import Later
from latermq_broker.engine.outcome.attempts import HISTORY_BYTES_MAX
from latermq_broker.engine.state.model import (
    NO_PRIORITY,
    Outgoing,
    PlainMessages,
    Sent,
    Topic,
    level_ms,
)
from latermq_broker.errors import (
    BodyTooLargeError,
    PropertiesTooLargeError,
)
from latermq_broker.services.call import names
from latermq_broker.services.call.answers import (
    CLIENT_ID_HEADER,
    Caller,
    reader,
)
from latermq_broker.services.call.handler import Call
from latermq_broker.services.call.names import PROPERTIES_BYTES_MAX
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.clients.shards import Shards
from latermq_broker.services.messaging import validate
from latermq_broker.services.wire import wire
from latermq_broker.services.wire.wire_messages import (
    DEDUP_PROPERTY,
    DELAY,
    FIFO,
    NORMAL,
    TRANSACTION,
    StoreSide,
    message_type,
    plain_response,
    sent_response,
)
from latermq_broker.services.wire.wire_plain import PlainReader
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

# A dead letter's record holds the message and its history, so the history's room is kept free.
_RECORD_HEAD_BYTES: Final = 1_024
_OVERHEAD_BYTES_MAX: Final = RECORD_BODY_OVERHEAD_BYTES - HISTORY_BYTES_MAX - _RECORD_HEAD_BYTES
assert _OVERHEAD_BYTES_MAX > PROPERTIES_BYTES_MAX + 4_096
_SEGMENT_HEAD_BYTES: Final = 8_192
_RECORD_BYTES: Final = 128  # at most so much is stored beside a message's two slices
_KEY_BYTES: Final = 8  # and for each of its keys
tuple_new: Final = tuple.__new__  # as Outgoing(...), without its keyword handling


class SendService:
    def __init__(self, rooms: Rooms, shards: Shards | None = None) -> None:
        self._shards = shards
        self._engine = rooms.engine
        self._committer = rooms.committer
        config = rooms.config
        self._rules = validate.MessageRules(config)
        self._plain = PlainReader(config.store.message_body_bytes_max)
        self._read_whole = reader(service_pb2.SendMessageRequest)
        self._messages_max = config.server.send_messages_max
        self._levels_ms = config.delivery.delay_levels_ms
        self._group_bytes_max = config.store.segment_bytes - _SEGMENT_HEAD_BYTES

    def read_send_message(
        self, data: bytes, call: Call
    ) -> PlainMessages | service_pb2.SendMessageRequest:
        """Read plain messages in one pass, others by protobuf. Raises BadRequestError."""
        if call.metadata(wire.DELAY_LEVEL_HEADER) is None:
            now_ms = self._engine.wall.at(self._committer.now_ms())
            side = StoreSide(now_ms=now_ms, call=call)
            messages = self._plain.read(data, side, self._messages_max)
            if messages is not None:
                return messages
        request: service_pb2.SendMessageRequest = self._read_whole(data, call)
        return request

    def _send_plain(self, messages: PlainMessages, data: bytes, call: Call) -> Later[bytes]:
        now_ms = self._committer.now_ms()
        topic = self._engine.catalog.topic(messages.topic)
        if self._shards is not None:
            ordered = any(messages.message_groups)
            self._shards.require_home(messages.topic, topic, call, ordered=ordered)
        outgoing = self._special(messages, topic, now_ms) if messages.message_groups else []
        if not outgoing:
            validate.check_type(topic, NORMAL)
        count = len(messages.ids)
        keys = sum(map(len, messages.keys))
        self._check_group(sum(map(len, messages.stored)), count, keys)
        self._admit(call, count, data, now_ms)
        if outgoing:
            return self._sent(outgoing, self._engine.send(outgoing, now_ms, call.user))
        sent = self._engine.plain.send(messages, now_ms, call.user)
        return self._committer.acknowledged(plain_response(messages.ids, sent.queue_offset))

    def _special(self, messages: PlainMessages, topic: Topic | None, now_ms: int) -> list[Outgoing]:
        """Take those apart of which some have a message group, or a delivery time.

        Raises TypeConflictError, IllegalDeliveryTimeError.
        """
        wall_ms = self._engine.wall.at(now_ms)
        outgoing: list[Outgoing] = []
        for index, stored in enumerate(messages.stored):
            deliver_at_ms, group = messages.deliver_at_ms[index], messages.message_groups[index]
            if deliver_at_ms:
                self._rules.check_delivery(deliver_at_ms, wall_ms)
            validate.check_type(topic, DELAY if deliver_at_ms else FIFO if group else NORMAL)
            fields = (
                messages.topic,
                stored[: messages.rest_bytes[index]],
                stored[messages.rest_bytes[index] :],
                messages.ids[index].decode(),
                messages.tags[index].decode(),
                tuple([key.decode() for key in messages.keys[index]]),
                deliver_at_ms,
                0,
                0,
                group,
                NO_PRIORITY,
                "",
                "",
            )
            outgoing.append(tuple_new(Outgoing, fields))
        return outgoing

    def _admit(self, call: Call, count: int, data: bytes, now_ms: int) -> None:
        """Admit messages to the log, by disk and limits.

        Raises:
            TooManyRequestsError: the disk is behind, or the client sends more than it may.
        """
        self._committer.admit()
        if self._engine.limits.table.sends:
            client_id = (call.metadata(CLIENT_ID_HEADER) or "").strip()
            self._engine.gate.admit(client_id, key_of(call.user), count, len(data), now_ms)

    def send_message(
        self, request: PlainMessages | service_pb2.SendMessageRequest, caller: Caller
    ) -> Later[bytes]:
        """Store the messages of one topic.

        Raises:
            RequestError: as `validate` says; nothing was stored.
            ElsewhereError: another shard is the home of what is sent.
            LiteTopicQuotaError: one lite topic too many.
            TopicNotFoundError: it does not exist and is not made on demand.
            TooManyRequestsError, StoreFullError: no room now.
        """
        if isinstance(request, PlainMessages):
            return self._send_plain(request, caller.data, caller.call)
        now_ms = self._committer.now_ms()
        halves = validate.are_halves(request.messages)
        outgoing = self._outgoing(request.messages, caller, now_ms)
        self._admit(caller.call, len(outgoing), caller.data, now_ms)
        send = self._engine.transactions.send if halves else self._engine.send
        return self._sent(outgoing, send(outgoing, now_ms, caller.call.user))

    def _sent(self, outgoing: Sequence[Outgoing], sent: Sequence[Sent]) -> Later[bytes]:
        """Tell where the messages are, once they are stored as was promised.

        The transaction id of a half message is its message id, as in what is delivered of it.
        """
        if any(each.transaction_id for each in sent):
            sent = [
                each._replace(transaction_id=message.message_id)
                for each, message in zip(sent, outgoing, strict=True)
            ]
        if self._shards is not None:
            sent = [
                each._replace(
                    pending_id=self._shards.handle(each.pending_id),
                    transaction_id=self._shards.handle(each.transaction_id),
                )
                for each in sent
            ]
        return self._committer.acknowledged(sent_response(outgoing, sent))

    def _outgoing(
        self, messages: Sequence[definition_pb2.Message], caller: Caller, now_ms: int
    ) -> list[Outgoing]:
        """Take the messages apart, when everything in all of them is checked."""
        topic_name = validate.check_batch(messages, self._messages_max)
        level = min(wire.delay_level(caller.call), len(self._levels_ms))
        wall_ms = self._engine.wall.at(now_ms)
        for message in messages:
            self._rules.check(message, wall_ms)
        topic = self._engine.catalog.topic(topic_name)
        kinds = [message_type(message, level) for message in messages]
        if self._shards is not None:
            ordered = any(
                message.system_properties.message_group or DEDUP_PROPERTY in message.user_properties
                for message in messages
            )
            self._shards.require_home(topic_name, topic, caller.call, ordered=ordered)
        for message, kind in zip(messages, kinds, strict=True):
            validate.check_pairs(message, kind, level)
            ranked = message.system_properties.HasField("priority")
            validate.check_type(topic, kind, ranked=ranked)
        validate.check_halves(kinds)
        level_due_ms = wall_ms + level_ms(level, self._levels_ms) if level else 0
        side = StoreSide(now_ms=wall_ms, call=caller.call)
        outgoing: list[Outgoing] = []
        for message, kind in zip(messages, kinds, strict=True):
            deliver_at_ms = 0
            if kind == DELAY:
                asked = message.system_properties.delivery_timestamp
                deliver_at_ms = level_due_ms or max(wire.timestamp_ms(asked), 0)
            first_check_ms = validate.first_check_ms(message) if kind == TRANSACTION else 0
            body_bytes = len(message.body)
            stored = side.outgoing(
                topic_name, message, kind, deliver_at_ms=deliver_at_ms, delay_level=level
            )
            if first_check_ms:
                stored = stored._replace(first_check_ms=first_check_ms)
            size = len(stored.rest) + len(stored.sys)
            _check_overhead(size - body_bytes)
            outgoing.append(stored)
        stored_bytes = sum(len(stored.rest) + len(stored.sys) for stored in outgoing)
        stored_bytes += sum(_dedup_bytes(stored) for stored in outgoing if stored.dedup_id)
        keys = sum(len(stored.keys) for stored in outgoing)
        self._check_group(stored_bytes, len(outgoing), keys)
        return outgoing

    def _check_group(self, stored_bytes: int, count: int, keys: int) -> None:
        """Check that a segment can hold the messages together.

        Raises:
            BodyTooLargeError: no segment holds them all.
        """
        total_bytes = stored_bytes + _RECORD_BYTES * count + _KEY_BYTES * keys
        if total_bytes > self._group_bytes_max:
            raise BodyTooLargeError(
                f"the messages of one request take {total_bytes} bytes together, at most "
                f"{self._group_bytes_max} can be stored at once"
            )


def _dedup_bytes(message: Outgoing) -> int:
    """Count what is stored of its dedup id, at most: both ids, a user, and a record for them."""
    return 3 * _RECORD_BYTES + names.utf8_bytes(message.dedup_id + message.message_id)


def _check_overhead(size: int) -> None:
    """Check what no single rule bounds: ids, hosts, trace context, fields of newer protocols."""
    if size > _OVERHEAD_BYTES_MAX:
        raise PropertiesTooLargeError(
            f"everything but the body has {size} bytes, at most {_OVERHEAD_BYTES_MAX} are allowed"
        )
