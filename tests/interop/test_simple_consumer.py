"""ReceiveMessage, AckMessage, ChangeInvisibleDuration: the official simple consumer."""

import time
from typing import Any

import pytest

from interop.official import OfficialClient, OfficialError, text
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support.machine import patient, patient_s
from support.wire_client import now_ms

Code = definition_pb2.Code


class Line:
    """A topic with an official producer, and official simple consumers on demand."""

    def __init__(self, official: OfficialClient, endpoint: str, name: str) -> None:
        self.official = official
        self.topic = name
        self._endpoint = endpoint
        official.call("producer", name=name, endpoint=endpoint, topics=[name])

    def send(self, body: str, **fields: Any) -> dict[str, Any]:
        sent: dict[str, Any] = self.official.call(
            "send", name=self.topic, topic=self.topic, text=body, **fields
        )
        return sent

    def consumer(self, group: str = "", tags: str = "*", wait_s: int = 10) -> str:
        """A new consumer's name; `group` is the topic's name unless given."""
        name = f"{self.topic}-{group}-{tags}-{time.monotonic_ns()}"
        self.official.call(
            "simple",
            name=name,
            endpoint=self._endpoint,
            group=group or self.topic,
            topics={self.topic: tags},
            wait_s=wait_s,
        )
        return name

    def receive_again(self, consumer: str, **fields: Any) -> list[dict[str, Any]]:
        """Receive until something comes: a lease that a slow machine needs outlasts one poll."""
        until_s = time.monotonic() + patient(30)
        while not (messages := self.receive(consumer, **fields)):
            assert time.monotonic() < until_s
        return messages

    def receive(self, consumer: str, **fields: Any) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.official.call("receive", name=consumer, **fields)
        return messages

    def ack(self, consumer: str, message: dict[str, Any], handle: str = "") -> None:
        self.official.call("ack", name=consumer, ref=message["ref"], handle=handle)


@pytest.fixture
def line(official: OfficialClient, broker: Any, name: str) -> Line:
    return Line(official, broker.endpoint, name)


def drain(line: Line, consumer: str, count: int) -> list[str]:
    """Receive and acknowledge until `count` bodies came; sorted."""
    bodies: list[str] = []
    while len(bodies) < count:
        messages = line.receive(consumer)
        assert messages, f"only {bodies} came"
        for message in messages:
            line.ack(consumer, message)
            bodies.append(text(message))
    return sorted(bodies)


def test_receive_message_filters_by_sql(line: Line) -> None:
    for body, tag, price in (("a", "red", 5), ("b", "green", 7), ("c", None, 9), ("d", "red", 11)):
        line.send(body, tag=tag, properties={"price": str(price)})
    dear = line.consumer(tags="sql:price > 6 AND (TAGS = 'red' OR TAGS IS NULL)")
    assert drain(line, dear, 2) == ["c", "d"]
    some = line.consumer(group=f"{line.topic}-some", tags="sql:price BETWEEN 5 AND 7.5")
    assert drain(line, some, 2) == ["a", "b"]


def test_ack_message_ends_a_message(line: Line) -> None:
    line.send("once")
    consumer = line.consumer(wait_s=1)
    [message] = line.receive(consumer, invisible_s=patient_s(1))
    line.ack(consumer, message)
    time.sleep(patient_s(1) + 0.1)  # the lease would have ended
    assert line.receive(consumer) == []


def test_receive_message_again_after_the_lease(line: Line) -> None:
    """Not before it ends; the same message, attempt 2; the handle of attempt 1 is refused."""
    line.send("twice", tag="t", keys=["k"], properties={"p": "v"})
    consumer = line.consumer()
    asked_ms = now_ms()
    [first] = line.receive(consumer, invisible_s=1)
    [second] = line.receive(consumer, invisible_s=60)
    assert asked_ms + 1_000 <= second["at_ms"] <= first["at_ms"] + patient(2_000)
    assert (first["attempt"], second["attempt"]) == (1, 2)
    same = ("message_id", "topic", "body", "tag", "keys", "properties", "born_ms", "born_host")
    assert {key: first[key] for key in same} == {key: second[key] for key in same}
    assert first["handle"] != second["handle"]
    with pytest.raises(OfficialError) as refusal:
        line.ack(consumer, first)
    assert refusal.value.code == Code.INVALID_RECEIPT_HANDLE
    line.ack(consumer, second)


def test_change_invisible_duration_extends_the_lease(line: Line) -> None:
    """It is still leased when the first lease would be over; only the new handle acknowledges."""
    line.send("long work")
    consumer, other = line.consumer(), line.consumer(wait_s=1)
    [message] = line.receive(consumer, invisible_s=patient_s(1))
    handle = line.official.call(
        "change_invisible", name=consumer, ref=message["ref"], seconds=patient_s(20)
    )
    assert handle != message["handle"]
    time.sleep(patient_s(1) + 0.1)
    assert line.receive(other) == []
    with pytest.raises(OfficialError) as refusal:
        line.ack(consumer, message, handle=message["handle"])
    assert refusal.value.code == Code.INVALID_RECEIPT_HANDLE
    line.ack(consumer, message, handle=handle)


def test_change_invisible_duration_of_zero_gives_it_back_at_once(line: Line) -> None:
    line.send("not mine")
    consumer = line.consumer()
    [message] = line.receive(consumer, invisible_s=60)
    line.official.call("change_invisible", name=consumer, ref=message["ref"], seconds=0)
    [again] = line.receive(consumer)
    assert again["attempt"] == 2
    assert again["at_ms"] - message["at_ms"] < patient(2_000)
    line.ack(consumer, again)


def test_change_invisible_duration_of_an_ended_lease_is_refused(line: Line) -> None:
    line.send("too late")
    consumer = line.consumer()
    [first] = line.receive(consumer, invisible_s=1)
    [second] = line.receive(consumer, invisible_s=30)
    with pytest.raises(OfficialError) as refusal:
        line.official.call("change_invisible", name=consumer, ref=first["ref"], seconds=5)
    assert refusal.value.code == Code.INVALID_RECEIPT_HANDLE
    line.ack(consumer, second)


def test_ack_message_refuses_what_never_was_a_handle(line: Line) -> None:
    line.send("kept")
    consumer = line.consumer()
    [message] = line.receive(consumer, invisible_s=patient_s(1))
    for handle in ("nonsense", message["handle"][:-1], message["handle"] + "x", "ä"):
        with pytest.raises(OfficialError) as refusal:
            line.ack(consumer, message, handle=handle)
        assert refusal.value.code == Code.INVALID_RECEIPT_HANDLE
    [again] = line.receive_again(consumer)
    assert text(again) == "kept"
    line.ack(consumer, again)


def test_receive_message_filters_by_tag(line: Line) -> None:
    for body, tag in (("a", "red"), ("b", "green"), ("c", "blue"), ("d", ""), ("e", "red")):
        line.send(body, tag=tag)
    assert drain(line, line.consumer("reds", "red"), 2) == ["a", "e"]
    assert drain(line, line.consumer("two", "green || blue"), 2) == ["b", "c"]
    assert drain(line, line.consumer("all", "*"), 5) == ["a", "b", "c", "d", "e"]
    for group, tags in (("reds", "red"), ("two", "green || blue"), ("all", "*")):
        assert line.receive(line.consumer(group, tags, wait_s=1)) == []


def test_receive_message_for_two_groups_independently(line: Line) -> None:
    for body in ("1", "2", "3"):
        line.send(body)
    left, right = line.consumer("left"), line.consumer("right")
    assert drain(line, left, 3) == ["1", "2", "3"]
    leased = line.receive(right, count_max=1)
    line.send("4")
    assert drain(line, left, 1) == ["4"]
    line.ack(right, leased[0])
    assert drain(line, right, 3) == sorted({"1", "2", "3", "4"} - {text(leased[0])})


def test_receive_message_shares_a_topic_within_a_group(line: Line) -> None:
    """Two consumers of one group: each message goes to one of them."""
    for index in range(20):
        line.send(str(index))
    first, second = line.consumer(), line.consumer()
    bodies = [text(one) for one in line.receive(first, count_max=10)]
    assert len(bodies) == 10
    while len(bodies) < 20:
        got = line.receive(second, count_max=10)
        assert got
        bodies += [text(one) for one in got]
    assert sorted(bodies, key=int) == [str(index) for index in range(20)]


def test_receive_message_long_poll_is_woken_at_once(line: Line, record_property: Any) -> None:
    """A consumer that waits has the message as soon as its sender is told it was sent."""
    line.send("warm up")
    consumer = line.consumer()
    drain(line, consumer, 1)
    latencies_ms = []
    for _ in range(5):
        waiting = line.official.begin("receive", name=consumer)
        time.sleep(0.3)
        sent = line.send("wake up")
        [message] = waiting.result(patient(15))
        latencies_ms.append(message["at_ms"] - sent["sent_ms"])
        line.ack(consumer, message)
    record_property("latencies_ms", latencies_ms)
    assert sorted(latencies_ms)[2] < patient(200), latencies_ms  # both clients' threads included


def test_receive_message_without_a_message_ends_with_the_polling_time(line: Line) -> None:
    line.send("first")
    consumer = line.consumer(wait_s=1)
    drain(line, consumer, 1)
    asked_ms = now_ms()
    assert line.receive(consumer) == []
    assert 900 <= now_ms() - asked_ms < patient(3_000)


def test_receive_message_refuses_illegal_groups(line: Line) -> None:
    """System groups, and names that are too long; the client itself refuses other characters."""
    for group in ("CID_RMQ_SYS_mine", "g" * 121):
        with pytest.raises(OfficialError) as refusal:
            line.receive(line.consumer(group, wait_s=1))
        assert refusal.value.code == Code.ILLEGAL_CONSUMER_GROUP
