"""Heartbeats and terminations (protocol.md 2.3, 2.6)."""

from collections.abc import Awaitable
from typing import Any, cast

import pytest

from latermq_broker.config.config import LiteConfig, ServerConfig
from latermq_broker.engine.state.hearing import Hearing
from latermq_broker.services.clients.heartbeat import HeartbeatService
from latermq_broker.services.clients.lite_subscriptions import LiteSubscriptions
from latermq_broker.services.clients.session import ClientKind, Session, Sessions
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2
from support.fake_call import CLIENT_ID, FakeCall
from support.fake_committer import FakeCommitter
from support.messaging import messaging_methods


class FakeEngine:
    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.looks = 0
        self.renewed = {(CLIENT_ID, "g"), (CLIENT_ID, "")}
        """Client id and group of which leases are renewed."""

    @property
    def hearing(self) -> Hearing:
        return Hearing()

    def client_seen(self, client_id: str, now_ms: int, group: str = "") -> bool:
        return self._done("seen", client_id, group)

    def client_gone(self, client_id: str, now_ms: int, group: str = "") -> bool:
        held = self._done("gone", client_id, group)
        self.renewed.discard((client_id, group))
        return held

    def _done(self, what: str, client_id: str, group: str) -> bool:
        renewed = (client_id, group) in self.renewed
        if renewed:
            self.calls.append((what, client_id))
        return renewed

    def end_silent_clients(self, now_ms: int) -> bool:
        self.looks += 1
        return False


class Room:
    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.committer = FakeCommitter(now_ms=0)
        self.sessions = Sessions(ServerConfig())
        self.service = HeartbeatService(
            self.engine, self.committer, self.sessions, LiteSubscriptions(LiteConfig())
        )

    def know(self, kind: ClientKind) -> None:
        self.sessions.put(
            Session(
                client_id=CLIENT_ID,
                kind=kind,
                group="" if kind is ClientKind.PRODUCER else "g",
                topics=frozenset(),
                settings=v2.Settings(),
                language="",
                version="",
                seen_ms=0,
            )
        )

    async def heartbeat(self, group: str = "g") -> int:
        request = service_pb2.HeartbeatRequest(group=v2.Resource(name=group))
        data = await self._call("Heartbeat", request.SerializeToString())
        return service_pb2.HeartbeatResponse.FromString(data).status.code

    async def terminate(self, group: str = "g") -> int:
        request = service_pb2.NotifyClientTerminationRequest(group=v2.Resource(name=group))
        data = await self._call("NotifyClientTermination", request.SerializeToString())
        return service_pb2.NotifyClientTerminationResponse.FromString(data).status.code

    async def _call(self, name: str, data: bytes) -> bytes:
        path = f"/apache.rocketmq.v2.MessagingService/{name}"
        result: Any = messaging_methods(self.service)[path].handler(cast(Any, data), FakeCall())
        return result if isinstance(result, bytes) else await cast(Awaitable[bytes], result)


@pytest.fixture
def room() -> Room:
    return Room()


class TestHeartbeat:
    async def test_a_known_client_goes_on(self, room: Room) -> None:
        room.know(ClientKind.PUSH_CONSUMER)
        room.committer.time_ms = 100_000
        assert await room.heartbeat() == 20000
        room.committer.time_ms = 200_000
        room.service.expire_silent()
        assert room.sessions.get(CLIENT_ID) is not None

    async def test_a_client_without_settings_is_not_recognized_but_its_leases_go_on(
        self, room: Room
    ) -> None:
        assert await room.heartbeat() == 40015
        assert room.engine.calls == [("seen", CLIENT_ID)]

    async def test_nobody_lives_for_a_group_in_which_it_holds_nothing(self, room: Room) -> None:
        assert await room.heartbeat(group="other") == 40015
        assert await room.heartbeat(group="") == 40015
        assert room.engine.calls == []

    async def test_who_is_refused_does_not_live_on(self, room: Room) -> None:
        room.know(ClientKind.PUSH_CONSUMER)
        room.committer.time_ms = 100_000
        assert await room.heartbeat(group="a b") == 40003
        assert room.engine.calls == []
        room.committer.time_ms = 120_001
        room.service.expire_silent()
        assert room.sessions.get(CLIENT_ID) is None

    async def test_a_consumer_needs_a_proper_group(self, room: Room) -> None:
        room.know(ClientKind.SIMPLE_CONSUMER)
        assert await room.heartbeat(group="a b") == 40003

    async def test_a_producer_s_group_is_ignored(self, room: Room) -> None:
        room.know(ClientKind.PRODUCER)
        assert await room.heartbeat(group="") == 20000


class TestTermination:
    async def test_a_client_is_forgotten_and_its_leases_let_go(self, room: Room) -> None:
        room.know(ClientKind.PUSH_CONSUMER)
        assert await room.terminate() == 20000
        assert room.sessions.get(CLIENT_ID) is None
        assert room.engine.calls == [("gone", CLIENT_ID)]
        assert room.committer.waits == 1
        assert await room.terminate() == 40015

    async def test_a_client_without_settings_is_known_by_its_leases(self, room: Room) -> None:
        """After a restart of the broker its leases are known, its settings are not."""
        assert await room.terminate() == 20000
        assert room.engine.calls == [("gone", CLIENT_ID)]
        assert room.committer.waits == 1

    async def test_an_unrecognized_client_is_refused_and_nothing_is_done(self, room: Room) -> None:
        for group in ("other", ""):
            assert await room.terminate(group=group) == 40015
        assert room.engine.calls == []
        assert room.committer.waits == 0

    async def test_a_consumer_with_a_bad_group_stays(self, room: Room) -> None:
        room.know(ClientKind.PUSH_CONSUMER)
        assert await room.terminate(group="") == 40003
        assert room.sessions.get(CLIENT_ID) is not None

    async def test_a_producer_s_group_is_ignored(self, room: Room) -> None:
        room.know(ClientKind.PRODUCER)
        assert await room.terminate(group="") == 20000


async def test_a_silent_client_is_gone_after_two_minutes(room: Room) -> None:
    room.know(ClientKind.PUSH_CONSUMER)
    room.committer.time_ms = 120_000
    room.service.expire_silent()
    assert room.engine.calls == []
    room.committer.time_ms = 120_001
    room.service.expire_silent()
    assert room.engine.calls == [("gone", CLIENT_ID)]
    assert room.committer.waits == 1
