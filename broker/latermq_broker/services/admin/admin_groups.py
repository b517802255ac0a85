"""Admin RPCs about groups: who subscribes to what, how far they are, who is connected.

Protocol: admin.proto. A subscription is known from connected clients, with their expressions, and
from progress, which tells no expression. Forgetting one forgets nothing of the progress: it is not
listed again until the group reads the topic again.
"""

from collections.abc import Iterator

from latermq_broker.engine.state.model import Group, TopicProgress
from latermq_broker.errors import BadRequestError, NotFoundError
from latermq_broker.services.admin.admin_fields import (
    client_info,
    consumers,
    expression_of,
    known_client,
    message_model,
    named_group,
    named_topic,
)
from latermq_broker.services.call.answers import Caller, ok_status, status
from latermq_broker.services.clients.lite_subscriptions import LiteSubscriptions
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.clients.session import Session
from latermq_broker.services.wire import wire
from latermq_proto.apache.rocketmq.v2 import admin_pb2, definition_pb2

_Accumulation = admin_pb2.DescribeGroupAccumulationResponse.GroupAccumulation
_ClientSubscription = admin_pb2.DescribeSubscriptionResponse.ClientSubscriptionInfo


class AdminGroups:
    def __init__(self, rooms: Rooms, lite: LiteSubscriptions) -> None:
        self._lite = lite
        self._engine = rooms.engine
        self._committer = rooms.committer
        self._sessions = rooms.sessions

    # --- subscriptions -------------------------------------------------------------------------

    def list_subscription(
        self, request: admin_pb2.ListSubscriptionRequest, _: Caller
    ) -> admin_pb2.ListSubscriptionResponse:
        """List one entry per group and topic, connected or not. Raises BadRequestError."""
        group, topic = _by_either(request)
        response = admin_pb2.ListSubscriptionResponse(status=ok_status())
        for pair, last_consumed_ms in sorted(self._relations(group, topic).items()):
            response.subscription_info.append(self._subscription(*pair, last_consumed_ms))
        return response

    def describe_subscription(
        self, request: admin_pb2.DescribeSubscriptionRequest, _: Caller
    ) -> admin_pb2.DescribeSubscriptionResponse:
        """List one entry per connected client and topic. Raises BadRequestError."""
        group, topic = _by_either(request)
        response = admin_pb2.DescribeSubscriptionResponse(status=ok_status())
        for session in consumers(self._sessions, group, topic):
            for name in sorted(session.topics):
                if topic in ("", name):
                    response.client_subscription_info.append(
                        _ClientSubscription(
                            client_info=client_info(session),
                            subscription_info=self._subscription(session.group, name, 0, session),
                        )
                    )
        return response

    async def delete_subscription(
        self, request: admin_pb2.DeleteSubscriptionRequest, _: Caller
    ) -> admin_pb2.DeleteSubscriptionResponse:
        """Forget the relation; the group and its progress stay.

        Raises:
            BadRequestError: no group or no topic; or a client that subscribes is connected.
            NotFoundError: there is none.
        """
        pair = named_group(request), named_topic(request)
        if pair not in self._relations(*pair):
            raise NotFoundError(f"group {pair[0]} has no subscription to topic {pair[1]}")
        if list(consumers(self._sessions, *pair)):
            raise BadRequestError(f"a client of group {pair[0]} subscribes to topic {pair[1]} now")
        self._engine.groups.forget(*pair, self._committer.now_ms())
        await self._committer.written()
        return admin_pb2.DeleteSubscriptionResponse(status=ok_status())

    def _relations(self, group: str, topic: str) -> dict[tuple[str, str], int]:
        """Map (group, topic) to when the group last received of it, 0 for never."""
        relations: dict[tuple[str, str], int] = {}
        for pair, last_consumed_ms in self._engine.progress.subscriptions(group, topic):
            relations[pair] = self._engine.wall.time_of_day(last_consumed_ms)
        for session in consumers(self._sessions, group, topic):
            for name in session.topics:
                if topic in ("", name):
                    relations.setdefault((session.group, name), 0)
        return relations

    def _subscription(
        self, group: str, topic: str, last_ms: int, only: Session | None = None
    ) -> admin_pb2.SubscriptionInfo:
        sessions = [only] if only else list(consumers(self._sessions, group, topic))
        everyone = [only, *consumers(self._sessions, group, topic)] if only else sessions
        expressions = {
            (expression.type, expression.expression)
            for expression in (expression_of(session, topic) for session in everyone if session)
        }
        info = admin_pb2.SubscriptionInfo(
            group=definition_pb2.Resource(name=group),
            topic=definition_pb2.Resource(name=topic),
            online=bool(sessions),
            message_model=message_model(sessions[0]) if sessions else admin_pb2.CLUSTERING,
            subscription_consistency=len(expressions) <= 1,
        )
        if sessions:
            info.expression.CopyFrom(expression_of(sessions[0], topic))
        time_of_day = self._engine.wall.time_of_day
        updated_ms = max([last_ms, *(time_of_day(session.seen_ms) for session in sessions)])
        if updated_ms:
            info.last_update_timestamp.FromMilliseconds(updated_ms)
        return info

    # --- progress ------------------------------------------------------------------------------

    def describe_group_accumulation(
        self, request: admin_pb2.DescribeGroupAccumulationRequest, _: Caller
    ) -> admin_pb2.DescribeGroupAccumulationResponse:
        """Count what waits and what is worked on.

        What waits for its next attempt counts as in flight.

        Raises BadRequestError, GroupNotFoundError, TopicNotFoundError, NotFoundError.
        """
        group = named_group(request)
        info = self._engine.groups.describe(group)
        if request.lite_topic:
            return self._lite_accumulation(info.group, request.lite_topic)
        wanted = [wire.topic_name(topic) for topic in request.topics]
        progress = {accumulation.topic: accumulation for accumulation in info.topics}
        for name in wanted:
            self._engine.catalog.require_topic(name)
        response = admin_pb2.DescribeGroupAccumulationResponse(status=ok_status())
        now_ms = self._committer.now_ms()
        total, oldest_ms = response.accumulation, 0
        total.SetInParent()
        for name in wanted or progress:
            accumulation = progress.get(name) or TopicProgress(name, 0, 0, 0, 0)
            first_ms = self._engine.progress.oldest_ready_ms(group, name)
            each = _accumulation(accumulation, now_ms - first_ms if first_ms else 0)
            response.topic_accumulation[name].CopyFrom(each)
            total.inflight_messages += each.inflight_messages
            total.ready_messages += each.ready_messages
            total.accumulation += each.accumulation
            last_ms = max(total.last_consume_timestamp, each.last_consume_timestamp)
            total.last_consume_timestamp = last_ms
            oldest_ms = min(filter(None, (oldest_ms, first_ms)), default=0)
        total.deliver_delay_time.FromMilliseconds(max(0, now_ms - oldest_ms) if oldest_ms else 0)
        return response

    def _lite_accumulation(
        self, group: Group, lite_topic: str
    ) -> admin_pb2.DescribeGroupAccumulationResponse:
        row = self._engine.lites.row(group, lite_topic) if group.lite_parent else None
        if row is None:
            raise NotFoundError(f"lite topic {lite_topic} is not read by group {group.name}")
        each = _Accumulation(
            inflight_messages=row.live_count,
            ready_messages=row.unread_count,
            accumulation=row.live_count + row.unread_count,
        )
        late_ms = self._committer.now_ms() - row.oldest_ms if row.oldest_ms else 0
        each.deliver_delay_time.FromMilliseconds(max(0, late_ms))
        return admin_pb2.DescribeGroupAccumulationResponse(
            status=ok_status(), accumulation=each, lite_topic_accumulation={lite_topic: each}
        )

    def query_time_span(
        self, request: admin_pb2.QueryTimeSpanRequest, _: Caller
    ) -> admin_pb2.QueryTimeSpanResponse:
        """Tell from when to when the queues reach, and where the group is in them.

        Raises BadRequestError, GroupNotFoundError, TopicNotFoundError.
        """
        group = named_group(request)
        self._engine.catalog.require_group(group)
        if not request.topics:
            raise BadRequestError("at least one topic is required")
        response = admin_pb2.QueryTimeSpanResponse(status=ok_status())
        now_ms = self._engine.wall.at(self._committer.now_ms())
        for resource in request.topics:
            for span in self._engine.progress.time_spans(group, wire.topic_name(resource)):
                response.queue_time_span_list.add(
                    message_queue=definition_pb2.MessageQueue(topic=resource, id=span.queue_id),
                    min_timestamp=span.first_ms,
                    max_timestamp=span.last_ms,
                    consume_timestamp=span.next_ms,
                    delay_time_ms=max(0, now_ms - span.next_ms) if span.behind else 0,
                )
        return response

    async def reset_group_offset(
        self, request: admin_pb2.ResetGroupOffsetRequest, _: Caller
    ) -> admin_pb2.ResetGroupOffsetResponse:
        """Move a group to the first message stored at or after an instant.

        Leases on the topic are void.

        Raises BadRequestError, GroupNotFoundError, TopicNotFoundError.
        """
        group, topic = named_group(request), named_topic(request)
        to_ms = wire.timestamp_ms(request.reset_timestamp)
        if to_ms <= 0:
            raise BadRequestError("reset_timestamp is required, after 1970")
        self._engine.groups.reset(group, topic, to_ms, self._committer.now_ms())
        await self._committer.written()
        return admin_pb2.ResetGroupOffsetResponse(status=ok_status())

    # --- clients -------------------------------------------------------------------------------

    def list_consumer_connection(
        self, request: admin_pb2.ListConsumerConnectionRequest, _: Caller
    ) -> admin_pb2.ListConsumerConnectionResponse:
        """List the connected clients of a group. Raises BadRequestError, GroupNotFoundError."""
        group = named_group(request)
        topic = wire.topic_name(request.topic) if request.topic.name else ""
        members = list(consumers(self._sessions, group, topic))
        if request.liteTopic:
            members = [s for s in members if request.liteTopic in self._lite.names(s.client_id)]
        if not members:
            self._engine.catalog.require_group(group)
        return admin_pb2.ListConsumerConnectionResponse(
            status=ok_status(), client_info=map(client_info, members)
        )

    def get_consumer_running_info(
        self, request: admin_pb2.GetConsumerRunningInfoRequest, _: Caller
    ) -> admin_pb2.GetConsumerRunningInfoResponse:
        """Tell a client's subscriptions; it reports nothing else. Raises BadRequestError,
        NotFoundError."""
        group = wire.group_name(request.group) if request.group.name else ""
        session = known_client(self._sessions, request.client_id, group)
        info = admin_pb2.ConsumerRunningInfo(
            properties=dict(_properties(session)),
            subscriptions={topic: expression_of(session, topic) for topic in session.topics},
        )
        words = "clients of this protocol report their subscriptions only"
        return admin_pb2.GetConsumerRunningInfoResponse(
            status=status(ok_status().code, words), consumer_running_info=info
        )


def _by_either(
    request: admin_pb2.ListSubscriptionRequest | admin_pb2.DescribeSubscriptionRequest,
) -> tuple[str, str]:
    """Read group and topic of a request: "" stands for the one that is not named.

    Raises BadRequestError.
    """
    group = wire.group_name(request.group) if request.group.name else ""
    topic = wire.topic_name(request.topic) if request.topic.name else ""
    if not group and not topic:
        raise BadRequestError("topic or group is required")
    return group, topic


def _accumulation(progress: TopicProgress, delay_ms: int) -> _Accumulation:
    in_flight = progress.in_flight_count + progress.backoff_count
    each = _Accumulation(
        inflight_messages=in_flight,
        ready_messages=progress.ready_count,
        accumulation=in_flight + progress.ready_count,
        last_consume_timestamp=progress.last_consumed_ms,
    )
    each.deliver_delay_time.FromMilliseconds(max(0, delay_ms))
    return each


def _properties(session: Session) -> Iterator[tuple[str, str]]:
    yield "CLIENT_TYPE", session.kind.name
    yield "CONSUMER_GROUP", session.group
    yield "CLIENT_VERSION", session.version
    yield "LANGUAGE", session.language
