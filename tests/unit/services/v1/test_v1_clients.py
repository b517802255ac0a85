"""latermq.v1 Clients: who is there, what each holds, and letting one go."""

from collections.abc import Iterator

import pytest

from latermq_broker.services.clients.session import ClientKind, Session
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2.service_pb2 import TelemetryCommand
from latermq_proto.latermq.v1.client_pb2 import (
    GetClientRequest,
    GetClientResponse,
    KickClientRequest,
    KickClientResponse,
    ListClientsRequest,
    ListClientsResponse,
)
from support.v1_rig import V1Rig

CLIENTS = "/latermq.v1.Clients"
HOLDER = "client-1"  # who receives in the rig


@pytest.fixture
def rig() -> Iterator[V1Rig]:
    rig = V1Rig()
    yield rig
    rig.close()


def connect(rig: V1Rig, client_id: str, group: str = "", topic: str = "orders") -> Session:
    session = Session(
        client_id=client_id,
        kind=ClientKind.PUSH_CONSUMER if group else ClientKind.PRODUCER,
        group=group,
        topics=frozenset({topic}),
        settings=v2.Settings(),
        language="JAVA",
        version="5.2.0",
        seen_ms=rig.now_ms,
        peer="192.0.2.1:4711",
    )
    rig.sessions.put(session)
    return session


def listed(rig: V1Rig, **wanted: object) -> ListClientsResponse:
    request = ListClientsRequest(**wanted)  # type: ignore[arg-type]
    return rig.call(f"{CLIENTS}/ListClients", request, ListClientsResponse)


def shown(rig: V1Rig, client_id: str) -> GetClientResponse:
    return rig.call(
        f"{CLIENTS}/GetClient", GetClientRequest(client_id=client_id), GetClientResponse
    )


def kicked(rig: V1Rig, client_id: str) -> KickClientResponse:
    request = KickClientRequest(client_id=client_id)
    return rig.call(f"{CLIENTS}/KickClient", request, KickClientResponse)


def test_who_is_there_by_id_page_by_page(rig: V1Rig) -> None:
    for name in ("c", "a", "b"):
        connect(rig, name, group="billing" if name != "c" else "", topic=f"t-{name}")
    page = listed(rig, page_size=2)
    assert [client.client_id for client in page.clients] == ["a", "b"]
    page = listed(rig, page_size=2, page_token=page.next_page_token)
    assert [client.client_id for client in page.clients] == ["c"]
    assert page.next_page_token == ""
    assert [c.client_id for c in listed(rig, group="billing").clients] == ["a", "b"]
    assert [c.client_id for c in listed(rig, topic="t-b").clients] == ["b"]
    assert listed(rig, page_size=-1).status.code == v2.Code.BAD_REQUEST


def test_what_it_is_and_since_when(rig: V1Rig) -> None:
    connect(rig, "a", group="billing")
    since_ms = rig.now_ms
    rig.advance(5_000)
    connect(rig, "a", group="billing")  # its settings again
    client = shown(rig, "a").client
    assert (client.type, client.group, list(client.topics)) == (2, "billing", ["orders"])
    assert (client.language, client.version) == ("JAVA", "5.2.0")
    assert client.address == "192.0.2.1:4711"
    assert (client.since_at_ms, client.seen_at_ms) == (since_ms, rig.now_ms)
    assert not client.reachable
    rig.sessions.attach("a", rig.sessions.open_stream())
    assert shown(rig, "a").client.reachable


def test_what_it_holds_of_what(rig: V1Rig) -> None:
    for number in range(3):
        rig.send_message(f"m-{number}")
    rig.send_message("other", topic="other")
    rig.receive("billing", count=2, lease_ms=60_000)
    rig.advance(1_000)
    rig.receive("billing", count=1, lease_ms=60_000)
    rig.receive("mail", topic="other", count=1, lease_ms=60_000)
    assert [(c.client_id, c.held_count, c.type) for c in listed(rig).clients] == [(HOLDER, 4, 0)]
    held = shown(rig, HOLDER).client.held
    assert [(each.group, each.topic, each.count) for each in held] == [
        ("billing", "orders", 3), ("mail", "other", 1),
    ]  # fmt: skip
    assert held[0].oldest_leased_at_ms == rig.now_ms - 1_000
    assert held[0].first_due_at_ms == rig.now_ms + 59_000


def test_a_filter_finds_who_holds_and_never_said_what_it_is(rig: V1Rig) -> None:
    rig.send_message("m-1")
    rig.send_message("other", topic="other")
    rig.receive("billing", lease_ms=60_000)
    rig.receive("mail", topic="other", lease_ms=60_000)
    connect(rig, "a", group="billing")
    assert [c.client_id for c in listed(rig, group="billing").clients] == ["a", HOLDER]
    assert [c.held_count for c in listed(rig, group="billing").clients] == [0, 2]
    assert [c.client_id for c in listed(rig, group="mail").clients] == [HOLDER]
    assert [c.client_id for c in listed(rig, topic="other").clients] == [HOLDER]
    assert not listed(rig, group="mail", topic="orders").clients
    kicked(rig, HOLDER)
    rig.advance(1_100)
    assert not listed(rig, group="mail").clients
    connect(rig, "b", group="declared")
    assert [c.client_id for c in listed(rig, group="declared").clients] == ["b"]


def test_a_filter_for_what_is_not_there(rig: V1Rig) -> None:
    assert listed(rig, group="nowhere").status.code == v2.Code.CONSUMER_GROUP_NOT_FOUND
    assert listed(rig, topic="nowhere").status.code == v2.Code.TOPIC_NOT_FOUND


def test_after_a_restart_it_is_still_known_who_holds(rig: V1Rig) -> None:
    rig.send_message("m")
    rig.receive("billing", lease_ms=60_000)
    engine = rig.engine
    state = engine._state
    state.clients._names.clear()  # as far as memory goes
    assert [client.client_id for client in listed(rig).clients] == [HOLDER]


def test_a_client_that_is_kicked_gives_back_what_it_holds(rig: V1Rig) -> None:
    rig.send_message("m-1")
    rig.send_message("m-2")
    rig.receive("billing", count=2, lease_ms=600_000)
    session = connect(rig, HOLDER, group="billing")
    rig.sessions.attach(HOLDER, rig.sessions.open_stream())
    assert kicked(rig, HOLDER).released_count == 2
    assert rig.sessions.get(HOLDER) is None
    assert not session.streams[0].put(TelemetryCommand()), "its stream has ended"
    rig.advance(1_100)
    again = rig.receive("billing", count=2)
    assert [delivered.attempt for delivered in again] == [2, 2]


def test_who_is_not_there(rig: V1Rig) -> None:
    for answer in (shown(rig, "nobody"), kicked(rig, "nobody")):
        assert answer.status.code == v2.Code.NOT_FOUND
        assert "'nobody' is not connected and holds no message" in answer.status.message
    assert shown(rig, "").status.code == v2.Code.BAD_REQUEST
