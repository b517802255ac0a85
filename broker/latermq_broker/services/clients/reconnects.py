"""Asks clients to open their telemetry streams anew: when the broker goes, or an operator wants it.

Nobody answers this command. Who does not know it goes on as before, and comes back by itself when
its stream ends. Source: protocol.md 2.5.
"""

import logging

from latermq_broker.services.clients.client_quirks import Quirk
from latermq_broker.services.clients.replies import Replies
from latermq_broker.services.clients.session import Session, Sessions
from latermq_proto.apache.rocketmq.v2 import service_pb2

log = logging.getLogger("latermq.services")


class Reconnects:
    def __init__(self, sessions: Sessions, replies: Replies) -> None:
        self._sessions = sessions
        self._replies = replies

    def ask(self, session: Session) -> bool:
        """Send the command on the client's newest stream; False: it has none, or does not read."""
        nonce = self._replies.nonce()
        command = service_pb2.TelemetryCommand(
            reconnect_endpoints_command=service_pb2.ReconnectEndpointsCommand(nonce=nonce)
        )
        if not self._sessions.push(session.client_id, command):
            return False
        if Quirk.DEAF_TO_OLD_STREAMS in session.quirks:
            session.streams[-1].end()
        return True

    def ask_all(self) -> int:
        """Ask all clients to connect anew; how many could be told."""
        return sum(self.ask(session) for session in list(self._sessions.all()))

    def drain(self) -> None:
        """Tell every client that holds a stream, once; end all streams, now and from now on."""
        asked = self.ask_all()
        self._sessions.end_streams()
        if asked:
            log.info("clients told to reconnect", extra={"clients": asked})
