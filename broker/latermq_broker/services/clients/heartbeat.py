"""Heartbeat and NotifyClientTermination: a client lives, a client leaves.

What a client is comes from its stored settings, not from these requests. A client that leaves, or
is silent for too long, gives the leases that the broker renews for it back.
"""

from typing import Final, Protocol

from latermq_broker.engine.state.hearing import Hearing
from latermq_broker.errors import UnrecognizedClientError
from latermq_broker.services.call.answers import Caller, ok_status
from latermq_broker.services.call.handler import Committer
from latermq_broker.services.clients.lite_subscriptions import LiteSubscriptions
from latermq_broker.services.clients.session import Session, Sessions
from latermq_broker.services.wire import wire
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

SILENT_LOOK_MS: Final = 5_000  # clients without a session are looked for so often


class ClientEngine(Protocol):
    """What the life of clients means to the engine."""

    @property
    def hearing(self) -> Hearing: ...
    def client_seen(self, client_id: str, now_ms: int, group: str = "") -> bool: ...
    def client_gone(self, client_id: str, now_ms: int, group: str = "") -> bool: ...
    def end_silent_clients(self, now_ms: int) -> bool: ...


class HeartbeatService:
    def __init__(
        self,
        engine: ClientEngine,
        committer: Committer,
        sessions: Sessions,
        lite: LiteSubscriptions,
    ) -> None:
        """
        Args:
            lite: loses those of each client that left or was silent for too long.
        """
        self._lite = lite
        self._engine = engine
        self._committer = committer
        self._sessions = sessions
        self._looked_ms = 0

    def heartbeat(
        self, request: service_pb2.HeartbeatRequest, caller: Caller
    ) -> service_pb2.HeartbeatResponse:
        """Let the client and the leases renewed for it go on.

        Raises:
            UnrecognizedClientError: no settings of this client are known, as after a restart of
                the broker: it may send them. Its leases in this group go on, for some never do.
            IllegalGroupError: a consumer's group is against the rules of names.
        """
        now_ms = self._committer.now_ms()
        session = self._sessions.get(caller.client_id)
        if session is None:
            group = request.group.name
            if group and self._engine.client_seen(caller.client_id, now_ms, group):
                self._sessions.seen(caller.client_id, now_ms)
            raise UnrecognizedClientError(f"no settings of client {caller.client_id} are known")
        _require_group(session, request.group)
        self._engine.client_seen(caller.client_id, now_ms)
        self._sessions.seen(caller.client_id, now_ms)
        return service_pb2.HeartbeatResponse(status=ok_status())

    async def notify_client_termination(
        self, request: service_pb2.NotifyClientTerminationRequest, caller: Caller
    ) -> service_pb2.NotifyClientTerminationResponse:
        """Forget the client; leases renewed for it end after a second.

        A client without settings is known by what it holds in the group it names: leases outlive
        a restart of the broker, settings do not.

        Raises:
            UnrecognizedClientError: neither settings of this client are known nor does it hold
                anything in this group; nothing was done.
            IllegalGroupError: a consumer's group is against the rules of names.
        """
        client_id, group = caller.client_id, request.group.name
        session = self._sessions.get(client_id)
        if session is not None:
            _require_group(session, request.group)
            group = session.group
            self._engine.hearing.client_left(client_id)
        reads = self._lite.reads(client_id, group)
        held = self._end_leases(client_id, group, self._committer.now_ms())
        if session is None and not (reads or held):
            raise UnrecognizedClientError(f"no settings of client {client_id} are known")
        self._sessions.remove(client_id)
        self._lite.drop(client_id)
        await self._committer.leased()
        return service_pb2.NotifyClientTerminationResponse(status=ok_status())

    def expire_silent(self) -> None:
        """Let go, every second or so, of the clients that were silent for too long."""
        now_ms = self._committer.now_ms()
        for session in self._sessions.expire(self._judged_ms(now_ms)):
            self._lite.drop(session.client_id)
            self._engine.hearing.client_left(session.client_id)
            self._end_leases(session.client_id, session.group, now_ms)
            self._committer.leased()
        if now_ms - self._looked_ms >= SILENT_LOOK_MS:
            self._looked_ms = now_ms
            if self._engine.end_silent_clients(now_ms):
                self._committer.leased()

    def _judged_ms(self, now_ms: int) -> int:
        """Return the time to judge sessions by: what the broker could not hear does not count."""
        return self._engine.hearing.judged_ms(now_ms, self._sessions.silent_ms_max)

    def _end_leases(self, client_id: str, group: str, now_ms: int) -> bool:
        """Tell whether the client held any of its group; a producer, of no group, holds none."""
        return bool(group) and self._engine.client_gone(client_id, now_ms, group)


def _require_group(session: Session, group: definition_pb2.Resource) -> None:
    """Check the name of a consumer's group.

    Raises:
        IllegalGroupError: a consumer's group is against the rules of names.
    """
    if session.consumes:  # Go's producers send a group without a name
        wire.group_name(group)
