"""Who may call what: stands before every handler when `auth.enabled`, and is not there otherwise.

A call is signed by a user (`signature`), who may do what the RPC's row in `access_rules` asks for.
A refusal is a status inside the response, UNAUTHORIZED or FORBIDDEN, and gRPC's status stays OK;
nothing of the request has reached a handler. A telemetry stream is told so by one command with the
status, and ends; a reflection stream by gRPC's status. Health says nothing that is anybody's, and
stays open to all. Whoever is no user is refused by the head of a call, before its request is kept.

A client id is the user's who opened its session, or holds something under it: no other user calls
under it, whatever the RPC. Who is shown a half message, on a stream opened long ago, is asked for
again at each showing, and whoever has letters redriven or reads a queue or the log with each piece
of the answer.

Calls that nobody signed are slowed down (`brake`), those that somebody did never.

A signature is good for a second's worth of calls of one client, so one that was verified is looked
up, not computed, the next time. Any change of a user makes all of them be computed anew.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar, cast

from latermq_broker.catalog.access import Right, User
from latermq_broker.config.auth import AuthConfig
from latermq_broker.deferred import Later
from latermq_broker.engine.catalog.users import UserAdmin
from latermq_broker.errors import (
    BadRequestError,
    ForbiddenError,
    NotSignedError,
    RequestError,
    UnauthorizedError,
)
from latermq_broker.observability.complaints import Complaints
from latermq_broker.services.auth.access_rules import (
    V1,
    All,
    Want,
    group,
    meets,
    reading,
    rule_of,
    topic,
)
from latermq_broker.services.auth.brake import Brake
from latermq_broker.services.auth.signature import (
    AUTHORIZATION_HEADER,
    DATE_HEADER,
    Claim,
    claim_of,
    is_signed_with,
    key_of,
    span_ms,
)
from latermq_broker.services.call.answers import (
    CLIENT_ID_HEADER,
    MESSAGING,
    refusal_of,
    status_of,
)
from latermq_broker.services.call.handler import (
    BidiStream,
    Call,
    CallAborted,
    Method,
    MethodKind,
    MethodTable,
    Parsed,
)
from latermq_broker.services.call.late_elements import while_allowed
from latermq_broker.services.call.names import shown
from latermq_broker.services.clients.session import Session, Sessions
from latermq_broker.services.clients.telemetry import Commands, command_of
from latermq_broker.services.messaging.transaction import Asking
from latermq_broker.services.standard.health import HEALTH
from latermq_broker.services.standard.reflection import REFLECTION_V1, REFLECTION_V1ALPHA
from latermq_h2.grpc_code import GrpcCode

log = logging.getLogger("latermq.services")

Answer = TypeVar("Answer")

OPEN: Final = f"/{HEALTH}/"
REFLECTION: Final = (f"/{REFLECTION_V1ALPHA}/", f"/{REFLECTION_V1}/")
HEARTBEAT: Final = f"{MESSAGING}/Heartbeat"
VERIFIED_MAX: Final = 8_192
BRAKED: Final = "too many calls from this address were not signed, or signed wrongly; this one too"
NOBODYS_SECRET: Final = "a user who is not there takes as long as one who is"


class _Verified(NamedTuple):
    user: User
    version: int
    from_ms: int
    until_ms: int


class Guard:
    """
    Args:
        wall_ms: the time of day; signatures are dated.
        strict: answer UNAUTHORIZED for a missing right too, as RocketMQ does.
    """

    def __init__(
        self,
        users: UserAdmin,
        sessions: Sessions,
        config: AuthConfig,
        wall_ms: Callable[[], int],
        *,
        strict: bool = False,
    ) -> None:
        self._users = users
        self._sessions = sessions
        self._skew_ms = config.clock_skew_ms_max
        self._certificate_users = config.certificate_users
        self._wall_ms = wall_ms
        self._strict = strict
        self._root = root_user(config)
        self._verified: dict[tuple[str | None, str | None], _Verified] = {}
        self._brake = Brake()
        self._complaints = Complaints()

    def guarded(self, methods: MethodTable, descriptors: Iterable[Any]) -> MethodTable:
        """Put every method of the table behind this guard, but those open to all."""
        rpcs = {
            f"/{each.full_name}/{rpc.name}": rpc for each in descriptors for rpc in each.methods
        }
        table: MethodTable = {}
        for path, method in methods.items():
            table[path] = (
                method if path.startswith(OPEN) else self._behind(path, method, rpcs.get(path))
            )
        return table

    def drain(self) -> None:
        """Answer the calls that are kept back: the broker goes down."""
        self._brake.drain()

    def caller_of(self, call: Call) -> User:
        """Find the user who signed the call, or whom its certificate names.

        Raises:
            UnauthorizedError: nobody did, or a user who is disabled, or too long ago.
        """
        headers = (call.metadata(AUTHORIZATION_HEADER), call.metadata(DATE_HEADER))
        if self._certificate_users and headers[0] is None and call.certificate_name:
            return self._certified(call.certificate_name)
        known = self._verified.get(headers)
        wall_ms = self._wall_ms()
        if (
            known is not None
            and known.version == self._users.version
            and known.from_ms <= wall_ms <= known.until_ms
        ):
            return known.user
        user, from_ms, until_ms = self._verify(claim_of(*headers), wall_ms)
        if len(self._verified) >= VERIFIED_MAX:
            self._verified.clear()
        self._verified[headers] = _Verified(user, self._users.version, from_ms, until_ms)
        return user

    def asking(self, session: Session, name: str) -> Asking:
        """Tell which half messages of a topic the user of a session may be asked about by now.

        Those of others are shown whole, so that takes what it takes to read them.
        """
        if session.owner is None:
            return Asking.NONE
        try:
            user = self._still(session.owner)
            require(user, topic(name, Right.PUB))
        except RequestError:
            return Asking.NONE
        return Asking.ALL if meets(user, reading(name)) else Asking.OWN

    def _certified(self, name: str) -> User:
        """Find the user of a certificate that one of our CAs signed. Raises UnauthorizedError."""
        user = self._find(name)
        if user is None:
            raise NotSignedError(f"the certificate is of {shown(name)}, who is no user")
        if user.disabled:
            raise UnauthorizedError(f"user {user.access_key} is disabled")
        return user

    def _verify(self, claim: Claim, wall_ms: int) -> tuple[User, int, int]:
        """Find the user of a signature, and from when until when the signature's date is good."""
        user = self._find(claim.access_key)
        right = is_signed_with(claim, NOBODYS_SECRET if user is None else user.secret)
        if user is None or not right:
            raise NotSignedError(
                f"no user {shown(claim.access_key)} with the secret that signed this call"
            )
        if user.disabled:
            raise UnauthorizedError(f"user {user.access_key} is disabled")
        if not self._skew_ms:
            return user, 0, 1 << 62
        earliest_ms, latest_ms = span_ms(claim.date)
        from_ms, until_ms = earliest_ms - self._skew_ms, latest_ms + self._skew_ms
        if not from_ms <= wall_ms <= until_ms:
            raise UnauthorizedError(
                f"{DATE_HEADER} {claim.date} is more than {self._skew_ms // 1_000} s from the "
                "broker's clock in every time zone it may mean (auth.clock_skew_ms_max)"
            )
        return user, from_ms, until_ms

    def _find(self, access_key: str) -> User | None:
        if self._root is not None and access_key == self._root.access_key:
            return self._root
        return self._users.find(access_key)

    def _behind(self, path: str, method: Method, rpc: Any) -> Method:
        if path.startswith(REFLECTION):
            return replace(
                method, handler=self._known(cast(BidiStream, method.handler)), public=False
            )
        if method.kind is MethodKind.BIDI_STREAM:
            assert method.parsed is not None
            return Method.bidi_stream(self._stream(path, method.parsed))
        inner = cast(Callable[[bytes, Call], Any], method.handler)
        wants = rule_of(path)
        refuse = refusal_of(rpc)
        of_a_client = path.startswith(MESSAGING)
        is_heartbeat = path == HEARTBEAT
        streams = method.kind is MethodKind.SERVER_STREAM
        # For hours: who may at its beginning need not at its end.
        lasts = streams and path.startswith(V1)
        parsed, read = method.parsed, method.read
        assert parsed is not None
        assert read is not None
        braked = [refuse(status_of(UnauthorizedError(BRAKED))).SerializeToString()]

        def refused(error: RequestError, call: Call) -> bytes:
            return refuse(status_of(self._explained(error, call))).SerializeToString()

        def admit(call: Call) -> Sequence[bytes] | Later[list[bytes]] | None:
            try:
                self.caller_of(call)
            except RequestError as error:
                if self._brakes(error, call):
                    return self._kept_back(braked, call)
                return [refused(error, call)]
            return None

        def handler(data: bytes, call: Call) -> Any:
            request: Any = None
            try:
                user = call.user = self.caller_of(call)
                if not user.admin or lasts:
                    try:
                        request = read(data, call)
                    except BadRequestError:
                        return inner(data, call)  # which says so, and does nothing else
                    require(user, wants(request))
                if of_a_client:
                    self._require_own(user, call)
                if is_heartbeat:
                    self._require_group(user, call)
            except RequestError as error:
                if self._brakes(error, call):
                    return self._kept_back(braked if streams else braked[0], call)
                answer = refused(error, call)
                return [answer] if streams else answer
            if request is None:
                return inner(data, call)
            answer = parsed(request, data, call)
            if lasts and isinstance(answer, AsyncIterator):
                return while_allowed(answer, self._withdrawn(user, wants(request), refused, call))
            return answer

        return replace(method, handler=handler, admit=admit, parsed=None)

    def _known(self, inner: BidiStream) -> BidiStream:
        """Keep a stream for whoever is a user.

        There is no status of ours in it to say who is not.
        """

        def handler(requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
            try:
                self.caller_of(call)
            except RequestError as error:
                if self._brakes(error, call):
                    return _ended(self._kept_back(b"", call))
                refusal = str(self._explained(error, call))
                raise CallAborted(GrpcCode.UNAUTHENTICATED, refusal) from error
            return inner(requests, call)

        return handler

    def _stream(self, path: str, inner: Parsed) -> BidiStream:
        wants = rule_of(path)

        def handler(requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
            answers: AsyncIterator[bytes] = inner(self._checked(requests, call, wants), call)
            return answers

        return handler

    async def _checked(
        self,
        requests: AsyncIterator[bytes],
        call: Call,
        wants: Callable[[Any], Iterable[Want]],
    ) -> Commands:
        """Yield what the client sends, up to what it may not; a RequestError ends the stream."""
        try:
            user = self.caller_of(call)
            async for data in requests:
                call.user = self._still(user)
                command = command_of(data)
                del data
                self._require_own(call.user, call)
                if command.HasField("settings"):
                    require(call.user, wants(command.settings))
                yield command
                del command  # up to 4 MiB, and the next may be long in coming
        except RequestError as error:
            if self._brakes(error, call):
                await self._kept_back(None, call)
                raise UnauthorizedError(BRAKED) from error
            refusal = self._explained(error, call)
            try:
                if refusal is error:
                    raise
                raise refusal from error
            finally:
                del refusal  # an error that its frame holds, or that is its own cause, is a circle

    def _still(self, user: User) -> User:
        """Find what the user may by now. Raises UnauthorizedError."""
        now = self._find(user.access_key)
        if now is None or now.disabled or now.secret != user.secret:
            raise UnauthorizedError(f"user {user.access_key} was disabled, deleted or rotated")
        return now

    def _withdrawn(
        self,
        user: User,
        wanted: All,
        refused: Callable[[RequestError, Call], bytes],
        call: Call,
    ) -> Callable[[], bytes | None]:
        """Make what tells, again and again, whether a user may no longer do what it began."""
        version = self._users.version

        def refusal() -> bytes | None:
            nonlocal version
            if self._users.version == version:
                return None
            version = self._users.version
            try:
                call.user = self._still(user)
                require(call.user, wanted)
            except RequestError as error:
                return refused(error, call)
            return None

        return refusal

    def _require_own(self, user: User, call: Call) -> None:
        """Require that a client id is not another user's.

        Raises:
            ForbiddenError: the client id is another user's.
        """
        client_id = _client_id(call)
        owner = self._sessions.owner(client_id)
        if owner is not None and owner != user.access_key:
            raise ForbiddenError(f"client id {shown(client_id)} is in use by another user")

    def _require_group(self, user: User, call: Call) -> None:
        """Require the right to its group.

        A client lives on for its own group, whatever group a heartbeat names.

        Raises:
            ForbiddenError: the right to the group was revoked.
        """
        session = self._sessions.get(_client_id(call))
        if session is not None and session.group:
            require(user, group(session.group, Right.SUB))

    def _explained(self, error: RequestError, call: Call) -> RequestError:
        """Give what the caller is told; the log is told too."""
        self._complain(error, call)
        if self._strict and isinstance(error, ForbiddenError):
            return UnauthorizedError(str(error))
        return error

    def _brakes(self, error: RequestError, call: Call) -> bool:
        """Tell whether this refusal is one too many of its address; the log is told, once."""
        wall_ms = self._wall_ms()
        if not isinstance(error, NotSignedError):
            return False
        if not self._brake.fails(call.peer, _key(call), wall_ms):
            return False
        if self._complaints.due(call.peer, "braked", wall_ms):
            log.warning("calls braked", extra={"peer": call.peer, "reason": str(error)})
        return True

    def _kept_back(self, answer: Answer, call: Call) -> Later[Answer]:
        """Give the answer as the brake gives it: when its turn comes.

        Raises CallAborted: too many wait already; its connection ends.
        """
        held = self._brake.hold(call.peer, _key(call), answer, self._wall_ms())
        if held is None:
            raise CallAborted(GrpcCode.RESOURCE_EXHAUSTED, BRAKED, ends_connection=True)
        return held

    def _complain(self, error: RequestError, call: Call) -> None:
        """Log one line per address and minute: a client that is refused asks again and again."""
        if self._complaints.due(call.peer, "refused", self._wall_ms()):
            log.warning(
                "call refused", extra={"rpc": call.path, "peer": call.peer, "reason": str(error)}
            )


def _client_id(call: Call) -> str:
    """Read the caller's client id; "" of one that has none, which its handler refuses."""
    return (call.metadata(CLIENT_ID_HEADER) or "").strip()


async def _ended(turn: Later[bytes]) -> AsyncIterator[bytes]:
    """End a stream of nobody's when its turn comes. Raises CallAborted."""
    answer = await turn
    if not answer:  # it is always empty: a status of gRPC's says it all
        raise CallAborted(GrpcCode.UNAUTHENTICATED, BRAKED)
    yield answer


def _key(call: Call) -> str:
    return key_of(call.metadata(AUTHORIZATION_HEADER))


def root_user(config: AuthConfig) -> User | None:
    """Make the admin whom the configuration names; it is in no log and no list."""
    if not config.root_access_key:
        return None
    return User(access_key=config.root_access_key, secret=config.root_secret_key, admin=True)


def require(user: User, wants: Iterable[Want]) -> None:
    """Require of a user all that is wanted.

    Raises:
        ForbiddenError: the user lacks one of them.
    """
    if user.admin:
        return
    for want in wants:
        for right in want.rights:
            if user.may(right, want.kind, want.name):
                break
        else:
            raise ForbiddenError(f"user {user.access_key} needs {want}")
