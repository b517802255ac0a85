"""How a lease ends or goes on: ack, change of the invisible duration, forward to the dead letters.

INVALID_RECEIPT_HANDLE tells a client to give up; on anything else but OK it tries again every
second, without end. So a handle that is none gets that code, and repeats are answered OK. A handle
settles under its own topic only: rights are asked for the topic that the request names. None of the
three makes a topic or a group.
"""

from typing import Final

from latermq_broker.deferred import Later
from latermq_broker.errors import (
    BadRequestError,
)
from latermq_broker.services.call import names
from latermq_broker.services.call.answers import (
    Caller,
    common_status,
    ok_status,
    status_of,
)
from latermq_broker.services.call.bounds import Bounds
from latermq_broker.services.call.handler import Call
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.wire import wire
from latermq_broker.services.wire.wire_ack import AckRequest, ack_response, read_ack
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

OK: Final = ok_status()


class AckService:
    def __init__(self, rooms: Rooms) -> None:
        self._engine = rooms.engine
        self._committer = rooms.committer
        self._config = rooms.config.delivery
        self._bounds = Bounds(rooms.config)

    def read_ack_message(self, data: bytes, call: Call) -> AckRequest:
        return read_ack(data)

    def ack_message(self, request: AckRequest, caller: Caller) -> Later[bytes]:
        """Have the messages done for the group: one result per entry, in their order.

        Raises:
            IllegalTopicError, IllegalGroupError: as their names say.
            BadRequestError: no entries.
        """
        names.check_topic(request.topic)
        names.check_group(request.group)
        if not request.entries:
            raise BadRequestError("no message to acknowledge")
        now_ms = self._committer.now_ms()
        errors = self._engine.ack(request.group, request.handles, now_ms, request.topic)
        if not any(errors):
            return self._committer.acknowledged(ack_response(wire.OK_STATUS, request.entries))
        statuses = [OK if error is None else status_of(error) for error in errors]
        response = ack_response(
            common_status(statuses).SerializeToString(),
            request.entries,
            [status.SerializeToString() for status in statuses],
        )
        return self._committer.acknowledged(response)

    def refuse_ack_message(self, status: definition_pb2.Status, request: AckRequest) -> bytes:
        """Give each entry the status of all: Rust reads the first one unseen."""
        return ack_response(status.SerializeToString(), request.entries)

    def refuse_change_invisible_duration(
        self, status: definition_pb2.Status, request: service_pb2.ChangeInvisibleDurationRequest
    ) -> service_pb2.ChangeInvisibleDurationResponse:
        """Give back the handle that came: Python and Go read it before the status."""
        return service_pb2.ChangeInvisibleDurationResponse(
            status=status, receipt_handle=request.receipt_handle
        )

    async def change_invisible_duration(
        self, request: service_pb2.ChangeInvisibleDurationRequest, caller: Caller
    ) -> service_pb2.ChangeInvisibleDurationResponse:
        """Make a lease longer, shorter, or end it at once (0).

        An extension or, for push consumers, a nack; with CHANGE_HEADER what that says.

        Raises:
            IllegalTopicError, IllegalGroupError: as their names say.
            IllegalInvisibleTimeError: below 0 or above 12 h.
            InvalidReceiptHandleError: acknowledged, expired, superseded, of another topic, or
                never ours.
        """
        topic = wire.topic_name(request.topic)
        group = wire.group_name(request.group)
        invisible_ms = wire.duration_ms(request.invisible_duration)
        self._bounds.check_change(invisible_ms)
        change = caller.call.metadata(wire.CHANGE_HEADER)
        handle = self._engine.change_invisible(
            group,
            request.receipt_handle,
            invisible_ms,
            self._committer.now_ms(),
            suspend=request.suspend,
            extends=change == wire.EXTENDS,
            repeatable=change == wire.ENDS,
            insists=caller.call.metadata(wire.WAIT_HEADER) == wire.INSISTS,
            failure=wire.failure(caller.call, self._config),
            topic=topic,
        )
        await self._committer.leased()
        return service_pb2.ChangeInvisibleDurationResponse(
            status=ok_status(), receipt_handle=handle
        )

    async def forward_message_to_dead_letter_queue(
        self, request: service_pb2.ForwardMessageToDeadLetterQueueRequest, caller: Caller
    ) -> service_pb2.ForwardMessageToDeadLetterQueueResponse:
        """Move a message out of the group into `%DLQ%group`, in one.

        Repeats are fine while the lease lasts.

        Raises:
            IllegalTopicError, IllegalGroupError: as their names say.
            GroupNotFoundError: no such group.
            InvalidReceiptHandleError: acknowledged, expired, superseded, of another topic, or
                never ours.
        """
        topic = wire.topic_name(request.topic)
        group = wire.group_name(request.group)
        self._engine.catalog.require_group(group)
        self._engine.forward(
            group,
            request.receipt_handle,
            self._committer.now_ms(),
            wire.failure(caller.call, self._config),
            topic=topic,
        )
        await self._committer.written()
        return service_pb2.ForwardMessageToDeadLetterQueueResponse(status=ok_status())
