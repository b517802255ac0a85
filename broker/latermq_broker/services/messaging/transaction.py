"""EndTransaction, and the question to producers of which nobody has said how they ended.

Once a second the halves that are due for a check are handed, a bounded number, to producers that
publish their topic and hold a telemetry stream open. The question goes round among them, and never
twice in a row to the same if there is another. A producer may answer with EndTransaction, or not at
all; then the next one is asked after `transaction.check_interval_ms`.

The question holds the whole half message. So where users have names it goes to those whom `asking`
allows at that moment: the user who sent it, and users who may read the topic too. Of one that came
while users had no names, the right to publish has to do.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from latermq_broker.deferred import Later
from latermq_broker.engine.state.model import HalfEvent, OrphanCheck
from latermq_broker.errors import BadRequestError, InvalidTransactionIdError, StoreFullError
from latermq_broker.services.call.answers import Caller
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.clients.session import Session
from latermq_broker.services.clients.shards import Shards
from latermq_broker.services.wire import wire
from latermq_broker.services.wire.wire_stored import orphan_command
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

log = logging.getLogger("latermq.services")

CHECKS_MAX: Final = 256  # in one round, of all topics together
CHECK_BYTES_MAX: Final = 8 << 20  # the first one goes out whatever its size
UNREAD_MAX: Final = 16  # commands; a producer that reads no faster is not asked

_EVENTS: Final = {
    definition_pb2.COMMIT: HalfEvent.COMMIT,
    definition_pb2.ROLLBACK: HalfEvent.ROLLBACK,
}


class Asking(IntEnum):
    """Which half messages of a topic a producer may be shown."""

    NONE = 0
    OWN = 1  # of its user, and those that nobody sent by name
    ALL = 2


class Ring(NamedTuple):
    """The producers of one topic that may be asked now."""

    sessions: Sequence[tuple[Session, Asking]]
    users: frozenset[str]  # access keys, of those for OWN
    any: bool  # one of them may be asked about ALL

    def serves(self, sender: str) -> bool:
        """Tell whether one of them may be asked about this user's half messages."""
        return self.any or sender in self.users or (not sender and bool(self.sessions))


def anybody(session: Session, topic: str) -> Asking:
    """Let any session be asked about all: users have no names."""
    return Asking.ALL


class TransactionService:
    def __init__(
        self,
        rooms: Rooms,
        asking: Callable[[Session, str], Asking] = anybody,
        shards: Shards | None = None,
    ) -> None:
        self._shards = shards
        self._asking = asking
        self._engine = rooms.engine
        self._committer = rooms.committer
        self._sessions = rooms.sessions
        self._turn = 0

    def end_transaction(
        self, request: service_pb2.EndTransactionRequest, caller: Caller
    ) -> bytes | Later[bytes]:
        """Deliver a half message, or never; at any age, whoever asks and whatever `source` says.

        UNSPECIFIED is "not known yet": nothing happens.

        Raises:
            IllegalTopicError: against the rules of names.
            InvalidTransactionIdError: blank, unknown, of another message, or ended the other way.
            BadRequestError: a resolution that does not exist.
            ElsewhereError: the half message is in another shard.
        """
        topic = wire.topic_name(request.topic)
        if not request.transaction_id.strip():
            raise InvalidTransactionIdError("transaction_id is blank")
        if request.resolution == definition_pb2.TRANSACTION_RESOLUTION_UNSPECIFIED:
            return wire.OK_FIELD
        event = _EVENTS.get(request.resolution)
        if event is None:
            raise BadRequestError(f"transaction resolution {int(request.resolution)} is unknown")
        transaction_id = request.transaction_id
        if self._shards is not None:
            transaction_id = self._shards.own_handle(transaction_id, caller.call)
        self._engine.transactions.end(
            topic, transaction_id, request.message_id, event, self._committer.now_ms()
        )
        return self._committer.acknowledged(wire.OK_FIELD)

    def check_orphans(self) -> None:
        """Ask producers, every second or so, how transactions ended."""
        transactions = self._engine.transactions
        topics = transactions.waiting_topics()
        if not topics:
            return
        producers = self._sessions.publishers(topics)
        share = max(1, CHECKS_MAX // max(1, len(producers)))
        room_bytes = CHECK_BYTES_MAX
        now_ms = self._committer.now_ms()
        try:
            for topic, sessions in producers.items():
                ring = self._ring(topic, sessions)
                unreached: set[str] = set()  # users of whom no producer reads
                for first in transactions.waiting(topic, share if room_bytes > 0 else 0):
                    sender = transactions.sender(first)
                    if sender in unreached or not ring.serves(sender):
                        transactions.pass_over(first)
                        continue
                    check = transactions.check(first, now_ms)
                    if check is None:
                        continue  # damaged, given up
                    asked = self._ask(topic, ring, sender, check)
                    if asked is None:
                        unreached.add(sender)  # the others of the topic may be asked about theirs
                        transactions.pass_over(first)
                        continue
                    transactions.asked(first, asked.client_id, now_ms)
                    room_bytes -= len(check.rest)
                    if room_bytes <= 0:
                        break
        except StoreFullError as error:
            log.warning("disk full: producers are not asked", extra={"reason": str(error)})
        self._committer.leased()

    def _ring(self, topic: str, sessions: Sequence[Session]) -> Ring:
        """List those of the topic's producers that may be asked, as their rights are now."""
        asked = [(session, self._asking(session, topic)) for session in sessions]
        asked = [each for each in asked if each[1] is not Asking.NONE]
        users = frozenset(_user(session) for session, _ in asked)
        return Ring(asked, users, any(asking is Asking.ALL for _, asking in asked))

    def _ask(self, topic: str, ring: Ring, sender: str, check: OrphanCheck) -> Session | None:
        """Ask one of the ring; None: nobody reads."""
        for session in self._candidates(ring, sender, check.asked_client):
            shown = str if self._shards is None else self._shards.handle
            command = orphan_command(_resource(session, topic), check, shown)
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

    def _candidates(self, ring: Ring, sender: str, last: str) -> Iterator[Session]:
        """List in turn those who may be asked, whoever was asked last at the end."""
        sessions = ring.sessions
        start = self._turn % len(sessions)
        at_the_end: Session | None = None
        for index in range(len(sessions)):
            session, asking = sessions[(start + index) % len(sessions)]
            if asking is not Asking.ALL and sender not in ("", _user(session)):
                continue
            if session.client_id == last:
                at_the_end = session
            else:
                yield session
        if at_the_end is not None:
            yield at_the_end


def _user(session: Session) -> str:
    """Find the access key of who opened the session."""
    return session.owner.access_key if session.owner is not None else ""


def _resource(session: Session, topic: str) -> definition_pb2.Resource:
    """Name the topic as this client names it."""
    for declared in session.settings.publishing.topics:
        if declared.name == topic:
            return declared
    return definition_pb2.Resource(name=topic)
