"""Heartbeat and NotifyClientTermination: a client lives, a client leaves.

What a client is comes from its stored settings, not from these requests. A client that leaves, or
is silent for too long, gives the leases that the broker renews for it back.
"""

from collections.abc import Callable
from typing import Final, Protocol

from latermq_broker.config import Config
from latermq_broker.errors import UnrecognizedClientError
from latermq_broker.services import wire
from latermq_broker.services.answers import MESSAGING, Caller, ok_status, unary
from latermq_broker.services.seam import Committer, MethodTable
from latermq_broker.services.session import Session, Sessions
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

SILENT_LOOK_MS: Final = 5_000  # clients without a session are looked for so often


class ClientEngine(Protocol):
    """What the life of clients means to the engine."""

    def client_seen(self, client_id: str, now_ms: int) -> None: ...
    def client_gone(self, client_id: str, now_ms: int) -> None: ...
    def end_silent_clients(self, now_ms: int) -> bool: ...


class HeartbeatService:
    def __init__(
        self,
        engine: ClientEngine,
        committer: Committer,
        sessions: Sessions,
        config: Config,
        left: Callable[[str], None] = lambda client_id: None,
    ) -> None:
        """
        Args:
            left: told of each client that left or was silent for too long.
        """
        self._left = left
        self._engine = engine
        self._committer = committer
        self._sessions = sessions
        self._looked_ms = 0

    def methods(self) -> MethodTable:
        return {
            f"{MESSAGING}/Heartbeat": unary(
                service_pb2.HeartbeatRequest,
                self.heartbeat,
                lambda status, request: service_pb2.HeartbeatResponse(status=status),
            ),
            f"{MESSAGING}/NotifyClientTermination": unary(
                service_pb2.NotifyClientTerminationRequest,
                self.terminate,
                lambda status, request: service_pb2.NotifyClientTerminationResponse(status=status),
            ),
        }

    def heartbeat(
        self, request: service_pb2.HeartbeatRequest, caller: Caller
    ) -> service_pb2.HeartbeatResponse:
        """The client and the leases renewed for it go on.

        Raises:
            UnrecognizedClientError: no settings of this client are known, as after a restart of
                the broker; its leases go on all the same.
            IllegalGroupError: a consumer's group is against the rules of names.
        """
        now_ms = self._committer.now_ms()
        self._engine.client_seen(caller.client_id, now_ms)
        session = self._sessions.seen(caller.client_id, now_ms)
        self._require(session, caller.client_id, request.group)
        return service_pb2.HeartbeatResponse(status=ok_status())

    async def terminate(
        self, request: service_pb2.NotifyClientTerminationRequest, caller: Caller
    ) -> service_pb2.NotifyClientTerminationResponse:
        """The client is forgotten; leases renewed for it end after a second.

        Raises:
            UnrecognizedClientError, IllegalGroupError: as for a heartbeat. The leases of an
                unrecognized client end too: they outlive a restart of the broker, settings do not.
        """
        session = self._sessions.get(caller.client_id)
        if session is not None:
            self._require(session, caller.client_id, request.group)
            self._sessions.remove(caller.client_id)
        self._left(caller.client_id)
        self._engine.client_gone(caller.client_id, self._committer.now_ms())
        await self._committer.leased()
        self._require(session, caller.client_id, request.group)
        return service_pb2.NotifyClientTerminationResponse(status=ok_status())

    def expire_silent(self) -> None:
        """Called every second or so: let go of the clients that were silent for too long."""
        now_ms = self._committer.now_ms()
        for session in self._sessions.expire(now_ms):
            self._left(session.client_id)
            self._engine.client_gone(session.client_id, now_ms)
            self._committer.leased()
        if now_ms - self._looked_ms >= SILENT_LOOK_MS:
            self._looked_ms = now_ms
            if self._engine.end_silent_clients(now_ms):
                self._committer.leased()

    def _require(
        self, session: Session | None, client_id: str, group: definition_pb2.Resource
    ) -> None:
        if session is None:
            raise UnrecognizedClientError(f"no settings of client {client_id} are known")
        if session.consumes:  # Go's producers send a group without a name
            wire.group_name(group)
