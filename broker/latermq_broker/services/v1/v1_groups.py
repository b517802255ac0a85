"""latermq.v1 Groups: create, alter, list, show, delete, reset.

Translates and checks names; what exists and which policies hold is the engine's. Everything but the
reads answers only when the change is acknowledged by the flush policy.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from latermq_broker.catalog.catalog import BackoffKind
from latermq_broker.engine.state.model import Backoff, Group, OnDead, TopicProgress
from latermq_broker.engine.views.group_ranking import GroupOrder
from latermq_broker.engine.views.message_groups import MessageGroupRow, MessageGroupState
from latermq_broker.errors import BadRequestError
from latermq_broker.services.auth.naming import May, require_told, topics_of_group
from latermq_broker.services.call import names
from latermq_broker.services.call.answers import Caller, ok_status
from latermq_broker.services.call.paging import PAGE_SIZE_MAX, page_of, page_size
from latermq_broker.services.clients.pushed_settings import push_settings
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.clients.session import Session
from latermq_broker.services.wire.wire_stored import stored_message
from latermq_proto.latermq.v1 import group_pb2

SERVICES_MAX: Final = 16  # that share one topic, and topics, of one answer


class GroupsService:
    def __init__(self, rooms: Rooms) -> None:
        self._engine = rooms.engine
        self._committer = rooms.committer
        self._sessions = rooms.sessions
        self._config = rooms.config
        ladder = group_pb2.Backoff.Ladder(delays_ms=rooms.config.delivery.retry_ladder_ms)
        self._default_backoff = group_pb2.Backoff(ladder=ladder)

    async def create_group(
        self, request: group_pb2.CreateGroupRequest, _: Caller
    ) -> group_pb2.GroupResponse:
        """Answer CreateGroup of group.proto.

        Raises:
            IllegalGroupError: against the rules of names.
            BadRequestError: exists with another policy, or a value is out of bounds; a group that
                keeps no order cannot park.
        """
        wanted = request.group
        names.check_group(wanted.name)
        if wanted.lite_topics_of:
            names.check_topic(wanted.lite_topics_of)
            self._engine.lites.parent(wanted.lite_topics_of)
        elif wanted.lite_exclusive:
            raise BadRequestError(f"group {wanted.name} is exclusive, but reads no lite topics")
        group = self._engine.groups.create(
            wanted.name,
            fifo=wanted.fifo or bool(wanted.lite_topics_of),
            lite_parent=wanted.lite_topics_of,
            lite_exclusive=wanted.lite_exclusive,
            max_attempts=wanted.max_attempts,
            backoff=_backoff(wanted.backoff) if wanted.HasField("backoff") else None,
            on_dead=names.choice(OnDead, wanted.on_dead, "on_dead") or OnDead.SKIP,
            weight=wanted.weight,
            now_ms=self._committer.now_ms(),
        )
        await self._committer.written()
        push_settings(self._sessions, group.name, group, self._config)
        return self._response(group)

    async def alter_group(
        self, request: group_pb2.AlterGroupRequest, _: Caller
    ) -> group_pb2.GroupResponse:
        """Answer AlterGroup of group.proto.

        Raises:
            GroupNotFoundError: as named.
            BadRequestError: a value is out of bounds, or the backoff both set and cleared.
        """
        names.check_group(request.name)
        if request.clear_backoff and request.HasField("backoff"):
            raise BadRequestError("the backoff is either set or cleared, not both")
        group = self._engine.groups.alter(
            request.name,
            max_attempts=request.max_attempts,
            backoff=_backoff(request.backoff) if request.HasField("backoff") else None,
            clear_backoff=request.clear_backoff,
            on_dead=names.choice(OnDead, request.on_dead, "on_dead"),
            weight=request.weight,
            now_ms=self._committer.now_ms(),
        )
        await self._committer.written()
        push_settings(self._sessions, group.name, group, self._config)
        return self._response(group)

    async def list_groups(
        self, request: group_pb2.ListGroupsRequest, caller: Caller
    ) -> group_pb2.ListGroupsResponse:
        """Answer ListGroups of group.proto. Raises BadRequestError: the order, size or token."""
        page, token = await self._chosen(request, caller)
        response = group_pb2.ListGroupsResponse(status=ok_status(), next_page_token=token)
        progress: dict[int, list[TopicProgress]] = {group.id: [] for group in page}
        for part in self._engine.groups.progress(page, self._committer.now_ms()):
            for group_id, each in part:
                progress[group_id].append(each)
            await caller.lasting.turn()
        for group in page:
            response.groups.append(self._listed(group, progress[group.id]))
            await caller.lasting.turn()
        return response

    async def _chosen(
        self, request: group_pb2.ListGroupsRequest, caller: Caller
    ) -> tuple[list[Group], str]:
        """Return the groups that a listing asks for, and the token for more."""
        catalog, ranking = self._engine.catalog, self._engine.ranking
        if request.names:
            if len(request.names) > PAGE_SIZE_MAX:
                raise BadRequestError(f"{len(request.names)} names; at most {PAGE_SIZE_MAX}")
            named = map(catalog.group, sorted(set(request.names)))
            return [group for group in named if group is not None], ""
        order = names.choice(GroupOrder, request.order, "order")
        if order is None:
            return page_of(catalog.groups(), lambda group: group.name, request)
        if request.page_token:
            raise BadRequestError("only groups by name have a second page")
        size = page_size(request.page_size)
        for _ in ranking.renew(self._committer.now_ms()):
            await caller.lasting.turn()
        return ranking.first(order, size), ""

    def get_group(
        self, request: group_pb2.GetGroupRequest, caller: Caller
    ) -> group_pb2.GroupResponse:
        """Answer GetGroup of group.proto.

        Raises:
            GroupNotFoundError: as named.
        """
        names.check_group(request.name)
        info = self._engine.groups.describe(request.name, self._committer.now_ms())
        may_tell = topics_of_group(caller.call.user, request.name)
        message = self._listed(info.group, info.topics)
        message.topics.extend(_of_topic(each) for each in info.topics if may_tell(each.topic))
        if not may_tell(message.lite_topics_of):
            message.lite_topics_of = ""
        for topic, uses in self._sessions.filters.unequal(request.name):
            if not may_tell(topic):
                continue
            message.unequal_filters.add(topic=topic).filters.extend(
                group_pb2.FilterUse(expression=use.expression, client_count=use.client_count)
                for use in uses
            )
        message.services.extend(_services(self._sessions.all(), request.name, may_tell))
        return group_pb2.GroupResponse(status=ok_status(), group=message)

    def list_services(
        self, request: group_pb2.ListServicesRequest, caller: Caller
    ) -> group_pb2.ListServicesResponse:
        """Answer ListServices of group.proto. Raises IllegalGroupError: against the rules."""
        names.check_group(request.group)
        return group_pb2.ListServicesResponse(
            status=ok_status(),
            services=_services(
                self._sessions.all(),
                request.group,
                topics_of_group(caller.call.user, request.group),
            ),
        )

    async def delete_group(
        self, request: group_pb2.DeleteGroupRequest, _: Caller
    ) -> group_pb2.DeleteGroupResponse:
        """Answer DeleteGroup of group.proto.

        Raises:
            GroupNotFoundError: as named.
        """
        names.check_group(request.name)
        self._engine.groups.delete(request.name, self._committer.now_ms())
        await self._committer.written()
        push_settings(self._sessions, request.name, None, self._config)
        return group_pb2.DeleteGroupResponse(status=ok_status())

    async def reset_group(
        self, request: group_pb2.ResetGroupRequest, caller: Caller
    ) -> group_pb2.ResetGroupResponse:
        """Answer ResetGroup of group.proto.

        Raises:
            GroupNotFoundError, TopicNotFoundError: as named.
            BadRequestError: a time before the epoch.
        """
        names.check_group(request.name)
        names.check_topic(request.topic)
        if request.to_ms < 0:
            raise BadRequestError(f"the time {request.to_ms} lies before 1970")
        require_told(self._engine, caller.call.user, request.name, request.topic)
        offsets = self._engine.groups.reset(
            request.name, request.topic, request.to_ms, self._committer.now_ms()
        )
        await self._committer.written()
        return group_pb2.ResetGroupResponse(status=ok_status(), offsets=offsets)

    def list_message_groups(
        self, request: group_pb2.ListMessageGroupsRequest, caller: Caller
    ) -> group_pb2.ListMessageGroupsResponse:
        """Answer ListMessageGroups of group.proto.

        Raises:
            GroupNotFoundError, TopicNotFoundError: as named.
            BadRequestError: the state, the size or the token.
        """
        names.check_group(request.group)
        if request.topic:
            names.check_topic(request.topic)
            require_told(self._engine, caller.call.user, request.group, request.topic)
            self._engine.catalog.require_topic(request.topic)
        rows, token = self._engine.message_groups.page(
            request.group,
            request.topic,
            names.choice(MessageGroupState, request.state, "message group state"),
            page_size(request.page_size),
            request.page_token,
        )
        return group_pb2.ListMessageGroupsResponse(
            status=ok_status(), message_groups=map(_message_group, rows), next_page_token=token
        )

    def _response(self, group: Group) -> group_pb2.GroupResponse:
        return group_pb2.GroupResponse(status=ok_status(), group=self._message(group))

    def _listed(self, group: Group, topics: Sequence[TopicProgress]) -> group_pb2.Group:
        message = self._message(group)
        message.progress.CopyFrom(_together(topics))
        return message

    def _message(self, group: Group) -> group_pb2.Group:
        return group_pb2.Group(
            name=group.name,
            fifo=group.fifo,
            max_attempts=group.max_attempts,
            backoff=None if group.backoff is None else _backoff_message(group.backoff),
            default_backoff=self._default_backoff if group.backoff is None else None,
            created_at_ms=group.created_ms,
            dead_letter_count=self._engine.groups.dead_letter_count(group),
            on_dead=group_pb2.OnDead.Name(group.on_dead) if group.fifo else None,
            lite_topics_of=group.lite_parent,
            lite_exclusive=group.lite_exclusive,
            weight=group.weight,
        )


def _together(topics: Sequence[TopicProgress]) -> group_pb2.TopicProgress:
    """Sum up a group's progress with each topic; of times the oldest unread, the last consumed."""
    if len(topics) == 1:  # of most groups
        return _progress(topics[0])
    unread = [each.oldest_unread_ms for each in topics if each.oldest_unread_ms]
    return group_pb2.TopicProgress(
        ready_count=sum(each.ready_count for each in topics),
        in_flight_count=sum(each.in_flight_count for each in topics),
        backoff_count=sum(each.backoff_count for each in topics),
        last_consumed_at_ms=max((each.last_consumed_ms for each in topics), default=0),
        held_count=sum(each.held_count for each in topics),
        blocked_message_group_count=sum(each.blocked_count for each in topics),
        parked_message_group_count=sum(each.parked_count for each in topics),
        oldest_unread_at_ms=min(unread, default=0),
        in_per_s=sum(each.in_per_s for each in topics),
        out_per_s=sum(each.out_per_s for each in topics),
        failed_per_s=sum(each.failed_per_s for each in topics),
    )


def _progress(progress: TopicProgress) -> group_pb2.TopicProgress:
    """Say how far a group is with a topic, without naming it."""
    return group_pb2.TopicProgress(
        ready_count=progress.ready_count,
        in_flight_count=progress.in_flight_count,
        backoff_count=progress.backoff_count,
        last_consumed_at_ms=progress.last_consumed_ms,
        held_count=progress.held_count,
        blocked_message_group_count=progress.blocked_count,
        parked_message_group_count=progress.parked_count,
        oldest_unread_at_ms=progress.oldest_unread_ms,
        in_per_s=progress.in_per_s,
        out_per_s=progress.out_per_s,
        failed_per_s=progress.failed_per_s,
    )


def _of_topic(progress: TopicProgress) -> group_pb2.TopicProgress:
    message = _progress(progress)
    message.topic = progress.topic
    return message


def _services(
    sessions: Iterable[Session], group: str, may_tell: May
) -> list[group_pb2.TopicServices]:
    """List which services share the group's topics: those whose workers are connected."""
    shown: dict[str, dict[str, group_pb2.ServiceUse]] = {}
    for session in sessions:
        if session.group != group or not session.service or not session.streams:
            continue
        for topic in filter(may_tell, session.topics):
            uses = shown.setdefault(topic, {})
            use = uses.setdefault(session.service, group_pb2.ServiceUse(service=session.service))
            use.client_count += 1
            if not use.client_id or session.client_id < use.client_id:
                use.client_id, use.address = session.client_id, session.peer
    return [
        group_pb2.TopicServices(
            topic=topic, services=[use for _, use in sorted(uses.items())[:SERVICES_MAX]]
        )
        for topic, uses in sorted(shown.items())[:SERVICES_MAX]
    ]


def _message_group(row: MessageGroupRow) -> group_pb2.MessageGroup:
    stored = stored_message(row.rest, row.sys)
    return group_pb2.MessageGroup(
        topic=row.topic,
        name=stored.message_group or stored.lite_topic,
        state=group_pb2.MessageGroup.State.Name(row.state),
        due_at_ms=row.due_ms,
        message_id=stored.message_id,
        pending_id=row.pending_id,
        attempt=row.attempt,
        live_count=row.live_count,
        held_count=row.held_count,
        dead_letter_offsets=row.letters,
    )


def _backoff(message: group_pb2.Backoff) -> Backoff:
    """Read a backoff; its bounds are the engine's to check.

    Raises:
        BadRequestError: no policy in it.
    """
    policy = message.WhichOneof("policy")
    if policy == "ladder":
        return Backoff(
            kind=BackoffKind.LADDER,
            delays_ms=tuple(message.ladder.delays_ms),
            jitter=message.jitter,
        )
    if policy == "exponential":
        return Backoff(
            kind=BackoffKind.EXPONENTIAL,
            initial_ms=message.exponential.initial_ms,
            max_ms=message.exponential.max_ms,
            multiplier=message.exponential.multiplier,
            jitter=message.jitter,
        )
    if policy == "fixed_ms":
        return Backoff(kind=BackoffKind.FIXED, delays_ms=(message.fixed_ms,), jitter=message.jitter)
    raise BadRequestError("the backoff names no policy: ladder, exponential or fixed")


def _backoff_message(backoff: Backoff) -> group_pb2.Backoff:
    if backoff.kind is BackoffKind.LADDER:
        ladder = group_pb2.Backoff.Ladder(delays_ms=backoff.delays_ms)
        return group_pb2.Backoff(ladder=ladder, jitter=backoff.jitter)
    if backoff.kind is BackoffKind.FIXED:
        return group_pb2.Backoff(fixed_ms=backoff.delays_ms[0], jitter=backoff.jitter)
    exponential = group_pb2.Backoff.Exponential(
        initial_ms=backoff.initial_ms, max_ms=backoff.max_ms, multiplier=backoff.multiplier
    )
    return group_pb2.Backoff(exponential=exponential, jitter=backoff.jitter)
