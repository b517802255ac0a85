"""SendMessage and QueryRoute, as the official producer uses them."""

import time
from typing import Any

import pytest

from interop.official import OfficialClient, OfficialError, text
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support import wire_requests
from support.machine import patient
from support.wire_client import WireClient, now_ms

Code = definition_pb2.Code
MIB = 1 << 20


@pytest.fixture
def producer(official: OfficialClient, broker: Any, name: str) -> str:
    """A producer that knows the test's topic. Its name."""
    official.call("producer", name=name, endpoint=broker.endpoint, topics=[name])
    return name


def receive_one(
    official: OfficialClient, endpoint: str, name: str, *, group: str = "", wait_s: int = 10
) -> dict[str, Any]:
    """The topic's one message, acknowledged, by a simple consumer of its own."""
    reader = f"{name}-reader"
    group = group or name
    topics = {name: "*"}
    official.call(
        "simple", name=reader, endpoint=endpoint, group=group, topics=topics, wait_s=wait_s
    )
    messages = official.call("receive", name=reader)
    assert len(messages) == 1
    official.call("ack", name=reader, ref=messages[0]["ref"])
    message: dict[str, Any] = messages[0]
    return message


@pytest.mark.parametrize("way", ["sync", "async"])
def test_send_message(
    official: OfficialClient, broker: Any, producer: str, name: str, way: str
) -> None:
    receipt = official.call("send", name=producer, topic=name, text="an order", way=way)
    message = receive_one(official, broker.endpoint, name)
    assert receipt["message_id"] == message["message_id"]
    assert receipt["offset"] == 0
    assert not receipt["recall_handle"]
    assert text(message) == "an order"
    assert message["attempt"] == 1
    assert message["type"] == definition_pb2.MessageType.NORMAL
    assert not message["corrupted"]
    assert abs(message["born_ms"] - receipt["sent_ms"]) <= 1_000  # the client sends whole seconds


def test_send_message_keeps_tag_keys_and_properties_in_unicode(
    official: OfficialClient, broker: Any, producer: str, name: str
) -> None:
    sent = {
        "tag": "Zahlung·überfällig",
        "keys": ["заказ-17", "注文 17", "plain"],
        "properties": {"währung": "€", "empty-ish": "·", "emoji": "🐢" * 50},
    }
    official.call("send", name=producer, topic=name, text="grüß dich, 世界", **sent)
    message = receive_one(official, broker.endpoint, name)
    assert text(message) == "grüß dich, 世界"
    assert message["tag"] == sent["tag"]
    assert message["keys"] == sorted(sent["keys"])
    assert message["properties"] == sent["properties"]


def test_send_message_stores_a_dedup_id_once(
    official: OfficialClient, broker: Any, producer: str, name: str
) -> None:
    """By a user property; the receipt of the second is that of the first."""
    once = {"properties": {"LATERMQ_DEDUP_ID": "order-17"}}
    first, second = (
        official.call("send", name=producer, topic=name, text=body, **once)
        for body in ("the order", "the order again")
    )
    assert (second["message_id"], second["offset"]) == (first["message_id"], first["offset"])
    message = receive_one(official, broker.endpoint, name)
    assert (text(message), message["message_id"]) == ("the order", first["message_id"])
    assert message["properties"] == once["properties"]


@pytest.mark.parametrize("body_bytes", [MIB, 4 * MIB - 1000, 4 * MIB])
def test_send_message_with_a_big_body(
    official: OfficialClient, broker: Any, producer: str, name: str, body_bytes: int
) -> None:
    official.call("send", name=producer, topic=name, body_bytes=body_bytes)
    message = receive_one(official, broker.endpoint, name)
    assert message["body_bytes"] == body_bytes
    assert not message["corrupted"]  # the client compares the body with its digest


def test_send_message_refuses_a_body_over_4_mib(
    official: OfficialClient, wire: WireClient, producer: str, name: str
) -> None:
    """The client refuses by itself what the broker's settings forbid; so does the broker."""
    with pytest.raises(OfficialError) as refusal:
        official.call("send", name=producer, topic=name, body_bytes=4 * MIB + 1)
    assert refusal.value.code is None
    answer = wire.send(wire_requests.message(name, bytes(4 * MIB + 1)))
    assert answer.status.code == Code.MESSAGE_BODY_TOO_LARGE
    assert not answer.entries
    got = wire.receive(name, name, wait_ms=100)
    assert got.status.code == Code.MESSAGE_NOT_FOUND
    assert not got.messages


def test_send_message_delivers_a_delayed_one_on_time(
    official: OfficialClient, broker: Any, producer: str, name: str
) -> None:
    """Never early, at most 1 s late; the client knows whole seconds only."""
    due_s = int(time.time()) + 3
    receipt = official.call("send", name=producer, topic=name, text="later", deliver_at_s=due_s)
    assert receipt["recall_handle"]
    message = receive_one(official, broker.endpoint, name)
    assert text(message) == "later"
    assert message["type"] == definition_pb2.MessageType.DELAY
    assert message["delivery_ms"] == due_s * 1000
    late_ms = message["at_ms"] - due_s * 1000
    assert 0 <= late_ms <= patient(1_000)


def test_send_message_with_a_past_delivery_time_is_delivered_at_once(
    official: OfficialClient, broker: Any, producer: str, name: str
) -> None:
    past_s = int(time.time()) - 60
    official.call("send", name=producer, topic=name, text="overdue", deliver_at_s=past_s)
    message = receive_one(official, broker.endpoint, name)
    assert text(message) == "overdue"


def test_send_message_is_due_to_the_millisecond(
    wire: WireClient, name: str, record_property: Any
) -> None:
    """What the official client cannot ask for: 20 due times, a receive waiting for each."""
    wire.route(name)
    lateness_ms = []
    for _ in range(20):
        due_ms = now_ms() + 57
        sent = wire.send(wire_requests.message(name, b"soon", deliver_at_ms=due_ms))
        assert sent.status.code == Code.OK
        got = wire.receive(name, name)
        assert [bytes(one.body) for one in got.messages] == [b"soon"]
        due = got.messages[0].system_properties.delivery_timestamp
        assert wire_requests.timestamp_ms(due) == due_ms
        lateness_ms.append(got.at_ms - due_ms)
        assert got.broker_ms >= due_ms
        wire.ack(name, name, got.messages[0].system_properties.receipt_handle)
    lateness_ms.sort()
    record_property("lateness_ms", lateness_ms)
    assert lateness_ms[0] >= 0
    assert lateness_ms[len(lateness_ms) // 2] < patient(100), (
        lateness_ms
    )  # generous: tests share a machine


def test_query_route_makes_topics_known_and_unknown_alike(
    official: OfficialClient, broker: Any, name: str
) -> None:
    """One producer sends to twenty topics it never declared; one consumer reads them all."""
    topics = [f"{name}-{index}" for index in range(20)]
    official.call("producer", name=name, endpoint=broker.endpoint, topics=[])
    sending = [official.begin("send", name=name, topic=topic, text=topic) for topic in topics]
    sent = {future.result(patient(30))["message_id"] for future in sending}
    official.call(
        "push",
        name=f"{name}-push",
        endpoint=broker.endpoint,
        group=name,
        topics=dict.fromkeys(topics, "*"),
        failures={},
    )
    consumed = official.wait_consumed(f"{name}-push", len(topics))
    official.call("shutdown", name=f"{name}-push")
    assert sorted(text(one) for one in consumed) == sorted(topics)
    assert all(text(one) == one["topic"] for one in consumed)
    assert {one["message_id"] for one in consumed} == sent


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel", "TBW102", "a" * 128])
def test_query_route_refuses_illegal_names(
    official: OfficialClient, wire: WireClient, broker: Any, topic: str
) -> None:
    client = f"illegal-{topic[:8]}"
    official.call("producer", name=client, endpoint=broker.endpoint, topics=[])
    with pytest.raises(OfficialError, match="route"):  # the client keeps the code to its log
        official.call("send", name=client, topic=topic, text="never")
    assert wire.route(topic).status.code == Code.ILLEGAL_TOPIC
    answer = wire.send(wire_requests.message(topic, b"never"))
    assert answer.status.code == Code.ILLEGAL_TOPIC


@pytest.mark.parametrize("topic", ["", "white space", "per$on", "naïve"])
def test_send_message_refuses_names_the_client_itself_would_not_send(
    wire: WireClient, topic: str
) -> None:
    assert wire.send(wire_requests.message(topic, b"never")).status.code == Code.ILLEGAL_TOPIC


def test_send_message_refuses_reserved_properties(
    official: OfficialClient, producer: str, name: str
) -> None:
    with pytest.raises(OfficialError) as refusal:
        official.call("send", name=producer, topic=name, text="x", properties={"TAGS": "mine"})
    assert refusal.value.code == Code.ILLEGAL_MESSAGE_PROPERTY_KEY
