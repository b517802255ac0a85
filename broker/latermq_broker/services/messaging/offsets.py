"""PullMessage, UpdateOffset, GetOffset, QueryOffset: a queue read by position.

An offset is always the next to be read. A pull grants no lease, counts no attempt and moves no
progress; what a group commits with UpdateOffset is where its receives go on too.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from latermq_broker.catalog.shares import Shares
from latermq_broker.deferred import Later
from latermq_broker.engine.state.model import MessageFilter, QueueRow
from latermq_broker.errors import BadRequestError, OffsetNotFoundError, TopicNotFoundError
from latermq_broker.services.call.answers import (
    Caller,
    StreamAnswer,
    ok_status,
)
from latermq_broker.services.call.handler import Call
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.messaging.flow import FlowControl
from latermq_broker.services.messaging.parking import Parking, Waiter
from latermq_broker.services.messaging.polling import polling_ms
from latermq_broker.services.wire import wire
from latermq_broker.services.wire.wire_delivery import (
    NOTHING_ELEMENT,
    OK_ELEMENT,
    next_offset_element,
    pulled_element,
    status_element,
)
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

SCANS_MAX: Final = 16  # slices of a queue one attempt looks through for a match


class Pulled(NamedTuple):
    """What a pull found: rows, or only that it may go on further ahead."""

    rows: Sequence[QueueRow]
    next_offset: int


class Pull:
    """One PullMessage that may wait: where it stands, which moves past what it does not want.

    Its offset says something of the topic that had the name when it came, and of no later one.
    """

    __slots__ = ("count_max", "filter", "offset", "queue_id", "topic", "topic_id")

    def __init__(
        self,
        topic: str,
        topic_id: int,
        queue_id: int,
        offset: int,
        count_max: int,
        filter: MessageFilter,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.queue_id = queue_id
        self.offset = offset
        self.count_max = count_max
        self.filter = filter


class OffsetService:
    def __init__(self, rooms: Rooms) -> None:
        self._engine = rooms.engine
        self._committer = rooms.committer
        self._sessions = rooms.sessions
        self._config = rooms.config
        self.parking: Parking[Pulled] = Parking(
            rooms.config.server, FlowControl(rooms.engine.limits), Shares(rooms.config.auth)
        )

    def refuse_pull_message(
        self, status: definition_pb2.Status, request: service_pb2.PullMessageRequest
    ) -> list[bytes]:
        """Name the offset to go on from: of an illegal one, the nearest that is legal."""
        offset = request.offset
        if status.code == definition_pb2.ILLEGAL_OFFSET:
            queue = request.message_queue
            ends = self._engine.queues.ends(queue.topic.name, queue.id)
            offset = min(max(offset, ends.earliest_offset), ends.next_offset)
        return [status_element(status), next_offset_element(offset)]

    def pull_message(self, request: service_pb2.PullMessageRequest, caller: Caller) -> StreamAnswer:
        """Read messages from an offset on: status, messages, the offset to go on from.

        Raises:
            IllegalTopicError, IllegalGroupError, IllegalFilterError: as their names say.
            TopicNotFoundError: no such topic; or it was deleted while the pull waited.
            BadRequestError: no such queue.
            IllegalOffsetError: below the oldest or past the next.
            IllegalPollingTimeError: it would wait past the caller's deadline.
            TooManyRequestsError: too many wait already, or the caller has not read what it was
                answered before.
        """
        topic = request.message_queue.topic
        topic_name = wire.topic_name(topic)
        filter = wire.message_filter(request.filter_expression)
        group = wire.group_name(request.group)
        # Unset means no wait: nothing that pulls leaves it out and hopes to be kept waiting.
        server = self._config.server
        asked, short = request.long_polling_timeout, server.short_polling
        wait_ms = polling_ms(asked, caller, self._sessions, server, short=short)
        call = caller.call
        pull = Pull(
            topic=topic_name,
            topic_id=self._engine.catalog.require_topic(topic_name).id,
            queue_id=request.message_queue.id,
            offset=request.offset,
            count_max=min(max(request.batch_size, 1), self._config.delivery.receive_batch_max),
            filter=filter,
        )
        pulled = self._attempt(pull, call)
        if pulled is not None or not wait_ms:
            return self._reply(topic, pull, pulled or Pulled((), pull.offset))
        waiter = self.parking.park(
            group,
            pull.topic,
            id(pull),
            partial(self._attempt, pull, call),
            wait_ms,
            caller.client_id,
            call.connection_id,
            call.user,
        )
        call.on_cancel(partial(self.parking.leave, waiter))
        return waiter.later.then(partial(self._reply_later, topic, pull, waiter))

    async def update_offset(
        self, request: service_pb2.UpdateOffsetRequest, caller: Caller
    ) -> service_pb2.UpdateOffsetResponse:
        """Have the group go on from this offset; see `QueueReads.commit`.

        Raises:
            IllegalTopicError, IllegalGroupError: as their names say.
            TopicNotFoundError, GroupNotFoundError: not there.
            BadRequestError: no such queue.
            IllegalOffsetError: below the oldest or past the next.
        """
        queue = request.message_queue
        topic = wire.topic_name(queue.topic)
        group = wire.group_name(request.group)
        self._engine.queues.commit(group, topic, queue.id, request.offset, self._committer.now_ms())
        await self._committer.written()
        return service_pb2.UpdateOffsetResponse(status=ok_status())

    def get_offset(
        self, request: service_pb2.GetOffsetRequest, caller: Caller
    ) -> service_pb2.GetOffsetResponse:
        """Tell the oldest offset the group was not given yet.

        Raises:
            IllegalTopicError, IllegalGroupError: as their names say.
            TopicNotFoundError, GroupNotFoundError: not there.
            BadRequestError: no such queue.
            OffsetNotFoundError: the group has never read this queue.
        """
        queue = request.message_queue
        topic = wire.topic_name(queue.topic)
        group = wire.group_name(request.group)
        offset = self._engine.queues.committed(group, topic, queue.id)
        if offset is None:
            raise OffsetNotFoundError(
                f"consumer group {group} has no offset on topic {topic}, queue {queue.id}"
            )
        return service_pb2.GetOffsetResponse(status=ok_status(), offset=offset)

    def query_offset(
        self, request: service_pb2.QueryOffsetRequest, caller: Caller
    ) -> service_pb2.QueryOffsetResponse:
        """Tell the queue's oldest offset, its next one, or the first stored at or after a time.

        Raises:
            IllegalTopicError: as its name says.
            TopicNotFoundError: not there.
            BadRequestError: no such queue, an unknown policy, or no timestamp where one is needed.
        """
        queue = request.message_queue
        topic = wire.topic_name(queue.topic)
        ends = self._engine.queues.ends(topic, queue.id)
        match request.query_offset_policy:
            case definition_pb2.BEGINNING:
                offset = ends.earliest_offset
            case definition_pb2.END:
                offset = ends.next_offset
            case definition_pb2.TIMESTAMP:
                if not request.HasField("timestamp"):
                    raise BadRequestError("policy TIMESTAMP needs a timestamp")
                time_ms = max(wire.timestamp_ms(request.timestamp), 0)
                offset = self._engine.queues.offset_at(topic, queue.id, time_ms)
            case unknown:
                raise BadRequestError(f"query offset policy {int(unknown)} is unknown")
        return service_pb2.QueryOffsetResponse(status=ok_status(), offset=offset)

    def _attempt(self, pull: Pull, call: Call) -> Pulled | None:
        """Look from where the pull stands; None when it has come to the end with nothing.

        Raises:
            TopicNotFoundError, BadRequestError, IllegalOffsetError: as `pull_message`.
            TooManyRequestsError: the caller has no room for an answer.
        """
        self._check_topic(pull)
        bytes_max = min(call.reply_room(), self._config.delivery.receive_bytes_max)
        for _ in range(SCANS_MAX):
            rows, next_offset = self._engine.queues.pull(
                pull.topic, pull.queue_id, pull.offset, pull.count_max, pull.filter, bytes_max
            )
            if rows:
                call.reserve_reply(sum([len(row.rest) + len(row.sys) for row in rows]))
                return Pulled(rows, next_offset)
            if next_offset == pull.offset:
                return None
            pull.offset = next_offset
        return Pulled((), pull.offset)

    def _check_topic(self, pull: Pull) -> None:
        """Check that the topic is the one it was. Raises TopicNotFoundError."""
        if self._engine.catalog.topic_by_id(pull.topic_id) is None:
            raise TopicNotFoundError(pull.topic)

    def _reply_later(
        self,
        topic: definition_pb2.Resource,
        pull: Pull,
        waiter: Waiter[Pulled],
        pulled: Pulled | None,
    ) -> Later[list[bytes]]:
        """Answer one that waited; the waiter, which the call keeps, keeps no rows.

        Raises TopicNotFoundError: it waited in vain, and the topic was deleted meanwhile.
        """
        waiter.later.value = None
        if pulled is None:
            self._check_topic(pull)
        return self._reply(topic, pull, pulled or Pulled((), pull.offset))

    def _reply(
        self, topic: definition_pb2.Resource, pull: Pull, pulled: Pulled
    ) -> Later[list[bytes]]:
        """Answer when it is stored: nobody sees what its sender is not promised yet."""
        answer = [
            OK_ELEMENT if pulled.rows else NOTHING_ELEMENT,
            *(
                pulled_element(topic, pull.queue_id, row.queue_offset, row.rest, row.sys)
                for row in pulled.rows
            ),
            next_offset_element(pulled.next_offset),
        ]
        return self._committer.acknowledged(answer)
