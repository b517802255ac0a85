"""Sessions live on signs of life, not on streams."""

from dataclasses import replace

import pytest

from latermq_broker.catalog.access import User
from latermq_broker.catalog.shares import Shares
from latermq_broker.config.auth import AuthConfig
from latermq_broker.config.config import ServerConfig
from latermq_broker.errors import TooManyRequestsError
from latermq_broker.services.clients.session import (
    CONNECTION_SHARE,
    STREAM_UNREAD_BYTES_MAX,
    UNREAD_BYTES_MAX,
    ClientKind,
    CommandStream,
    Session,
    Sessions,
    Unread,
)
from latermq_proto.apache.rocketmq.v2.definition_pb2 import Settings
from latermq_proto.apache.rocketmq.v2.service_pb2 import TelemetryCommand

SILENT_MS = 120_000


def session(client_id: str, seen_ms: int = 0, group: str = "g") -> Session:
    return Session(
        client_id=client_id,
        kind=ClientKind.PUSH_CONSUMER if group else ClientKind.PRODUCER,
        group=group,
        topics=frozenset({"t"}),
        settings=Settings(),
        language="JAVA",
        version="5.2.1",
        seen_ms=seen_ms,
    )


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(ServerConfig(clients_max=3, commands_per_client_max=2))


async def drained(stream: CommandStream) -> list[bytes]:
    stream.end()
    return [command async for command in stream.commands()]


class TestLife:
    def test_silence_ends_a_session_and_only_too_long_a_silence(self, sessions: Sessions) -> None:
        sessions.put(session("a"))
        assert sessions.expire(SILENT_MS) == []
        assert [gone.client_id for gone in sessions.expire(SILENT_MS + 1)] == ["a"]
        assert sessions.get("a") is None

    def test_a_sign_of_life_starts_the_clock_anew(self, sessions: Sessions) -> None:
        sessions.put(session("a"))
        sessions.put(session("b"))
        assert sessions.seen("a", 1_000) is not None
        assert [gone.client_id for gone in sessions.expire(SILENT_MS + 500)] == ["b"]
        assert [gone.client_id for gone in sessions.expire(SILENT_MS + 1_001)] == ["a"]

    def test_an_unknown_client_gets_no_session_by_being_seen(self, sessions: Sessions) -> None:
        assert sessions.seen("a", 1) is None
        assert len(sessions) == 0

    def test_the_number_of_clients_is_bounded_and_known_ones_may_go_on(
        self, sessions: Sessions
    ) -> None:
        for name in "abc":
            sessions.put(session(name))
        with pytest.raises(TooManyRequestsError):
            sessions.put(session("d"))
        sessions.put(session("b", seen_ms=5))
        sessions.remove("a")
        sessions.put(session("d"))
        assert len(sessions) == 3


class TestDeparted:
    """Clients whose streams ended without a farewell make room when it is wanted."""

    @pytest.fixture
    def holders(self) -> set[str]:
        return set()

    @pytest.fixture
    def sessions(self, holders: set[str]) -> Sessions:
        return Sessions(ServerConfig(clients_max=3), holds=holders.__contains__)

    @staticmethod
    def enter(sessions: Sessions, name: str, group: str = "") -> CommandStream:
        stream = sessions.open_stream()
        sessions.put(session(name, group=group))
        sessions.attach(name, stream)
        return stream

    @staticmethod
    def names(sessions: Sessions) -> set[str]:
        return {each.client_id for each in sessions.all()}

    def test_programs_that_come_and_go_leave_room(self, sessions: Sessions) -> None:
        stays = self.enter(sessions, "stays")
        for number in range(10):
            sessions.close_stream(f"p{number}", self.enter(sessions, f"p{number}"))
        assert self.names(sessions) == {"stays", "p8", "p9"}
        assert stays in sessions.get("stays").streams  # type: ignore[union-attr]

    def test_who_left_first_goes_first(self, sessions: Sessions) -> None:
        streams = {name: self.enter(sessions, name) for name in "abc"}
        for name in "cab":
            sessions.close_stream(name, streams[name])
        self.enter(sessions, "d")
        assert self.names(sessions) == {"a", "b", "d"}

    def test_who_holds_leases_or_was_heard_since_stays(
        self, sessions: Sessions, holders: set[str]
    ) -> None:
        holders.add("a")
        for name in "abc":
            sessions.close_stream(name, self.enter(sessions, name, "g"))
        sessions.seen("b", 5)
        self.enter(sessions, "d")
        assert self.names(sessions) == {"a", "b", "d"}
        with pytest.raises(TooManyRequestsError):
            self.enter(sessions, "e")
        holders.clear()
        self.enter(sessions, "e")
        assert self.names(sessions) == {"b", "d", "e"}

    def test_one_that_is_back_with_a_new_stream_stays(self, sessions: Sessions) -> None:
        for name in "abc":
            sessions.close_stream(name, self.enter(sessions, name))
        self.enter(sessions, "a")
        self.enter(sessions, "d")
        assert self.names(sessions) == {"a", "c", "d"}

    def test_a_user_s_share_is_made_free_by_the_user_s_own_alone(self) -> None:
        shares = Shares(AuthConfig(user_share_percent=50, admin_reserve_percent=0))
        sessions = Sessions(ServerConfig(clients_max=4), shares)
        users = [User(access_key=key, secret="s", admin=False, created_ms=0) for key in "xy"]

        def depart(name: str, user: User) -> None:
            stream = sessions.open_stream()
            sessions.put(replace(session(name, group=""), owner=user))
            sessions.attach(name, stream)
            sessions.close_stream(name, stream)

        depart("y1", users[1])
        for number in range(3):
            depart(f"x{number}", users[0])
        assert self.names(sessions) == {"y1", "x1", "x2"}
        assert sessions.owner("x0") == "x"

    def test_settings_of_who_departed_make_room_for_others(self) -> None:
        sessions = Sessions(ServerConfig(settings_bytes_max=4 << 20))
        for number in range(20):
            name, stream = f"p{number}", sessions.open_stream()
            told = replace(session(name, group=""), held_bytes=400 << 10, connection_id=name)
            sessions.put(told)
            sessions.attach(name, stream)
            sessions.close_stream(name, stream)
        assert len(sessions) == 10


class TestWhatIsHeld:
    """For what clients tell of themselves: over all, and for those of one connection."""

    BYTES_MAX = 4 << 20

    @pytest.fixture
    def sessions(self) -> Sessions:
        return Sessions(ServerConfig(settings_bytes_max=self.BYTES_MAX))

    def told(self, client_id: str, held_bytes: int, connection_id: str = "") -> Session:
        made = session(client_id)
        made.held_bytes, made.connection_id = held_bytes, connection_id or client_id
        return made

    def test_all_clients_together(self, sessions: Sessions) -> None:
        share = self.BYTES_MAX // CONNECTION_SHARE
        for number in range(CONNECTION_SHARE):
            sessions.put(self.told(f"c{number}", share))
        with pytest.raises(TooManyRequestsError, match=f"at most {self.BYTES_MAX}"):
            sessions.put(self.told("d", 1))
        assert sessions.get("d") is None
        sessions.remove("c0")
        sessions.put(self.told("d", share))
        sessions.expire(SILENT_MS + 1)
        for number in range(CONNECTION_SHARE):
            sessions.put(self.told(f"e{number}", share))

    def test_those_of_one_connection(self, sessions: Sessions) -> None:
        share = self.BYTES_MAX // CONNECTION_SHARE
        for number in range(4):
            sessions.put(self.told(f"c{number}", share // 4, "x"))
        with pytest.raises(TooManyRequestsError, match=f"one connection .* at most {share}"):
            sessions.put(self.told("d", 1, "x"))
        sessions.put(self.told("d", 1, "y"))

    def test_who_tells_more_is_refused_and_stays_what_it_was(self, sessions: Sessions) -> None:
        share = self.BYTES_MAX // CONNECTION_SHARE
        before = self.told("a", share, "x")
        sessions.put(before)
        with pytest.raises(TooManyRequestsError):
            sessions.put(self.told("a", share + 1, "x"))
        assert sessions.get("a") is before
        for _ in range(3):  # the same again, or less, is no more
            sessions.put(self.told("a", share, "x"))
        sessions.put(self.told("a", 0, "z"))
        sessions.put(self.told("b", share, "x"))


class TestStreams:
    async def test_commands_go_to_the_newest_stream(self, sessions: Sessions) -> None:
        sessions.put(session("a"))
        old, new = sessions.open_stream(), sessions.open_stream()
        sessions.attach("a", old)
        sessions.attach("a", new)
        assert sessions.push("a", TelemetryCommand(settings=Settings()))
        assert await drained(old) == []
        assert len(await drained(new)) == 1

    async def test_the_older_one_takes_over_when_the_newest_ends(self, sessions: Sessions) -> None:
        sessions.put(session("a"))
        old, new = sessions.open_stream(), sessions.open_stream()
        sessions.attach("a", old)
        sessions.attach("a", new)
        sessions.close_stream("a", new)
        assert sessions.push("a", TelemetryCommand())
        assert len(await drained(old)) == 1

    async def test_settings_sent_again_keep_the_streams(self, sessions: Sessions) -> None:
        sessions.put(session("a"))
        stream = sessions.open_stream()
        sessions.attach("a", stream)
        sessions.put(session("a", seen_ms=7))
        assert sessions.push("a", TelemetryCommand())

    async def test_a_session_outlives_its_streams_and_then_cannot_be_reached(
        self, sessions: Sessions
    ) -> None:
        sessions.put(session("a"))
        stream = sessions.open_stream()
        sessions.attach("a", stream)
        sessions.close_stream("a", stream)
        assert sessions.get("a") is not None
        assert not sessions.push("a", TelemetryCommand())
        assert not sessions.push("nobody", TelemetryCommand())

    async def test_a_stream_that_does_not_read_is_bounded(self, sessions: Sessions) -> None:
        sessions.put(session("a"))
        stream = sessions.open_stream()
        sessions.attach("a", stream)
        assert [sessions.push("a", TelemetryCommand()) for _ in range(3)] == [True, True, False]

    async def test_what_waits_on_a_stream_is_bounded_in_bytes(self) -> None:
        unread = Unread()
        stream, other = CommandStream(100, unread), CommandStream(100, unread)
        large = TelemetryCommand(settings=Settings())
        large.settings.user_agent.hostname = "x" * (STREAM_UNREAD_BYTES_MAX // 2 + 1)
        assert [stream.put(large) for _ in range(3)] == [True, False, False]
        assert other.put(large)
        assert await anext(stream.commands()) == large.SerializeToString()
        assert stream.put(large)
        stream.forget()
        other.forget()
        assert unread.bytes == 0

    async def test_what_waits_on_all_streams_is_bounded_in_bytes(self) -> None:
        unread = Unread()
        large = TelemetryCommand(settings=Settings())
        large.settings.user_agent.hostname = "x" * (UNREAD_BYTES_MAX // 8)
        streams = [CommandStream(100, unread) for _ in range(8)]
        assert [stream.put(large) for stream in streams] == [True] * 7 + [False]
        assert unread.bytes <= UNREAD_BYTES_MAX
        streams[0].forget()
        assert streams[-1].put(large)

    async def test_an_end_with_an_error_comes_after_what_was_put(self) -> None:
        stream = CommandStream(8, Unread())
        stream.put(TelemetryCommand())
        stream.end(ValueError("over"))
        commands = stream.commands()
        assert await anext(commands) == b""
        with pytest.raises(ValueError, match="over"):
            await anext(commands)

    async def test_draining_ends_streams_without_a_session_too(self, sessions: Sessions) -> None:
        stream = sessions.open_stream()
        sessions.end_streams()
        assert [command async for command in stream.commands()] == []

    async def test_a_stream_that_is_opened_while_it_drains_ends_too(
        self, sessions: Sessions
    ) -> None:
        sessions.end_streams()
        assert [command async for command in sessions.open_stream().commands()] == []

    async def test_a_stream_that_was_ended_takes_nothing_more(self, sessions: Sessions) -> None:
        sessions.put(session("a"))
        stream = sessions.open_stream()
        sessions.attach("a", stream)
        stream.end()
        assert not sessions.push("a", TelemetryCommand())

    async def test_expiry_ends_the_streams(self, sessions: Sessions) -> None:
        sessions.put(session("a"))
        stream = sessions.open_stream()
        sessions.attach("a", stream)
        sessions.expire(SILENT_MS + 1)
        assert [command async for command in stream.commands()] == []
