"""latermq.v1 Groups: create, alter, list, show, delete, reset.

Translates and checks names; what exists and which policies hold is the engine's. Everything but the
reads answers only when the change is acknowledged by the flush policy.
"""

from typing import Final

from latermq_broker.config import Config
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.model import Backoff, Group, TopicProgress
from latermq_broker.errors import BadRequestError, NotImplementedYetError
from latermq_broker.services import names
from latermq_broker.services.answers import Caller, ok_status, unary
from latermq_broker.services.seam import Committer, MethodTable
from latermq_broker.services.session import Sessions
from latermq_broker.services.v1_paging import after, page_size, page_token
from latermq_broker.store.catalog import BackoffKind
from latermq_proto.latermq.v1 import group_pb2

GROUPS: Final = "/latermq.v1.Groups"


class GroupsService:
    def __init__(
        self, engine: Engine, committer: Committer, sessions: Sessions, config: Config
    ) -> None:
        self._engine = engine
        self._committer = committer

    def methods(self) -> MethodTable:
        return {
            f"{GROUPS}/CreateGroup": unary(
                group_pb2.CreateGroupRequest,
                self.create,
                lambda status, _: group_pb2.GroupResponse(status=status),
                client_id_required=False,
            ),
            f"{GROUPS}/AlterGroup": unary(
                group_pb2.AlterGroupRequest,
                self.alter,
                lambda status, _: group_pb2.GroupResponse(status=status),
                client_id_required=False,
            ),
            f"{GROUPS}/ListGroups": unary(
                group_pb2.ListGroupsRequest,
                self.list,
                lambda status, _: group_pb2.ListGroupsResponse(status=status),
                client_id_required=False,
            ),
            f"{GROUPS}/GetGroup": unary(
                group_pb2.GetGroupRequest,
                self.get,
                lambda status, _: group_pb2.GroupResponse(status=status),
                client_id_required=False,
            ),
            f"{GROUPS}/DeleteGroup": unary(
                group_pb2.DeleteGroupRequest,
                self.delete,
                lambda status, _: group_pb2.DeleteGroupResponse(status=status),
                client_id_required=False,
            ),
            f"{GROUPS}/ResetGroup": unary(
                group_pb2.ResetGroupRequest,
                self.reset,
                lambda status, _: group_pb2.ResetGroupResponse(status=status),
                client_id_required=False,
            ),
        }

    async def create(
        self, request: group_pb2.CreateGroupRequest, _: Caller
    ) -> group_pb2.GroupResponse:
        """Protocol: group.proto, CreateGroup.

        Raises:
            IllegalGroupError: against the rules of names.
            NotImplementedYetError: a FIFO group.
            BadRequestError: exists with another policy, or a value is out of bounds.
        """
        wanted = request.group
        names.check_group(wanted.name)
        if wanted.fifo:
            raise NotImplementedYetError("fifo groups are not implemented yet")
        group = self._engine.groups.create(
            wanted.name,
            fifo=False,
            max_attempts=wanted.max_attempts,
            backoff=_backoff(wanted.backoff) if wanted.HasField("backoff") else None,
            now_ms=self._committer.now_ms(),
        )
        await self._committer.written()
        return self._response(group)

    async def alter(
        self, request: group_pb2.AlterGroupRequest, _: Caller
    ) -> group_pb2.GroupResponse:
        """Protocol: group.proto, AlterGroup.

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
            now_ms=self._committer.now_ms(),
        )
        await self._committer.written()
        return self._response(group)

    def list(self, request: group_pb2.ListGroupsRequest, _: Caller) -> group_pb2.ListGroupsResponse:
        """Protocol: group.proto, ListGroups."""
        start, size = after(request.page_token), page_size(request.page_size)
        found = [group for group in self._engine.catalog.groups() if group.name > start]
        page = found[:size]
        return group_pb2.ListGroupsResponse(
            status=ok_status(),
            groups=[self._message(group) for group in page],
            next_page_token=page_token(page[-1].name) if len(found) > size else "",
        )

    def get(self, request: group_pb2.GetGroupRequest, _: Caller) -> group_pb2.GroupResponse:
        """Protocol: group.proto, GetGroup.

        Raises:
            GroupNotFoundError: as named.
        """
        names.check_group(request.name)
        info = self._engine.groups.describe(request.name)
        message = self._message(info.group)
        message.topics.extend(map(_progress, info.topics))
        return group_pb2.GroupResponse(status=ok_status(), group=message)

    async def delete(
        self, request: group_pb2.DeleteGroupRequest, _: Caller
    ) -> group_pb2.DeleteGroupResponse:
        """Protocol: group.proto, DeleteGroup.

        Raises:
            GroupNotFoundError: as named.
        """
        names.check_group(request.name)
        self._engine.groups.delete(request.name, self._committer.now_ms())
        await self._committer.written()
        return group_pb2.DeleteGroupResponse(status=ok_status())

    async def reset(
        self, request: group_pb2.ResetGroupRequest, _: Caller
    ) -> group_pb2.ResetGroupResponse:
        """Protocol: group.proto, ResetGroup.

        Raises:
            GroupNotFoundError, TopicNotFoundError: as named.
            BadRequestError: a time before the epoch.
        """
        names.check_group(request.name)
        names.check_topic(request.topic)
        if request.to_ms < 0:
            raise BadRequestError(f"the time {request.to_ms} lies before 1970")
        offsets = self._engine.groups.reset(
            request.name, request.topic, request.to_ms, self._committer.now_ms()
        )
        await self._committer.written()
        return group_pb2.ResetGroupResponse(status=ok_status(), offsets=offsets)

    def _response(self, group: Group) -> group_pb2.GroupResponse:
        return group_pb2.GroupResponse(status=ok_status(), group=self._message(group))

    def _message(self, group: Group) -> group_pb2.Group:
        return group_pb2.Group(
            name=group.name,
            fifo=group.fifo,
            max_attempts=group.max_attempts,
            backoff=_backoff_message(group.backoff) if group.backoff is not None else None,
            created_at_ms=group.created_ms,
            dead_letter_count=self._engine.groups.dead_letter_count(group),
        )


def _progress(progress: TopicProgress) -> group_pb2.TopicProgress:
    return group_pb2.TopicProgress(
        topic=progress.topic,
        ready_count=progress.ready_count,
        in_flight_count=progress.in_flight_count,
        backoff_count=progress.backoff_count,
        last_consumed_at_ms=progress.last_consumed_ms,
    )


def _backoff(message: group_pb2.Backoff) -> Backoff:
    """Bounds are the engine's to check.

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
