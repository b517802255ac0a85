"""SyncLiteSubscription: the lite topics of one parent that a client reads.

A group reads the lite topics of one parent, for good: it is bound with its creation, which may be
its first sync or receive, or `latermq group create --lite-topics-of`. A sync is idempotent: clients
send it to every endpoint of the route, which are all this broker. In an exclusive group a lite
topic is its last subscriber's; who had it before is told, and no longer given anything of it.
"""

from collections.abc import Callable
from functools import partial

from latermq_broker.catalog.access import User
from latermq_broker.deferred import Later
from latermq_broker.engine.catalog.lites import Begin, Beginning
from latermq_broker.engine.state.model import Group
from latermq_broker.errors import (
    BadRequestError,
    GroupNotFoundError,
    IllegalGroupError,
    TooManyRequestsError,
)
from latermq_broker.services.call.answers import Caller, ok_status
from latermq_broker.services.clients.lite_subscriptions import LiteSubscriptions
from latermq_broker.services.clients.outlived import Outlived
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.messaging.validate import check_lite_topic
from latermq_broker.services.wire import wire
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

_Begin = definition_pb2.OffsetOption


class LiteService:
    """Also drops what clients that left subscribed to, once a second (`on_second`)."""

    def __init__(
        self,
        rooms: Rooms,
        subscriptions: LiteSubscriptions,
        serve: Callable[[str, str], None],
        outlived: Outlived,
    ) -> None:
        """
        Args:
            serve: lets the parked receives of a (group, parent) look once more.
        """
        self._engine = rooms.engine
        self._committer = rooms.committer
        self._sessions = rooms.sessions
        self._config = rooms.config.lite
        self._subscriptions = subscriptions
        self._serve = serve
        self._outlived = outlived
        self._second = self._syncs = 0

    def sync_lite_subscription(
        self, request: service_pb2.SyncLiteSubscriptionRequest, caller: Caller
    ) -> Later[bytes]:
        """Answer SyncLiteSubscription of service.proto.

        Raises:
            IllegalTopicError: against the rules of names, no parent of lite topics, or not the one
                the group is bound to.
            IllegalGroupError: against the rules of names, one that reads whole topics, or unknown.
            IllegalLiteTopicError, LiteSubscriptionQuotaError, TopicNotFoundError: as named.
            TooManyRequestsError: too many syncs, or subscriptions of all clients.
            BadRequestError: no such action or offset.
        """
        now_ms = self._committer.now_ms()
        self._admit(now_ms)
        parent = wire.topic_name(request.topic)
        name = wire.group_name(request.group)
        change = self._change(request, caller.client_id, parent, name, now_ms)
        beginning = _beginning(request)
        user = caller.call.user
        known = self._check_bind(name, parent, user)
        if known is None and self._outlived.has(name, caller.client_id):
            raise IllegalGroupError(
                f"group {name} was deleted while this client read it: create it, or start the "
                "client anew"
            )
        new, lost = change(exclusive=known is not None and known.lite_exclusive, user=user)
        self._sessions.hold(caller.client_id, user, now_ms)
        group = known  # no one who is refused makes one
        if group is None:
            group = self._engine.lites.bind(name, parent, now_ms, user)
        if new and beginning is not None:
            self._engine.lites.begin(group, new, beginning, now_ms)
        stored = self._committer.acknowledged(
            service_pb2.SyncLiteSubscriptionResponse(status=ok_status()).SerializeToString()
        )
        for client_id, lite_topic in lost:
            command = service_pb2.TelemetryCommand()
            command.notify_unsubscribe_lite_command.lite_topic = lite_topic
            self._sessions.push(client_id, command)
        if new:
            self._serve(name, parent)
            self._committer.leased()
        return stored

    def on_second(self) -> None:
        now_ms = self._committer.now_ms()
        silent_ms_max = self._subscriptions.silent_ms_max
        self._subscriptions.expire(self._engine.hearing.judged_ms(now_ms, silent_ms_max))

    def _check_bind(self, name: str, parent: str, user: User | None) -> Group | None:
        try:
            return self._engine.lites.check_bind(name, parent, user, self._committer.now_ms())
        except GroupNotFoundError as error:
            raise IllegalGroupError(str(error)) from error

    def _change(
        self,
        request: service_pb2.SyncLiteSubscriptionRequest,
        client_id: str,
        parent: str,
        group: str,
        now_ms: int,
    ) -> Callable[..., tuple[set[str], list[tuple[str, str]]]]:
        """Prepare what the action does, checked as far as it can be."""
        subscriptions, names = self._subscriptions, list(request.lite_topic_set)
        place = (client_id, group, parent)
        action = request.action
        if action == definition_pb2.PARTIAL_ADD:
            for lite_topic in names:
                check_lite_topic(lite_topic)
            return partial(subscriptions.add, *place, names, now_ms)
        if action == definition_pb2.COMPLETE_ADD:
            for lite_topic in names:
                check_lite_topic(lite_topic)
            return partial(subscriptions.replace, *place, names, now_ms, version=request.version)
        if action not in (definition_pb2.PARTIAL_REMOVE, definition_pb2.COMPLETE_REMOVE):
            raise BadRequestError(f"lite subscription action {action} is unknown")

        def remove(*, exclusive: bool, user: User | None) -> tuple[set[str], list[tuple[str, str]]]:
            if action == definition_pb2.COMPLETE_REMOVE:
                subscriptions.drop(client_id)
            else:
                subscriptions.remove(*place, names, now_ms)
            return set(), []

        return remove

    def _admit(self, now_ms: int) -> None:
        if now_ms // 1_000 != self._second:
            self._second, self._syncs = now_ms // 1_000, 0
        self._syncs += 1
        if self._syncs > self._config.syncs_per_second_max:
            raise TooManyRequestsError(
                f"more than {self._config.syncs_per_second_max} changes of lite subscriptions in "
                "a second"
            )


def _beginning(request: service_pb2.SyncLiteSubscriptionRequest) -> Beginning | None:
    """Tell where new subscriptions begin; None: where the group is. Raises BadRequestError."""
    if request.action != definition_pb2.PARTIAL_ADD or not request.HasField("offset_option"):
        return None
    option = request.offset_option
    kind = option.WhichOneof("offset_type")
    if kind == "policy":
        policies = {_Begin.LAST: Begin.LAST, _Begin.MIN: Begin.FIRST, _Begin.MAX: Begin.END}
        begin = policies.get(option.policy)
        if begin is None:
            raise BadRequestError(f"offset policy {option.policy} is unknown")
        return Beginning(begin)
    if kind == "offset" or kind == "tail_n":
        number = option.offset if kind == "offset" else option.tail_n
        if number < 0:
            raise BadRequestError(f"{kind} {number} is negative")
        return Beginning(Begin.OFFSET if kind == "offset" else Begin.TAIL, number)
    return None  # a timestamp is ignored, as in RocketMQ
