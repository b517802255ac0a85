"""Admin RPCs about messages, and those that ask a client. Protocol: admin.proto."""

from collections.abc import Iterator
from secrets import token_hex
from typing import Final

from latermq_broker.engine.views.message_query import FROM_THE_END, Found
from latermq_broker.errors import (
    BadRequestError,
    IllegalDeliveryTimeError,
    MessageNotFoundError,
)
from latermq_broker.services.admin.admin_fields import known_client, named_group, named_topic
from latermq_broker.services.call.answers import Caller, ok_status
from latermq_broker.services.call.paging import after, page_token
from latermq_broker.services.clients.replies import Replies
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.messaging.send import SendService
from latermq_broker.services.wire import wire
from latermq_proto.apache.rocketmq.v2 import admin_pb2, definition_pb2, service_pb2

MESSAGES_DEFAULT: Final = 32
MESSAGES_MAX: Final = 64
REPLY_BYTES_MAX: Final = 3 << 20  # a first message goes whatever its size; scroll_id goes on


class AdminMessages:
    def __init__(self, rooms: Rooms, send: SendService, replies: Replies) -> None:
        self._engine = rooms.engine
        self._committer = rooms.committer
        self._sessions = rooms.sessions
        self._send = send
        self._replies = replies

    async def query_message(
        self, request: admin_pb2.ListMessageRequest, caller: Caller
    ) -> admin_pb2.ListMessageResponse:
        """Find messages of a topic by id or key, the newest first.

        scroll_id comes back; where there is more than one answer holds it is the one to go on with.
        Raises:
            BadRequestError: no topic, neither id nor key, or numbers that are none.
            TopicNotFoundError, MessageNotFoundError, IndexRebuildingError.
        """
        topic = named_topic(request)
        by = request.WhichOneof("search_key")
        if by not in ("message_id", "message_key") or not getattr(request, by):
            raise BadRequestError("message_id or message_key is required")
        if request.max_message_nums < 0:
            raise BadRequestError(f"max_message_nums {request.max_message_nums} is negative")
        wanted = min(request.max_message_nums or MESSAGES_DEFAULT, MESSAGES_MAX)
        begin_ms = max(0, wire.timestamp_ms(request.begin_timestamp))
        end_ms = max(0, wire.timestamp_ms(request.end_timestamp))
        response = admin_pb2.ListMessageResponse(status=ok_status(), scroll_id=request.scroll_id)
        size = 0
        for hit in self._each(request, topic, begin_ms, end_ms):
            await caller.lasting.turn()
            if hit is None:  # looked at much, and there is more
                if caller.call.cancelled:
                    break
                continue
            message = self._message(hit, request.topic)
            if by == "message_id":
                exact = message.system_properties.message_id == request.message_id
            else:
                exact = request.message_key in message.system_properties.keys
            stored_ms = self._engine.wall.time_of_day(hit.stored_ms)
            in_time = begin_ms <= stored_ms and (not end_ms or stored_ms <= end_ms)
            if not exact or not in_time or self._engine.lives.half(hit):
                continue
            size += message.ByteSize()
            full = len(response.messages) >= wanted or size > REPLY_BYTES_MAX
            if full and response.messages:
                response.scroll_id = page_token(str(hit.position + 1))
                break
            response.messages.append(message)
        if not response.messages:
            raise MessageNotFoundError(f"topic {topic} has no such message")
        return response

    def _each(
        self, request: admin_pb2.ListMessageRequest, topic: str, begin_ms: int, end_ms: int
    ) -> Iterator[Found | None]:
        text = after(request.scroll_id) if request.scroll_id else ""
        if text and not (text.isascii() and text.isdigit() and len(text) < 20):
            raise BadRequestError("the scroll_id is not one of ours")
        below = int(text) if text else FROM_THE_END
        seen: set[int] = set()
        while True:
            if request.message_id:
                hits, below = self._engine.messages.by_id(request.message_id, topic, below)
            else:
                hits, below = self._engine.messages.by_key(
                    topic, request.message_key, begin_ms, end_ms, below
                )
            for hit in hits:
                if hit.first_position not in seen:
                    seen.add(hit.first_position)
                    yield hit
            if not below:
                return
            yield None

    def _message(self, hit: Found, topic: definition_pb2.Resource) -> definition_pb2.Message:
        message = definition_pb2.Message.FromString(hit.rest)
        message.topic.CopyFrom(topic)
        system = message.system_properties
        system.ParseFromString(hit.sys)
        if hit.queue_id >= 0:
            system.queue_id, system.queue_offset = hit.queue_id, hit.queue_offset
        if hit.origin_topic:
            system.dead_letter_queue.topic = hit.origin_topic
            system.dead_letter_queue.message_id = system.message_id
        return message

    async def admin_send_message(
        self, request: admin_pb2.AdminSendMessageRequest, caller: Caller
    ) -> admin_pb2.AdminSendMessageResponse:
        """Store a message as if a producer had sent it; with an id of the broker's unless it has
        one. The answer has the id of the first one where its dedup id was known.

        Raises:
            BadRequestError: no topic, or a transaction.
            IllegalDeliveryTimeError: a delivery time in the past; stricter than SendMessage.
            RequestError: as SendMessage.
        """
        named_topic(request)
        message = definition_pb2.Message(
            topic=request.topic,
            body=request.body,
            user_properties=request.user_properties,
            system_properties=request.system_properties,
        )
        system = message.system_properties
        if request.HasField("tag"):
            system.tag = request.tag
        if request.key:
            system.keys.append(request.key)
        system.message_id = system.message_id or f"01{token_hex(16).upper()}"
        if not system.HasField("born_timestamp"):
            system.born_timestamp.FromMilliseconds(self._wall_ms())
        if not system.body_encoding:
            system.body_encoding = definition_pb2.IDENTITY
        if system.message_type == definition_pb2.TRANSACTION:
            raise BadRequestError("a transaction is a producer's: nobody could end this one")
        if system.HasField("delivery_timestamp"):
            due_ms = wire.timestamp_ms(system.delivery_timestamp)
            if due_ms < self._wall_ms():
                raise IllegalDeliveryTimeError(f"delivery time {due_ms} ms lies in the past")
        # As bytes once more: what comes in is learned from by its form.
        sent = service_pb2.SendMessageRequest(messages=[message])
        data = sent.SerializeToString()
        answer = await self._send.send_message(sent, Caller(caller.client_id, caller.call, data))
        (entry,) = service_pb2.SendMessageResponse.FromString(answer).entries
        return admin_pb2.AdminSendMessageResponse(status=ok_status(), message_id=entry.message_id)

    async def verify_message(
        self, request: admin_pb2.VerifyMessageRequest, caller: Caller
    ) -> admin_pb2.VerifyMessageResponse:
        """Have a connected push consumer consume a stored message; its status is the answer's.

        Raises:
            BadRequestError: group, client, topic and message id are all required.
            MessageNotFoundError, TopicNotFoundError, IndexRebuildingError.
            NotFoundError: the client is not connected. InternalServerError: it does not answer.
        """
        group, topic = named_group(request), named_topic(request)
        session = known_client(self._sessions, request.client_id, group)
        if not request.message_id:
            raise BadRequestError("message_id is required")
        hits, _ = self._engine.messages.by_id(request.message_id, topic)
        whole = [self._message(hit, request.topic) for hit in hits]
        same = [hit for hit in whole if hit.system_properties.message_id == request.message_id]
        if not same:
            raise MessageNotFoundError(f"topic {topic} has no message {request.message_id}")
        message = same[0]
        message.system_properties.delivery_attempt = 1
        nonce = self._replies.nonce()
        question = service_pb2.TelemetryCommand(
            verify_message_command=service_pb2.VerifyMessageCommand(nonce=nonce, message=message)
        )
        answer = await self._replies.ask(session, nonce, question)
        return admin_pb2.VerifyMessageResponse(status=answer.status)

    async def print_thread_stack_trace(
        self, request: admin_pb2.PrintThreadStackTraceRequest, caller: Caller
    ) -> admin_pb2.PrintThreadStackTraceResponse:
        """Ask what the threads of a connected client do.

        Raises:
            BadRequestError: no client id. NotFoundError: it is not connected.
            InternalServerError: it does not answer; some kinds of clients never do.
        """
        group = wire.group_name(request.group) if request.group.name else ""
        session = known_client(self._sessions, request.client_id, group)
        nonce = self._replies.nonce()
        question = service_pb2.TelemetryCommand(
            print_thread_stack_trace_command=service_pb2.PrintThreadStackTraceCommand(nonce=nonce)
        )
        answer = await self._replies.ask(session, nonce, question)
        trace = answer.thread_stack_trace
        response = admin_pb2.PrintThreadStackTraceResponse(
            status=answer.status if answer.status.code else ok_status()
        )
        if trace.HasField("thread_stack_trace"):
            response.thread_stack_trace = trace.thread_stack_trace
        return response

    def _wall_ms(self) -> int:
        return self._engine.wall.at(self._committer.now_ms())
