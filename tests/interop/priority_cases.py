"""Topics of type priority, as an official client of any language must be able to use them.

Collected as `client_cases`.
"""

import time
from typing import Any

import pytest

from interop.client_cases import Line
from interop.official import OfficialError, text
from latermq_proto.latermq.v1 import topic_pb2
from support.wire_client import WireClient


@pytest.fixture
def urgent(official: Any, broker: Any, wire: WireClient, name: str) -> Line:
    wire.create_topic(name, type=topic_pb2.PRIORITY)
    return Line(official, broker.endpoint, name)


class PriorityCases:
    def test_priority_higher_ones_come_first(self, urgent: Line) -> None:
        for priority in (3, 1, 9, 5, 12):
            urgent.send(f"p{priority}", priority=priority)
        consumer = urgent.simple()
        bodies = []
        for _ in range(4):
            message = urgent.receive_one(consumer, count_max=1)
            bodies.append(text(message))
            if "priority" in message:  # Go does not show it
                assert f"p{message['priority']}" == bodies[-1]
            urgent.ack(consumer, message)
        assert sorted(bodies[:2]) == ["p12", "p9"]  # ten priorities: both are the highest
        assert bodies[2:] == ["p5", "p3"]
        urgent.send("late", priority=2)
        assert [text(message) for message in urgent.receive(consumer)] == ["late", "p1"]

    def test_priority_zero_is_the_lowest(self, urgent: Line) -> None:
        for priority in (0, 1):
            urgent.send(f"p{priority}", priority=priority)
        assert [text(one) for one in urgent.receive(urgent.simple())] == ["p1", "p0"]

    def test_priority_is_kept_by_a_retry(self, urgent: Line) -> None:
        urgent.send("urgent", priority=8)
        urgent.send("idle", priority=2)
        consumer = urgent.simple()
        first = urgent.receive_one(consumer, count_max=1)
        assert text(first) == "urgent"
        urgent.official.call("change_invisible", name=consumer, ref=first["ref"], seconds=1)
        urgent.send("idle too", priority=1)
        time.sleep(1.2)
        again = urgent.receive(consumer, count_max=2)
        assert [(text(message), message["attempt"]) for message in again] == [
            ("urgent", 2),
            ("idle", 1),
        ]

    def test_priority_with_a_push_consumer(self, urgent: Line) -> None:
        for priority in (2, 7):
            urgent.send(f"p{priority}", priority=priority)
        consumer = urgent.push()
        got = urgent.official.wait_consumed(consumer, 2)
        assert sorted(map(text, got)) == ["p2", "p7"]
        urgent.official.call("shutdown", name=consumer)

    def test_priority_missing_is_refused(self, urgent: Line) -> None:
        """By the client itself, where it asks what the topic accepts; by the broker else."""
        with pytest.raises(OfficialError):
            urgent.send("none")
