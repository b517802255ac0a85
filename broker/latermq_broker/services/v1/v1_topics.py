"""latermq.v1 Topics: create, alter, list, show, delete.

Translates and checks names; what exists and what may change is the engine's. Everything but the
reads answers only when the change is acknowledged by the flush policy.
"""

from latermq_broker.catalog.catalog import INTERNAL_PREFIXES, UNSET, TopicTimes
from latermq_broker.engine.state.model import QueueEnds, Topic, TopicType
from latermq_broker.errors import BadRequestError, IllegalTopicError
from latermq_broker.services.auth.naming import groups_of_topic
from latermq_broker.services.call import names
from latermq_broker.services.call.answers import Caller, ok_status
from latermq_broker.services.call.paging import page_of
from latermq_broker.services.clients.rooms import Rooms
from latermq_proto.latermq.v1 import topic_pb2


class TopicsService:
    def __init__(self, rooms: Rooms) -> None:
        self._engine = rooms.engine
        self._committer = rooms.committer
        self._dedup_window_ms = rooms.config.dedup.window_ms

    async def create_topic(
        self, request: topic_pb2.CreateTopicRequest, _: Caller
    ) -> topic_pb2.TopicResponse:
        """Answer CreateTopic of topic.proto.

        Raises:
            IllegalTopicError: against the rules of names, or a name the broker keeps.
            BadRequestError: exists otherwise, or the queue count is out of bounds.
        """
        names.check_topic(request.name)
        if request.name.startswith(INTERNAL_PREFIXES):
            raise IllegalTopicError(
                f"topic {names.shown(request.name)} is made by the broker itself"
            )
        _check_queue_count(request.queue_count)
        kind = names.choice(TopicType, request.type, "topic type") or TopicType.MIXED
        topic = self._engine.topics.create(
            request.name, kind, request.queue_count, self._committer.now_ms(), _times(request)
        )
        await self._committer.written()
        return self._response(topic)

    async def alter_topic(
        self, request: topic_pb2.AlterTopicRequest, _: Caller
    ) -> topic_pb2.TopicResponse:
        """Answer AlterTopic of topic.proto.

        Raises:
            TopicNotFoundError: as named.
            ForbiddenError: a %DLQ% topic.
            BadRequestError: fewer queues, or too many; to or from a type that has its own queues.
        """
        names.check_topic(request.name)
        _check_queue_count(request.queue_count)
        kind = names.choice(TopicType, request.type, "topic type")
        topic = self._engine.topics.alter(
            request.name, kind, request.queue_count, self._committer.now_ms(), _times(request)
        )
        await self._committer.written()
        return self._response(topic)

    async def list_topics(
        self, request: topic_pb2.ListTopicsRequest, caller: Caller
    ) -> topic_pb2.ListTopicsResponse:
        """Answer ListTopics of topic.proto."""
        topics = self._engine.catalog.topics()
        if not request.include_internal:
            topics = [topic for topic in topics if not topic.internal]
        page, token = page_of(topics, lambda topic: topic.name, request)
        response = topic_pb2.ListTopicsResponse(status=ok_status(), next_page_token=token)
        for topic in page:
            response.topics.append(self._message(topic))
            await caller.lasting.turn()
        return response

    def get_topic(
        self, request: topic_pb2.GetTopicRequest, caller: Caller
    ) -> topic_pb2.TopicResponse:
        """Answer GetTopic of topic.proto.

        Raises:
            TopicNotFoundError: as named.
        """
        names.check_topic(request.name)
        info = self._engine.topics.describe(request.name)
        message = self._message(info.topic)
        may_tell = groups_of_topic(caller.call.user, request.name)
        message.consumer_groups.extend(filter(may_tell, info.groups))
        message.oldest_at_ms = self._engine.topics.oldest_ms(info.topic)
        return topic_pb2.TopicResponse(status=ok_status(), topic=message)

    async def delete_topic(
        self, request: topic_pb2.DeleteTopicRequest, _: Caller
    ) -> topic_pb2.DeleteTopicResponse:
        """Answer DeleteTopic of topic.proto.

        Raises:
            TopicNotFoundError: as named.
        """
        names.check_topic(request.name)
        self._engine.topics.delete(request.name, self._committer.now_ms())
        await self._committer.written()
        return topic_pb2.DeleteTopicResponse(status=ok_status())

    def _response(self, topic: Topic) -> topic_pb2.TopicResponse:
        return topic_pb2.TopicResponse(status=ok_status(), topic=self._message(topic))

    def _message(self, topic: Topic) -> topic_pb2.Topic:
        ends = self._engine.topics.ends(topic)
        ages = self._engine.retention.ages
        return topic_pb2.Topic(
            name=topic.name,
            type=topic_pb2.TopicType.Name(topic.type),
            queue_count=topic.queue_count,
            created_at_ms=topic.created_ms,
            epoch=topic.epoch,
            internal=topic.internal,
            queues=map(_range, ends),
            message_count=sum(queue.next_offset - queue.earliest_offset for queue in ends),
            delayed_count=self._engine.topics.delayed_count(topic),
            kept_ms=ages.read_ms(topic),
            unread_kept_ms=ages.unread_ms(topic),
            retention_ms=_set(topic.retention_ms),
            unread_retention_ms=_set(topic.unread_retention_ms),
            dedup_window_ms=_set(topic.dedup_window_ms),
            dedup_kept_ms=topic.dedup_window(self._dedup_window_ms),
        )


def _times(request: topic_pb2.CreateTopicRequest | topic_pb2.AlterTopicRequest) -> TopicTimes:
    return TopicTimes(
        request.retention_ms if request.HasField("retention_ms") else None,
        request.unread_retention_ms if request.HasField("unread_retention_ms") else None,
        request.dedup_window_ms if request.HasField("dedup_window_ms") else None,
    )


def _set(time_ms: int) -> int | None:
    return None if time_ms == UNSET else time_ms


def _range(ends: QueueEnds) -> topic_pb2.QueueRange:
    return topic_pb2.QueueRange(
        queue_id=ends.queue_id, earliest_offset=ends.earliest_offset, next_offset=ends.next_offset
    )


def _check_queue_count(queue_count: int) -> None:
    if queue_count < 0:
        raise BadRequestError(f"queue count {queue_count} is negative")
