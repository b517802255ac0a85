"""Topics of type priority, with the official client."""

import pytest

from interop.client_cases import Line
from interop.official import OfficialClient, OfficialError, text
from latermq_proto.latermq.v1 import topic_pb2
from support.broker_process import BrokerProcess
from support.wire_client import WireClient


@pytest.fixture
def line(official: OfficialClient, broker: BrokerProcess, wire: WireClient, name: str) -> Line:
    wire.create_topic(name, type=topic_pb2.PRIORITY)
    return Line(official, broker.endpoint, name)


def test_higher_priorities_come_first(line: Line) -> None:
    for priority in (3, 0, 9, 5, 12):
        line.send(f"p{priority}", priority=priority)
    consumer = line.simple()
    bodies = []
    for _ in range(4):
        message = line.receive_one(consumer, count_max=1)
        bodies.append(text(message))
        assert f"p{message['priority']}" == bodies[-1]
        line.ack(consumer, message)
    assert bodies[:2] in (["p9", "p12"], ["p12", "p9"])  # ten priorities: both are the highest
    assert bodies[2:] == ["p5", "p3"]
    line.send("late", priority=1)
    assert [text(message) for message in line.receive(consumer)] == ["late", "p0"]


def test_a_retry_keeps_its_priority(line: Line) -> None:
    line.send("urgent", priority=8)
    line.send("idle", priority=1)
    consumer = line.simple()
    first = line.receive_one(consumer, count_max=1)
    assert text(first) == "urgent"
    line.official.call("change_invisible", name=consumer, ref=first["ref"], seconds=0)
    line.send("idle too", priority=0)
    again = line.receive(consumer, count_max=2)
    assert [(text(message), message["attempt"]) for message in again] == [
        ("urgent", 2),
        ("idle", 1),
    ]


def test_a_push_consumer_gets_them_all(line: Line) -> None:
    for priority in (2, 7):
        line.send(f"p{priority}", priority=priority)
    push = line.push()
    got = line.official.wait_consumed(push, 2)
    assert {text(message): message["priority"] for message in got} == {"p7": 7, "p2": 2}


def test_what_has_none_is_refused(line: Line) -> None:
    """By the client itself: it asks what the topic accepts."""
    with pytest.raises(OfficialError):
        line.send("none")
