"""Clients by id: what they told us about themselves, and how to reach them.

A session begins with a client's first settings and ends with its termination or after
`server.client_silent_ms_max` without a sign of life. It does not end with a telemetry stream: some
clients go on for hours on heartbeats alone. A client may hold several streams; commands go to the
newest. Where a new client finds no room, one that has departed goes first (`departed.py`).

A client id is its user's: who opened its session or, without one, holds leases or subscriptions
under it. Who holds so is forgotten as a session would be.

    settings ──→ known ──seen──→ known ──terminate / silent too long / room is wanted──→ forgotten
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import Final, NamedTuple

from latermq_broker.catalog.access import User
from latermq_broker.catalog.shares import Shares, count_up, key_of
from latermq_broker.config.auth import AuthConfig
from latermq_broker.config.config import ServerConfig
from latermq_broker.errors import TooManyRequestsError
from latermq_broker.services.clients.client_quirks import Quirk, quirks_of
from latermq_broker.services.clients.departed import Departed
from latermq_broker.services.clients.group_filters import GroupFilters
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

log = logging.getLogger("latermq.services")


class ClientKind(IntEnum):
    """Numbers are v2.ClientType's."""

    UNSPECIFIED = 0
    PRODUCER = 1
    PUSH_CONSUMER = 2
    SIMPLE_CONSUMER = 3
    PULL_CONSUMER = 4
    LITE_PUSH_CONSUMER = 5
    LITE_SIMPLE_CONSUMER = 6


STREAM_UNREAD_BYTES_MAX: Final = 1 << 20  # one command waits whatever its size
UNREAD_BYTES_MAX: Final = 32 << 20  # of all streams
CONNECTION_SHARE: Final = 8  # clients of one connection hold at most this part of all settings
HOLDERS_AT_ONCE: Final = 1_000  # ids without a session that one look at the silent forgets
DEPARTED_AT_ONCE: Final = 16  # departed clients that one new client has forgotten for its room
LITE_KINDS: Final = frozenset({ClientKind.LITE_PUSH_CONSUMER, ClientKind.LITE_SIMPLE_CONSUMER})


class Unread:
    """Bytes that wait on all telemetry streams together."""

    def __init__(self) -> None:
        self.bytes = 0


class CommandStream:
    """What waits to be written on one telemetry stream; its end, when someone decides it.

    A list and a future where asyncio.Queue has four deques: 3 KiB less of each idle client.
    """

    def __init__(self, commands_max: int, unread: Unread) -> None:
        self._commands_max = commands_max
        self._unread = unread
        self._bytes = 0  # of commands that wait here
        self._waiting: list[bytes] = []
        self._looked_for: asyncio.Future[None] | None = None  # its reader waits for the next
        self._error: Exception | None = None
        self._ended = False

    def put(self, command: service_pb2.TelemetryCommand, unread_max: int = 0) -> bool:
        """Queue a command.

        False when the stream does not read and is full, or holds `unread_max` already.

        And when it was ended, or too much waits on all streams together.
        """
        if self._ended:
            return False
        if len(self._waiting) >= min(self._commands_max, unread_max or self._commands_max):
            return False
        data = command.SerializeToString()
        if self._bytes and self._bytes + len(data) > STREAM_UNREAD_BYTES_MAX:
            return False
        if self._unread.bytes + len(data) > UNREAD_BYTES_MAX:
            return False
        self._bytes += len(data)
        self._unread.bytes += len(data)
        self._waiting.append(data)
        self._wake()
        return True

    def forget(self) -> None:
        """Give up what still waits: nobody will read it."""
        self._ended = True
        self._unread.bytes -= self._bytes
        self._bytes = 0
        self._waiting.clear()

    def end(self, error: Exception | None = None) -> None:
        """Finish after what was put before; with `error` raised to the transport, if any."""
        self._error = self._error or error
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._looked_for is not None and not self._looked_for.done():
            self._looked_for.set_result(None)

    async def commands(self) -> AsyncIterator[bytes]:
        """Yield what is put, to one reader; raise what it was ended with."""
        while self._waiting or not self._ended:
            if not self._waiting:
                self._looked_for = asyncio.get_running_loop().create_future()
                await self._looked_for
                self._looked_for = None
                continue
            command = self._waiting.pop(0)
            self._bytes -= len(command)
            self._unread.bytes -= len(command)
            yield command
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback has this frame, and its caller's with the requests


@dataclass(slots=True)
class Session:
    client_id: str
    kind: ClientKind
    group: str  # "" for producers
    topics: frozenset[str]  # published or subscribed, as declared
    settings: definition_pb2.Settings  # as last answered
    language: str  # headers, as sent; "" when absent
    version: str
    seen_ms: int
    service: str = ""  # whose worker it is, as its app says; "": no app's
    since_ms: int = 0  # when it became known; set by `Sessions`
    peer: str = ""  # `host:port` of the connection its settings came on
    connection_id: str = ""  # of that connection
    held_bytes: int = 0  # for what the client told of itself
    owner: User | None = None  # who opened it, as that user was then; None: nobody is asked
    streams: list[CommandStream] = field(default_factory=list)  # newest last

    @property
    def quirks(self) -> Quirk:
        return quirks_of(self.language, self.version)

    @property
    def lite(self) -> bool:
        return self.kind in LITE_KINDS

    @property
    def consumes(self) -> bool:
        return self.kind is not ClientKind.PRODUCER


class _NoRoomError(TooManyRequestsError):
    """A client finds no room that those who departed may make: its user's, or anybody's."""

    def __init__(self, text: str, *, any_helps: bool) -> None:
        super().__init__(text)
        self.any_helps = any_helps


class _Holder(NamedTuple):
    access_key: str
    seen_ms: int


class Sessions:
    """All sessions, the longest silent first."""

    def __init__(
        self,
        config: ServerConfig,
        shares: Shares | None = None,
        holds: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """
        Args:
            shares: of the sessions that users may have.
            holds: tells whether a client id has leases that the broker renews.
        """
        self._config = config
        self.silent_ms_max = config.client_silent_ms_max
        self._shares = shares or Shares(AuthConfig())
        self._of_users: dict[str, int] = {}  # sessions by access key
        self._sessions: dict[str, Session] = {}  # kept in order of `seen_ms`
        self.filters = GroupFilters(config.client_silent_ms_max)
        self._held_bytes = 0  # of all sessions
        self._held_by_connection: Counter[str] = Counter()
        self._unread = Unread()
        self._holders: dict[str, _Holder] = {}  # by client ids without a session, likewise
        self._open_streams: set[CommandStream] = set()
        self._departed = Departed(holds)
        self._draining = False

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, client_id: str) -> Session | None:
        return self._sessions.get(client_id)

    def put(self, session: Session) -> None:
        """Begin a session, or replace one's settings; its open streams are kept.

        Without room for it, departed clients that hold nothing are forgotten first.

        Raises:
            TooManyRequestsError: `server.clients_max` others exist, or its user has its share; or
                too much is held already for what clients, or those of this connection, told.
        """
        known = self._sessions.get(session.client_id)
        owner = key_of(session.owner)
        self._departed.remove(session.client_id, owner)
        for _ in range(DEPARTED_AT_ONCE):
            try:
                self._check_room(session, known)
                break
            except _NoRoomError as error:
                client_id = self._departed.oldest(owner, any_user=error.any_helps)
                departed = self._sessions.get(client_id)
                if departed is None:
                    raise
                self._forget(departed)
                self.hold(client_id, departed.owner, departed.seen_ms)  # it may hold leases
                log.info("departed client forgotten", extra={"client_id": client_id})
        else:
            self._check_room(session, known)
        session.since_ms = session.seen_ms
        if known is not None:
            session.streams = known.streams
            session.since_ms = known.since_ms
            self._forget(known, replaced=True)
        count_up(self._of_users, owner)
        self._holders.pop(session.client_id, None)
        self._sessions[session.client_id] = session
        if session.consumes and not session.lite:
            self.filters.add(session.client_id, session.settings, session.seen_ms)
        else:
            self.filters.remove(session.client_id)
        self._held_bytes += session.held_bytes
        self._held_by_connection[session.connection_id] += session.held_bytes

    def _check_room(self, session: Session, known: Session | None) -> None:
        """Check that one client more may be known. Raises TooManyRequestsError."""
        if known is None:
            most, held = self._config.clients_max, len(self._sessions)
            of_user = self._of_users.get(key_of(session.owner), 0)
            for count, any_helps in ((0, True), (of_user, False)):
                try:
                    self._shares.check(
                        session.owner, "clients", "server.clients_max", most, held, count
                    )
                except TooManyRequestsError as error:
                    raise _NoRoomError(str(error), any_helps=any_helps) from None
        freed = 0 if known is None else known.held_bytes
        bytes_max = self._config.settings_bytes_max
        total = self._held_bytes - freed + session.held_bytes
        of_one = self._held_by_connection[session.connection_id] + session.held_bytes
        if known is not None and known.connection_id == session.connection_id:
            of_one -= freed
        if session.held_bytes <= freed:
            return
        words = "the settings of {} would hold {} bytes, at most {} are allowed"
        if of_one > bytes_max // CONNECTION_SHARE:
            whose, most = "the clients of one connection", bytes_max // CONNECTION_SHARE
            raise TooManyRequestsError(words.format(whose, of_one, most))
        if total > bytes_max:
            raise _NoRoomError(words.format("all clients", total, bytes_max), any_helps=True)

    def _forget(self, session: Session, *, replaced: bool = False) -> None:
        """Take a session out, off its user's share, and give back what it held.

        Unless its client has another one, what the client wanted is forgotten, too.
        """
        del self._sessions[session.client_id]
        self._departed.remove(session.client_id, key_of(session.owner))
        count_up(self._of_users, key_of(session.owner), -1)
        self._held_bytes -= session.held_bytes
        self._held_by_connection[session.connection_id] -= session.held_bytes
        if not self._held_by_connection[session.connection_id]:
            del self._held_by_connection[session.connection_id]
        if not replaced:
            self.filters.remove(session.client_id)

    def owner(self, client_id: str) -> str | None:
        """Find the access key of the user whose client id this is; None: nobody's so far."""
        session = self._sessions.get(client_id)
        if session is not None:
            return session.owner.access_key if session.owner is not None else None
        holder = self._holders.get(client_id)
        return holder.access_key if holder is not None else None

    def hold(self, client_id: str, user: User | None, now_ms: int) -> None:
        """Note that something is held under this id: it is the user's, also without a session.

        Of too many such ids the longest silent is forgotten.
        """
        if user is None or client_id in self._sessions:
            return
        holders = self._holders
        holders.pop(client_id, None)
        if len(holders) >= self._config.clients_max:
            del holders[next(iter(holders))]
        holders[client_id] = _Holder(user.access_key, now_ms)

    def all(self) -> Iterator[Session]:
        """List all sessions; valid until a session begins or ends."""
        return iter(self._sessions.values())

    def seen(self, client_id: str, now_ms: int) -> Session | None:
        """Note a sign of life; None for a client without a session."""
        session = self._sessions.pop(client_id, None)
        if session is not None:
            session.seen_ms = now_ms
            self._sessions[client_id] = session
            self._departed.remove(client_id, key_of(session.owner))
        elif (holder := self._holders.pop(client_id, None)) is not None:
            self._holders[client_id] = _Holder(holder.access_key, now_ms)
        return session

    def open_stream(self) -> CommandStream:
        """Open a telemetry stream that has begun; its client is known with its first settings.

        Once `end_streams` was called it ends at once.
        """
        stream = CommandStream(self._config.commands_per_client_max, self._unread)
        self._open_streams.add(stream)
        if self._draining:
            stream.end()
        return stream

    def attach(self, client_id: str, stream: CommandStream) -> None:
        """Make `stream` the newest of a client that has a session."""
        session = self._sessions[client_id]
        if stream not in session.streams:
            session.streams.append(stream)
        self._departed.remove(client_id, key_of(session.owner))

    def close_stream(self, client_id: str, stream: CommandStream) -> bool:
        """Forget a stream that has ended; the session stays.

        Returns:
            False: it was the last open stream of a client that has a session.
        """
        self._open_streams.discard(stream)
        stream.forget()
        session = self._sessions.get(client_id)
        if session is not None and stream in session.streams:
            session.streams.remove(stream)
            if not session.streams and not session.lite:  # lite topics are held, too
                self._departed.add(client_id, key_of(session.owner))
            return bool(session.streams)
        return True

    def push(
        self, client_id: str, command: service_pb2.TelemetryCommand, unread_max: int = 0
    ) -> bool:
        """Send a command on the client's newest stream.

        False: no session, no open stream, or a stream that does not read. With `unread_max` also
        one that has not read so many.
        """
        session = self._sessions.get(client_id)
        if session is None or not session.streams:
            return False
        return session.streams[-1].put(command, unread_max)

    def publishers(self, topics: Collection[str]) -> dict[str, list[Session]]:
        """List per topic the producers that declared it and can be reached; none: no entry."""
        publishers: dict[str, list[Session]] = {}
        for session in self._sessions.values():
            if not session.consumes and session.streams:
                for topic in session.topics.intersection(topics):
                    publishers.setdefault(topic, []).append(session)
        return publishers

    def remove(self, client_id: str) -> Session | None:
        """Forget a client that leaves, and whose id it was."""
        self._holders.pop(client_id, None)
        session = self._sessions.get(client_id)
        if session is not None:
            self._forget(session)
        else:
            self.filters.remove(client_id)
        return session

    def expire(self, now_ms: int) -> list[Session]:
        """Forget and return the clients that were silent for too long; their streams end."""
        silent: list[Session] = []
        for session in self._sessions.values():
            if now_ms - session.seen_ms <= self._config.client_silent_ms_max:
                break
            silent.append(session)
        for session in silent:
            self._forget(session)
            for stream in session.streams:
                stream.end()
            log.info("client silent", extra={"client_id": session.client_id})
        self.filters.expire(now_ms - self._config.client_silent_ms_max)
        for client_id, holder in list(islice(self._holders.items(), HOLDERS_AT_ONCE)):
            if now_ms - holder.seen_ms <= self._config.client_silent_ms_max:
                break
            del self._holders[client_id]
        return silent

    def end_streams(self) -> None:
        """Finish every telemetry stream, for draining; the clients come back elsewhere or later.

        Those that come back here at once, on a connection that still drains, end too.
        """
        self._draining = True
        for stream in self._open_streams:
            stream.end()
