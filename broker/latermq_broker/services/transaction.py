"""EndTransaction, and the question to producers of which nobody has said how they ended.

Once a second the halves that are due for a check are handed, a bounded number, to producers that
publish their topic and hold a telemetry stream open. The question goes round among them, and never
twice in a row to the same if there is another. A producer may answer with EndTransaction, or not at
all; then the next one is asked after `transaction.check_interval_ms`.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Final

from latermq_broker.config import Config
from latermq_broker.delivery.transaction import HalfEvent
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.model import OrphanCheck
from latermq_broker.errors import BadRequestError, InvalidTransactionIdError, StoreFullError
from latermq_broker.services import wire
from latermq_broker.services.answers import MESSAGING, Caller, unary
from latermq_broker.services.later import Later
from latermq_broker.services.seam import Committer, MethodTable
from latermq_broker.services.session import Session, Sessions
from latermq_broker.services.wire_stored import orphan_command
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

log = logging.getLogger("latermq.services")

CHECKS_MAX: Final = 256  # in one round, of all topics together
CHECK_BYTES_MAX: Final = 8 << 20  # the first one goes out whatever its size
UNREAD_MAX: Final = 16  # commands; a producer that reads no faster is not asked

_EVENTS: Final = {
    definition_pb2.COMMIT: HalfEvent.COMMIT,
    definition_pb2.ROLLBACK: HalfEvent.ROLLBACK,
}


class TransactionService:
    def __init__(
        self, engine: Engine, committer: Committer, sessions: Sessions, config: Config
    ) -> None:
        self._engine = engine
        self._committer = committer
        self._sessions = sessions
        self._turn = 0

    def methods(self) -> MethodTable:
        return {
            f"{MESSAGING}/EndTransaction": unary(
                service_pb2.EndTransactionRequest,
                self.end,
                lambda status, request: service_pb2.EndTransactionResponse(status=status),
            ),
        }

    def end(
        self, request: service_pb2.EndTransactionRequest, caller: Caller
    ) -> bytes | Later[bytes]:
        """Deliver a half message, or never; at any age, whoever asks and whatever `source` says.

        UNSPECIFIED is "not known yet": nothing happens.

        Raises:
            IllegalTopicError: against the rules of names.
            InvalidTransactionIdError: blank, unknown, of another message, or ended the other way.
            BadRequestError: a resolution that does not exist.
        """
        topic = wire.topic_name(request.topic)
        if not request.transaction_id.strip():
            raise InvalidTransactionIdError("transaction_id is blank")
        if request.resolution == definition_pb2.TRANSACTION_RESOLUTION_UNSPECIFIED:
            return wire.OK_FIELD
        event = _EVENTS.get(request.resolution)
        if event is None:
            raise BadRequestError(f"transaction resolution {int(request.resolution)} is unknown")
        self._engine.transactions.end(
            topic, request.transaction_id, request.message_id, event, self._committer.now_ms()
        )
        return self._committer.acknowledged(wire.OK_FIELD)

    def check_orphans(self) -> None:
        """Called every second or so: ask producers how transactions ended."""
        transactions = self._engine.transactions
        topics = transactions.waiting_topics()
        if not topics:
            return
        producers = self._sessions.publishers(topics)
        share = max(1, CHECKS_MAX // max(1, len(producers)))
        room_bytes = CHECK_BYTES_MAX
        now_ms = self._committer.now_ms()
        try:
            for topic, ring in producers.items():
                for first in transactions.waiting(topic, share if room_bytes > 0 else 0):
                    check = transactions.check(first, now_ms)
                    if check is None:
                        continue  # damaged, given up
                    asked = self._ask(topic, ring, check)
                    if asked is None:
                        break
                    transactions.asked(first, asked.client_id, now_ms)
                    room_bytes -= len(check.rest)
                    if room_bytes <= 0:
                        break
        except StoreFullError as error:
            log.warning("disk full: producers are not asked", extra={"reason": str(error)})
        self._committer.leased()

    def _ask(self, topic: str, ring: Sequence[Session], check: OrphanCheck) -> Session | None:
        """Who was asked; None: nobody reads."""
        for session in self._candidates(ring, check.asked_client):
            command = orphan_command(_resource(session, topic), check)
            if self._sessions.push(session.client_id, command, unread_max=UNREAD_MAX):
                self._turn += 1
                log.debug(
                    "producer asked how a transaction ended",
                    extra={
                        "transaction": check.transaction_id,
                        "client_id": session.client_id,
                        "check": check.check,
                    },
                )
                return session
        return None

    def _candidates(self, ring: Sequence[Session], last: str) -> Iterator[Session]:
        """In turn, whoever was asked last at the end."""
        start = self._turn % len(ring)
        rotated = [*ring[start:], *ring[:start]]
        yield from (session for session in rotated if session.client_id != last)
        yield from (session for session in rotated if session.client_id == last)


def _resource(session: Session, topic: str) -> definition_pb2.Resource:
    """The topic as this client names it."""
    for declared in session.settings.publishing.topics:
        if declared.name == topic:
            return declared
    return definition_pb2.Resource(name=topic)
