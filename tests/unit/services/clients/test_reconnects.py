"""Clients asked to open their streams anew: by an operator, and when the broker goes."""

from collections.abc import Iterator

import pytest

from latermq_broker.config.config import ServerConfig
from latermq_broker.services.clients.reconnects import Reconnects
from latermq_broker.services.clients.replies import Replies
from latermq_broker.services.clients.session import ClientKind, CommandStream, Session, Sessions
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2.service_pb2 import TelemetryCommand
from latermq_proto.latermq.v1.broker_pb2 import ReconnectClientsRequest, ReconnectClientsResponse
from support.v1_rig import V1Rig

Code = v2.Code
UNREAD_MAX = 3


class Room:
    def __init__(self) -> None:
        self.sessions = Sessions(ServerConfig(commands_per_client_max=UNREAD_MAX))
        self.replies = Replies(self.sessions)
        self.reconnects = Reconnects(self.sessions, self.replies)

    def client(self, client_id: str, language: str = "JAVA", version: str = "5.2.0") -> Session:
        session = Session(
            client_id=client_id,
            kind=ClientKind.PRODUCER,
            group="",
            topics=frozenset(),
            settings=v2.Settings(),
            language=language,
            version=version,
            seen_ms=0,
        )
        self.sessions.put(session)
        return session

    def stream(self, session: Session) -> CommandStream:
        stream = self.sessions.open_stream()
        self.sessions.attach(session.client_id, stream)
        return stream


@pytest.fixture
def room() -> Room:
    return Room()


async def nonces(stream: CommandStream) -> list[str]:
    """Of the commands to reconnect, the only ones, of a stream that was ended."""
    commands = [TelemetryCommand.FromString(data) async for data in stream.commands()]
    assert all(one.HasField("reconnect_endpoints_command") for one in commands)
    return [one.reconnect_endpoints_command.nonce for one in commands]


async def test_draining_tells_each_client_once_on_its_newest_stream(room: Room) -> None:
    one, two = room.client("c-1"), room.client("c-2")
    older, newer, other = room.stream(one), room.stream(one), room.stream(two)
    room.client("c-3")  # holds no stream
    unknown = room.sessions.open_stream()  # has sent no settings yet
    question = room.replies.nonce()
    room.reconnects.drain()
    assert (await nonces(older), await nonces(unknown)) == ([], [])
    told = await nonces(newer) + await nonces(other)
    assert len({question, *told}) == 3


async def test_a_client_that_does_not_read_is_told_so_often_and_no_more(room: Room) -> None:
    session = room.client("c-1")
    stream = room.stream(session)
    asked = [room.reconnects.ask(session) for _ in range(UNREAD_MAX + 1)]
    assert asked == [True] * UNREAD_MAX + [False]
    room.reconnects.drain()
    assert len(await nonces(stream)) == UNREAD_MAX


async def test_the_old_stream_ends_with_the_command_for_those_deaf_to_it(room: Room) -> None:
    session = room.client("c-1", "HTTP", "1.0.8")
    old = room.stream(session)
    assert room.reconnects.ask(session)
    assert len(await nonces(old)) == 1
    assert not room.reconnects.ask(session)
    new = room.stream(session)
    room.reconnects.drain()
    assert len(await nonces(new)) == 1


async def test_other_streams_are_their_clients_to_end(room: Room) -> None:
    session = room.client("c-1")
    room.stream(session)
    assert [room.reconnects.ask_all() for _ in range(2)] == [1, 1]


@pytest.fixture
def rig() -> Iterator[V1Rig]:
    rig = V1Rig()
    yield rig
    rig.close()


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (ReconnectClientsRequest(), Code.BAD_REQUEST),
        (ReconnectClientsRequest(client_id=""), Code.BAD_REQUEST),
        (ReconnectClientsRequest(all=False), Code.BAD_REQUEST),
        (ReconnectClientsRequest(client_id="nobody"), Code.NOT_FOUND),
        (ReconnectClientsRequest(all=True), Code.OK),
    ],
)
def test_what_is_answered_without_clients(
    rig: V1Rig, request_: ReconnectClientsRequest, code: int
) -> None:
    path = "/latermq.v1.Brokers/ReconnectClients"
    answer = rig.call(path, request_, ReconnectClientsResponse)
    assert (answer.status.code, answer.told, answer.out_of_reach) == (code, 0, 0)
