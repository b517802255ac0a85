"""latermq.v1 Limits: set, unset, list. The engine keeps them, `flow` asks for them."""

import re
from typing import Final

from latermq_broker.catalog.access import Kind, User
from latermq_broker.catalog.limits import EVERY, Limit, Scope
from latermq_broker.config.auth import ACCESS_KEY, ACCESS_KEY_RULE
from latermq_broker.errors import BadRequestError
from latermq_broker.services.auth.naming import may_name
from latermq_broker.services.call import names
from latermq_broker.services.call.answers import Caller, ok_status
from latermq_broker.services.call.paging import page_of
from latermq_broker.services.clients.rooms import Rooms
from latermq_proto.latermq.v1 import limit_pb2

CLIENT_ID_BYTES_MAX: Final = 1_024
_NO_CLIENT_ID: Final = re.compile(r"[^ -~]")  # what no gRPC header holds


class LimitsService:
    def __init__(self, rooms: Rooms) -> None:
        self._limits = rooms.engine.limits
        self._committer = rooms.committer
        self._sessions = rooms.sessions

    async def set_limit(
        self, request: limit_pb2.SetLimitRequest, _: Caller
    ) -> limit_pb2.LimitResponse:
        """Answer SetLimit of limit.proto.

        Raises:
            BadRequestError: no scope or name, out of bounds, or not of this scope.
            IllegalGroupError: no name of a group.
            TooManyRequestsError: too many limits are set.
        """
        wanted = request.limit
        scope = _scope(wanted.scope, wanted.name)
        limit = Limit(
            scope=scope,
            name=wanted.name,
            parked_polls=wanted.parked_polls,
            in_flight=wanted.in_flight,
            sends_per_s=wanted.sends_per_s,
            bytes_per_s=wanted.bytes_per_s,
        )
        changed = self._limits.set(limit, self._committer.now_ms())
        await self._committer.written()
        return limit_pb2.LimitResponse(status=ok_status(), limit=_message(changed))

    async def unset_limit(
        self, request: limit_pb2.UnsetLimitRequest, _: Caller
    ) -> limit_pb2.UnsetLimitResponse:
        """Answer UnsetLimit of limit.proto. Raises NotFoundError, and as `set_limit`."""
        scope = _scope(request.scope, request.name)
        self._limits.unset(scope, request.name, self._committer.now_ms())
        await self._committer.written()
        return limit_pb2.UnsetLimitResponse(status=ok_status())

    def list_limits(
        self, request: limit_pb2.ListLimitsRequest, caller: Caller
    ) -> limit_pb2.ListLimitsResponse:
        """Answer ListLimits of limit.proto."""
        user = caller.call.user
        shown = [limit for limit in self._limits.table.all() if self._concerns(user, limit)]
        page, token = page_of(shown, _place, request)
        return limit_pb2.ListLimitsResponse(
            status=ok_status(),
            limits=[_message(limit) for limit in page],
            next_page_token=token,
        )

    def _concerns(self, user: User | None, limit: Limit) -> bool:
        """Tell whether a limit is of all, of the user, or of a group or client of the user's."""
        if user is None or user.admin or limit.name == EVERY:
            return True
        if limit.scope is Scope.USER:
            return limit.name == user.access_key
        if limit.scope is Scope.GROUP:
            return may_name(user, Kind.GROUP, limit.name)
        return self._sessions.owner(limit.name) == user.access_key


def _place(limit: Limit) -> str:
    """Give a limit's place in the order of the listing."""
    return f"{int(limit.scope)}{limit.name}"


def _scope(number: int, name: str) -> Scope:
    try:
        scope = Scope(number)
    except ValueError:
        raise BadRequestError("scope is none of CLIENT, GROUP and USER") from None
    if not name.strip():
        raise BadRequestError(f"the name of a {scope.name.lower()} is required, or {EVERY}")
    if name != EVERY and scope is Scope.GROUP:
        names.check_group(name)
    if name != EVERY and scope is Scope.USER and ACCESS_KEY.fullmatch(name) is None:
        raise BadRequestError(f"user {names.shown(name)} is none: a name has {ACCESS_KEY_RULE}")
    if names.utf8_bytes(name) > CLIENT_ID_BYTES_MAX:
        raise BadRequestError(f"a client id has at most {CLIENT_ID_BYTES_MAX} bytes here")
    if scope is Scope.CLIENT and (_NO_CLIENT_ID.search(name) or name != name.strip()):
        raise BadRequestError(
            f"client id {names.shown(name)} is none that a client can have: they come in a header, "
            "as printable ASCII without blanks at the ends"
        )
    return scope


def _message(limit: Limit) -> limit_pb2.Limit:
    return limit_pb2.Limit(
        scope=int(limit.scope),
        name=limit.name,
        parked_polls=limit.parked_polls,
        in_flight=limit.in_flight,
        sends_per_s=limit.sends_per_s,
        bytes_per_s=limit.bytes_per_s,
        changed_at_ms=limit.changed_ms,
    )
