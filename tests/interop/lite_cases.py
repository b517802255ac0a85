"""Lite topics, as an official client of any language must be able to use them.

Collected as `client_cases`.
"""

import time
from typing import Any

import pytest

from interop.client_cases import POLLS_MAX, Line
from interop.official import OfficialError, text
from latermq_proto.latermq.v1 import topic_pb2
from support.machine import patient
from support.wire_client import WireClient

QUOTA_TRIES = 300
BUSY_S = patient(
    60
)  # Python looks for its queues every 5 s, and again if it had no time to hear the answer
SETTINGS_S = 3  # Node.js waits for ever for settings that it is refused, Python for 10 s


class LiteLine(Line):
    """A topic of type lite, and a group of the same name that is bound to it."""

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

    def start_elsewhere(self, parent: str) -> None:
        """A consumer of the group for another parent, which subscribes."""
        name = f"elsewhere-{time.monotonic_ns()}"
        place = {"endpoint": self.endpoint, "group": self.topic, "topic": parent}
        starting = self.official.begin("lite_push", name=name, **place, failures={})
        starting.result(SETTINGS_S)
        self.official.call("subscribe_lite", name=name, lite_topic="a")

    def subscribe(self, consumer: str, lite_topic: str) -> None:
        """Python may not know the broker's quota yet: it does not wait for its settings."""
        for _ in range(QUOTA_TRIES):
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
def lite(official: Any, broker: Any, wire: WireClient, name: str) -> LiteLine:
    wire.create_topic(name, type=topic_pb2.LITE)
    return LiteLine(official, broker.endpoint, name)


class LiteCases:
    def test_lite_push_consumer_gets_them_in_order_with_retries(self, lite: LiteLine) -> None:
        bodies = {key: [f"{key}{number}" for number in range(4)] for key in ("a", "b")}
        for number in range(4):
            for key, sent in bodies.items():
                lite.send(sent[number], lite_topic=key)
        push = lite.lite_push("a", "b", failures={"a1": 1})
        got = lite.official.wait_consumed(push, 9, BUSY_S)
        for key, sent in bodies.items():
            consumed = [text(one) for one in got if one["lite_topic"] == key]
            assert list(dict.fromkeys(consumed)) == sent
        lite.send("late", lite_topic="b")
        assert text(lite.official.wait_consumed(push, 10)[-1]) == "late"
        lite.official.call("shutdown", name=push)

    def test_lite_push_consumer_reads_what_it_subscribes_to(self, lite: LiteLine) -> None:
        push = lite.lite_push("a")
        lite.send("b0", lite_topic="b")
        lite.send("a0", lite_topic="a")
        assert [text(one) for one in lite.official.wait_consumed(push, 1)] == ["a0"]
        lite.subscribe(push, "b")
        assert text(lite.official.wait_consumed(push, 2)[-1]) == "b0"
        lite.official.call("unsubscribe_lite", name=push, lite_topic="a")
        lite.send("a1", lite_topic="a")
        lite.send("b1", lite_topic="b")
        consumed = [text(one) for one in lite.official.wait_consumed(push, 3)]
        assert consumed == ["a0", "b0", "b1"]
        lite.official.call("shutdown", name=push)

    def test_lite_push_consumer_of_another_parent_is_refused(
        self, lite: LiteLine, wire: WireClient
    ) -> None:
        """Its settings are; where a client starts in spite of that, its subscription is."""
        push = lite.lite_push("a")
        other = f"{lite.topic}_2"
        wire.create_topic(other, type=topic_pb2.LITE)
        with pytest.raises((OfficialError, TimeoutError)):
            lite.start_elsewhere(other)
        lite.official.call("shutdown", name=push)

    def test_lite_simple_consumer_reads_the_lite_topics_it_chose(self, lite: LiteLine) -> None:
        for key in ("a", "b", "c"):
            for number in range(2):
                lite.send(f"{key}{number}", lite_topic=key)
        consumer = lite.lite_simple("a", "c")
        got = lite.told(consumer, 4)
        assert sorted(got) == [("a", "a0", 1), ("a", "a1", 1), ("c", "c0", 1), ("c", "c1", 1)]
        assert [one for one in got if one[0] == "a"] == [("a", "a0", 1), ("a", "a1", 1)]
        lite.subscribe(consumer, "b")
        assert lite.told(consumer, 2) == [("b", "b0", 1), ("b", "b1", 1)]
        lite.official.call("unsubscribe_lite", name=consumer, lite_topic="a")
        lite.send("a2", lite_topic="a")
        lite.send("c2", lite_topic="c")
        assert lite.told(consumer, 1) == [("c", "c2", 1)]

    def test_lite_topic_waits_for_what_is_not_acknowledged(self, lite: LiteLine) -> None:
        for body in ("a0", "a1"):
            lite.send(body, lite_topic="a")
        consumer = lite.lite_simple("a", "b")
        first = lite.receive_one(consumer, count_max=1)
        lite.send("b0", lite_topic="b")
        assert text(lite.receive_one(consumer)) == "b0"
        lite.official.call("change_invisible", name=consumer, ref=first["ref"], seconds=0)
        assert lite.told(consumer, 2) == [("a", "a0", 2), ("a", "a1", 1)]
