"""FIFO, as an official client of any language must be able to use it. Collected as `client_cases`.

What is checked is order: per message group, in what the broker hands out and in what a listener
has done. Official push consumers retry by themselves, and forward what never gets through.
"""

from typing import Any

import pytest

from interop.client_cases import Line
from interop.official import text
from latermq_proto.latermq.v1 import dead_letter_pb2, group_pb2, topic_pb2
from support.wire_client import WireClient, require_ok

GROUPS = ("a", "b", "c")
EACH = 8
ATTEMPTS_MAX = 3


class FifoLine(Line):
    """A FIFO topic, and a FIFO group of the same name."""

    def send_in_order(self, numbers: range = range(EACH)) -> None:
        """Bodies a0 b0 c0 a1 …, each of the message group that it begins with."""
        for number in numbers:
            for group in GROUPS:
                self.send(f"{group}{number}", message_group=group)


@pytest.fixture
def fifo(official: Any, broker: Any, wire: WireClient, name: str) -> FifoLine:
    request = topic_pb2.CreateTopicRequest(name=name, type=topic_pb2.FIFO, queue_count=4)
    require_ok(wire.call(wire.topics.CreateTopic, request))
    return FifoLine(official, broker.endpoint, name)


def fifo_group(wire: WireClient, name: str, *, park: bool = False) -> None:
    group = group_pb2.Group(
        name=name,
        fifo=True,
        max_attempts=ATTEMPTS_MAX,
        on_dead=group_pb2.PARK if park else group_pb2.SKIP,
    )
    group.backoff.ladder.delays_ms.append(1_000)
    request = group_pb2.CreateGroupRequest(group=group)
    require_ok(wire.call(wire.groups.CreateGroup, request))


def of_group(bodies: list[str], group: str) -> list[str]:
    return [body for body in bodies if body.startswith(group)]


def in_order(bodies: list[str]) -> None:
    for group in GROUPS:
        assert of_group(bodies, group) == [f"{group}{number}" for number in range(EACH)]


def done(line: FifoLine, consumer: str) -> list[str]:
    """Bodies that the listener of a push consumer has taken as done, in that order."""
    events = [event for event in list(line.official.events) if event.get("consumer") == consumer]
    return [text(event["message"]) for event in events if not event["failing"]]


class FifoCases:
    def test_fifo_simple_consumer_receives_each_message_group_in_order(
        self, fifo: FifoLine, wire: WireClient
    ) -> None:
        fifo_group(wire, fifo.topic)
        fifo.send_in_order()
        consumer = fifo.simple()
        bodies: list[str] = []
        while len(bodies) < len(GROUPS) * EACH:
            messages = fifo.receive(consumer, count_max=5)
            assert messages, f"only {bodies} came"
            for message in messages:
                fifo.ack(consumer, message)
                bodies.append(text(message))
        in_order(bodies)

    def test_fifo_blocks_the_message_group_alone(self, fifo: FifoLine, wire: WireClient) -> None:
        fifo_group(wire, fifo.topic)
        fifo.send_in_order(range(2))
        consumer = fifo.simple()
        held = fifo.receive_one(consumer, count_max=1)
        group = text(held)[0]
        bodies = [text(one) for one in fifo.receive(consumer)]
        assert len(bodies) == 4
        assert not of_group(bodies, group)
        fifo.ack(consumer, held)
        assert text(fifo.receive_one(consumer)) == f"{group}1"

    def test_fifo_push_consumer_keeps_the_order_while_it_fails(
        self, fifo: FifoLine, wire: WireClient
    ) -> None:
        fifo_group(wire, fifo.topic)
        fifo.send_in_order()
        consumer = fifo.push({"a1": 1, "b3": 2})
        fifo.official.wait_for(
            lambda: len(done(fifo, consumer)) == len(GROUPS) * EACH, "all to be done", 60
        )
        in_order(done(fifo, consumer))
        fifo.official.call("shutdown", name=consumer)
        assert not wire.receive(fifo.topic, fifo.topic, wait_ms=200).messages

    def test_fifo_push_consumer_forwards_what_never_gets_through(
        self, fifo: FifoLine, wire: WireClient
    ) -> None:
        """In a group that parks, what comes behind it waits for the letter."""
        fifo_group(wire, fifo.topic, park=True)
        fifo.send_in_order(range(3))
        consumer = fifo.push({"a1": -1})
        listing = dead_letter_pb2.ListDeadLettersRequest(group=fifo.topic)
        letters: list[Any] = []

        def dead() -> bool:
            letters[:] = wire.call(wire.dead_letters.ListDeadLetters, listing).letters
            return bool(letters) and len(done(fifo, consumer)) >= 7

        fifo.official.wait_for(dead, "a1 to die and the others to be done", 60)
        assert (letters[0].message_group, letters[0].parks) == ("a", True)
        bodies = done(fifo, consumer)
        assert of_group(bodies, "a") == ["a0"]
        assert [of_group(bodies, group) for group in "bc"] == [
            ["b0", "b1", "b2"],
            ["c0", "c1", "c2"],
        ]
        drop = dead_letter_pb2.DropDeadLettersRequest(group=fifo.topic)
        assert list(wire.dead_letters.DropDeadLetters(drop))[-1].changed_count == 1
        fifo.official.wait_for(lambda: "a2" in done(fifo, consumer), "a2 to be done", 30)
        fifo.official.call("shutdown", name=consumer)
