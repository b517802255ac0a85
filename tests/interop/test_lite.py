"""Lite topics with the official client: its producer, its lite simple and lite push consumers."""

import time
from typing import Any

import pytest

from interop.client_cases import POLLS_MAX, Line
from interop.official import OfficialClient, OfficialError, text
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import topic_pb2
from support.broker_process import BrokerProcess
from support.wire_client import WireClient

Code = definition_pb2.Code


class LiteLine(Line):
    def lite_simple(self, *lite_topics: str, wait_s: int = 6) -> str:
        return self._consumer("lite_simple", lite_topics, wait_s=wait_s)

    def lite_push(self, *lite_topics: str, failures: dict[str, int] | None = None) -> str:
        return self._consumer("lite_push", lite_topics, failures=failures or {})

    def _consumer(self, kind: str, lite_topics: tuple[str, ...], **fields: Any) -> str:
        name = f"{self.topic}-{time.monotonic_ns()}"
        place = {"endpoint": self.endpoint, "group": self.topic, "topic": self.topic}
        self.official.call(kind, name=name, **place, **fields)
        for lite_topic in lite_topics:
            self.subscribe(name, lite_topic)
        return name

    def subscribe(self, consumer: str, lite_topic: str) -> None:
        """It may not know the broker's quota yet: it does not wait for its settings."""
        for _ in range(100):
            try:
                self.official.call("subscribe_lite", name=consumer, lite_topic=lite_topic)
            except OfficialError as error:
                if "quota: 0" not in error.message:
                    raise
                time.sleep(0.1)
            else:
                return
        raise AssertionError("the consumer never heard of its quota")

    def told(self, consumer: str, count: int, **fields: Any) -> list[tuple[str, str, int]]:
        """(lite topic, body, attempt) of `count` messages, each acknowledged."""
        found = []
        for _ in range(POLLS_MAX):
            for message in self.receive(consumer, **fields):
                found.append((message["lite_topic"], text(message), message["attempt"]))
                self.ack(consumer, message)
            if len(found) >= count:
                break
        return found


@pytest.fixture
def line(official: OfficialClient, broker: BrokerProcess, wire: WireClient, name: str) -> LiteLine:
    wire.create_topic(name, type=topic_pb2.LITE)
    return LiteLine(official, broker.endpoint, name)


def test_a_simple_consumer_reads_the_lite_topics_it_chose(line: LiteLine) -> None:
    for lite_topic in ("a", "b", "c"):
        for number in range(2):
            line.send(f"{lite_topic}{number}", lite_topic=lite_topic)
    consumer = line.lite_simple("a", "c")
    got = line.told(consumer, 4)
    assert sorted(got) == [("a", "a0", 1), ("a", "a1", 1), ("c", "c0", 1), ("c", "c1", 1)]
    assert [one for one in got if one[0] == "a"] == [("a", "a0", 1), ("a", "a1", 1)]
    line.subscribe(consumer, "b")
    assert line.told(consumer, 2) == [("b", "b0", 1), ("b", "b1", 1)]
    line.official.call("unsubscribe_lite", name=consumer, lite_topic="a")
    line.send("a2", lite_topic="a")
    line.send("c2", lite_topic="c")
    assert line.told(consumer, 1) == [("c", "c2", 1)]


def test_a_lite_topic_waits_for_what_is_not_acknowledged(line: LiteLine) -> None:
    for body in ("a0", "a1"):
        line.send(body, lite_topic="a")
    consumer = line.lite_simple("a", "b")
    first = line.receive_one(consumer, count_max=1)
    line.send("b0", lite_topic="b")
    assert text(line.receive_one(consumer)) == "b0"
    line.official.call("change_invisible", name=consumer, ref=first["ref"], seconds=0)
    assert line.told(consumer, 2) == [("a", "a0", 2), ("a", "a1", 1)]


def test_a_push_consumer_gets_them_in_order_with_retries(line: LiteLine) -> None:
    bodies = {lite: [f"{lite}{number}" for number in range(4)] for lite in ("a", "b")}
    for number in range(4):
        for lite_topic in bodies:
            line.send(bodies[lite_topic][number], lite_topic=lite_topic)
    push = line.lite_push("a", "b", failures={"a1": 1})
    got = line.official.wait_consumed(push, 9)
    for lite_topic, sent in bodies.items():
        consumed = [text(one) for one in got if one["lite_topic"] == lite_topic]
        assert list(dict.fromkeys(consumed)) == sent
    line.send("late", lite_topic="b")
    assert text(line.official.wait_consumed(push, 10)[-1]) == "late"


def test_a_group_is_bound_to_its_parent(line: LiteLine, wire: WireClient) -> None:
    line.send("a0", lite_topic="a")
    consumer = line.lite_simple("a")
    assert line.told(consumer, 1) == [("a", "a0", 1)]
    other = f"{line.topic}_2"
    wire.create_topic(other, type=topic_pb2.LITE)
    stranger = f"other-{time.monotonic_ns()}"
    place = {"endpoint": line.endpoint, "group": line.topic, "topic": other}
    line.official.call("lite_simple", name=stranger, **place, wait_s=6)
    with pytest.raises(OfficialError):  # its settings were refused: it never hears of a quota
        line.official.call("subscribe_lite", name=stranger, lite_topic="a")
