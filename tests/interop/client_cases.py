"""What an official client of any language must be able to do against the broker.

Collected through a subclass in a test module, which says in its `official` fixture which client it
is. Only what every one of these clients can do is here, so the cases are few.
"""

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from interop.official import OfficialClient, OfficialError, text
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support.broker_process import BrokerProcess
from support.machine import patient, patient_s
from support.wire_client import WireClient, now_ms

Code = definition_pb2.Code

# Push consumers that shut down wait for the long polls they have open.
CONFIG = (
    "[server]\npolling_ms_min = 100\npolling_ms_max = 3000\n"
    "[transaction]\nfirst_check_ms = 1500\ncheck_interval_ms = 1500\n"
)
POLLS_MAX = 6  # until there is something, or there is nothing

LADDER_MS = (1_000, 2_000)
LATE_MS_MAX = patient(1_000)  # a bound for a busy machine, not a measurement
MIB = 1 << 20


class Line:
    """A topic with one official producer, and official consumers on demand."""

    def __init__(
        self, official: OfficialClient, endpoint: str, topic: str, **producer: Any
    ) -> None:
        self.official = official
        self.topic = topic
        self.endpoint = endpoint
        official.call("producer", name=topic, endpoint=endpoint, topics=[topic], **producer)

    def send(self, body: str, **fields: Any) -> dict[str, Any]:
        sent: dict[str, Any] = self.official.call(
            "send", name=self.topic, topic=self.topic, text=body, **fields
        )
        return sent

    def send_at_last(self, body: str) -> None:
        """To a broker that is coming up again: until it is taken."""
        until = time.monotonic() + 30
        while True:
            try:
                self.send(body)
            except OfficialError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)
            else:
                return

    def simple(self, tags: str = "*", *, group: str = "", topic: str = "") -> str:
        """A new simple consumer's name; group and topic are the line's unless given."""
        name = f"{self.topic}-{time.monotonic_ns()}"
        self.official.call(
            "simple",
            name=name,
            endpoint=self.endpoint,
            group=group or self.topic,
            topics={topic or self.topic: tags},
            wait_s=10,
        )
        return name

    def push(self, failures: dict[str, int] | None = None, tags: str = "*") -> str:
        name = f"{self.topic}-{time.monotonic_ns()}"
        self.official.call(
            "push",
            name=name,
            endpoint=self.endpoint,
            group=self.topic,
            topics={self.topic: tags},
            failures=failures or {},
        )
        return name

    def receive(self, consumer: str, **fields: Any) -> list[dict[str, Any]]:
        """What comes first, within some long polls. Nothing is an empty list or an error (Go)."""
        messages: list[dict[str, Any]] = []
        for _ in range(POLLS_MAX):
            try:
                messages = self.official.call("receive", name=consumer, **fields)
            except OfficialError as error:
                if error.code != Code.MESSAGE_NOT_FOUND:
                    raise
            if messages:
                break
        return messages

    def receive_one(self, consumer: str, **fields: Any) -> dict[str, Any]:
        [message] = self.receive(consumer, **fields)
        return message

    def receive_at_last(self, consumer: str) -> dict[str, Any]:
        """From a broker that is coming up again: one message, once it can be reached."""
        until = time.monotonic() + 30
        while True:
            try:
                return self.receive_one(consumer)
            except OfficialError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)

    def ack(self, consumer: str, message: dict[str, Any]) -> None:
        self.official.call("ack", name=consumer, ref=message["ref"])

    def refusal_of_ack(self, consumer: str, message: dict[str, Any]) -> int | None:
        """The broker's code; None too where the client keeps refusals for itself (Go)."""
        try:
            self.ack(consumer, message)
        except OfficialError as error:
            return error.code
        return None

    def drain(self, consumer: str, count: int) -> list[str]:
        """Receive and acknowledge until `count` bodies came; sorted."""
        bodies: list[str] = []
        while len(bodies) < count:
            messages = self.receive(consumer)
            assert messages, f"only {bodies} came"
            for message in messages:
                self.ack(consumer, message)
                bodies.append(text(message))
        return sorted(bodies)


@pytest.fixture(scope="module")
def broker(room: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(room / "data", config=CONFIG) as broker:
        yield broker.start()


@pytest.fixture
def line(official: OfficialClient, broker: Any, name: str) -> Line:
    return Line(official, broker.endpoint, name)


class ClientCases:
    """One case for each thing; every case has a topic and a group of its own."""

    def test_send_message_and_ack_it(self, line: Line, wire: WireClient) -> None:
        fields = {
            "tag": "Zahlung·fällig",
            "keys": ["k1", "注文-17"],
            "properties": {"währung": "€", "order": "17"},
        }
        sent = line.send("grüß dich, 世界 🐢", **fields)
        consumer = line.simple()
        message = line.receive_one(consumer)
        assert text(message) == "grüß dich, 世界 🐢"
        assert message["message_id"] == sent["message_id"]
        assert message["topic"] == line.topic
        assert {key: message[key] for key in fields} == fields
        assert message["attempt"] == 1
        assert abs(message["born_ms"] - sent["sent_ms"]) <= 2 * LATE_MS_MAX  # Rust tells seconds
        line.ack(consumer, message)
        assert not wire.receive(line.topic, line.topic, wait_ms=100).messages

    def test_send_message_with_a_body_of_one_mib(self, line: Line) -> None:
        body = "0123456789abcdef" * (MIB // 16)
        line.send(body)
        consumer = line.simple()
        message = line.receive_one(consumer)
        assert text(message) == body
        line.ack(consumer, message)

    def test_send_message_refused_keeps_the_code(self, line: Line) -> None:
        """A property name that the protocol reserves; no client looks at these itself."""
        with pytest.raises(OfficialError) as refusal:
            line.send("refused", properties={"TAGS": "x"})
        assert refusal.value.code == Code.ILLEGAL_MESSAGE_PROPERTY_KEY

    def test_send_message_batch(self, line: Line, wire: WireClient) -> None:
        """One call; a message id for each, in their order."""
        bodies = [f"b{number}" for number in range(5)]
        ids = line.official.call("send_batch", name=line.topic, topic=line.topic, texts=bodies)
        sent = dict(zip(ids, bodies, strict=True))
        found = wire.receive(line.topic, line.topic, wait_ms=1_000).messages
        assert {one.system_properties.message_id: one.body.decode() for one in found} == sent

    def test_send_message_delayed(self, line: Line) -> None:
        consumer = line.simple()
        due_ms = (now_ms() // 1_000 + 3) * 1_000  # Python and Rust know whole seconds only
        line.send("later", deliver_at_ms=due_ms)
        message = line.receive_one(consumer)
        assert due_ms <= message["at_ms"] < due_ms + LATE_MS_MAX
        assert message["attempt"] == 1
        line.ack(consumer, message)

    def test_receive_message_wakes_when_one_is_sent(self, line: Line) -> None:
        consumer = line.simple()
        waiting = line.official.begin("receive", name=consumer)
        time.sleep(1)
        assert not waiting.done()
        sent = line.send("at last")
        [message] = waiting.result(patient(10))
        assert message["at_ms"] - sent["sent_ms"] < LATE_MS_MAX
        line.ack(consumer, message)

    def test_receive_message_again_after_the_lease(self, line: Line) -> None:
        """Not before it ends; the next attempt; the handle of the one before does nothing."""
        line.send("again")
        consumer = line.simple()
        first = line.receive_one(consumer, invisible_s=1)
        second = line.receive_one(consumer, invisible_s=2)
        assert (first["attempt"], second["attempt"]) == (1, 2)
        assert first["message_id"] == second["message_id"]
        assert second["at_ms"] < first["at_ms"] + 1_000 + LATE_MS_MAX
        assert line.refusal_of_ack(consumer, first) in (Code.INVALID_RECEIPT_HANDLE, None)
        third = line.receive_one(consumer)
        assert third["attempt"] == 3
        assert line.refusal_of_ack(consumer, third) is None

    def test_change_invisible_duration(self, line: Line, wire: WireClient) -> None:
        """Longer than the lease was, and the client acknowledges with the handle it got."""
        line.send("long work")
        consumer = line.simple()
        lease_s = patient_s(2)
        message = line.receive_one(consumer, invisible_s=lease_s)
        line.official.call(
            "change_invisible", name=consumer, ref=message["ref"], seconds=4 * lease_s
        )
        time.sleep(lease_s)  # the first lease would have ended
        assert not wire.receive(line.topic, line.topic, wait_ms=1_000).messages
        line.ack(consumer, message)

    def test_change_invisible_duration_brings_it_back(self, line: Line) -> None:
        line.send("not mine")
        consumer = line.simple()
        message = line.receive_one(consumer, invisible_s=60)
        changed_ms = now_ms()
        line.official.call("change_invisible", name=consumer, ref=message["ref"], seconds=1)
        again = line.receive_one(consumer)
        assert changed_ms + 1_000 <= again["at_ms"] < changed_ms + 1_500 + LATE_MS_MAX
        assert again["attempt"] == 2
        line.ack(consumer, again)

    def test_receive_message_filters_by_tag(self, line: Line) -> None:
        for body, tag in (("a", "red"), ("b", "green"), ("c", "blue"), ("d", ""), ("e", "red")):
            line.send(body, tag=tag)
        assert line.drain(line.simple("red", group=f"{line.topic}-reds"), 2) == ["a", "e"]
        two = line.simple("green || blue", group=f"{line.topic}-two")
        assert line.drain(two, 2) == ["b", "c"]
        assert line.drain(line.simple(group=f"{line.topic}-all"), 5) == ["a", "b", "c", "d", "e"]

    def test_receive_message_filters_by_sql(self, line: Line) -> None:
        for body, tag, price in (
            ("a", "red", 5),
            ("b", "green", 7),
            ("c", "", 9),
            ("d", "red", 11),
        ):
            line.send(body, tag=tag, properties={"price": str(price)})
        dear = line.simple("sql:price > 6 AND (TAGS = 'red' OR TAGS IS NULL)")
        assert line.drain(dear, 2) == ["c", "d"]
        some = line.simple("sql:price BETWEEN 5 AND 7.5", group=f"{line.topic}-some")
        assert line.drain(some, 2) == ["a", "b"]

    def test_push_consumer_success(self, line: Line, wire: WireClient) -> None:
        """Messages from before its start and after it; each once, and gone afterwards."""
        bodies = [str(index) for index in range(10)]
        for body in bodies[:5]:
            line.send(body, tag="odd" if int(body) % 2 else "even")
        consumer = line.push(tags="odd || even")
        line.official.wait_consumed(consumer, 5)
        line.send("filtered out", tag="neither")
        for body in bodies[5:]:
            line.send(body, tag="odd" if int(body) % 2 else "even")
        line.official.wait_consumed(consumer, 10)
        line.official.call("shutdown", name=consumer)
        consumed = line.official.consumed(consumer)
        assert sorted(text(one) for one in consumed) == bodies
        assert {one["attempt"] for one in consumed} == {1}
        assert not wire.receive(line.topic, line.topic, wait_ms=100).messages

    def test_push_consumer_failure_until_the_dead_letter(
        self, line: Line, wire: WireClient
    ) -> None:
        """By the group's ladder, then into %DLQ%group, whole; read by another group's consumer."""
        wire.create_group(line.topic, max_attempts=3, ladder_ms=LADDER_MS)
        line.send("doomed", tag="t", keys=["k1"], properties={"order": "17"})
        line.send("shaky")
        consumer = line.push({"doomed": -1, "shaky": 1})
        reader = line.simple(group=f"{line.topic}-audit", topic=f"%DLQ%{line.topic}")
        dead = line.receive_one(reader)
        line.official.call("shutdown", name=consumer)
        consumed = line.official.consumed(consumer)
        attempts = [one for one in consumed if text(one) == "doomed"]
        assert [one["attempt"] for one in attempts] == [1, 2, 3]
        assert [one["attempt"] for one in consumed if text(one) == "shaky"] == [1, 2]
        waits_ms = [later["at_ms"] - sooner["at_ms"] for sooner, later in pairwise(attempts)]
        for wait_ms, step_ms in zip(waits_ms, LADDER_MS, strict=True):
            assert step_ms <= wait_ms < step_ms + LATE_MS_MAX
        assert (text(dead), dead["attempt"]) == ("doomed", 1)
        assert (dead["tag"], dead["keys"], dead["properties"]) == ("t", ["k1"], {"order": "17"})
        assert dead["message_id"] == attempts[0]["message_id"]
        line.ack(reader, dead)

    def test_push_consumer_failure_in_a_group_without_a_policy(self, line: Line) -> None:
        """The client waits by what its settings told it: never less than the ladder's first."""
        line.send("shaky")
        consumer = line.push({"shaky": 1})
        first, second = line.official.wait_consumed(consumer, 2)
        line.official.call("shutdown", name=consumer)
        assert (first["attempt"], second["attempt"]) == (1, 2)
        assert 10_000 <= second["at_ms"] - first["at_ms"] < 10_000 + LATE_MS_MAX

    def test_receive_message_goes_on_after_a_restart(
        self, line: Line, broker: BrokerProcess
    ) -> None:
        """Killed, started on the same address: producer and simple consumer need no new start."""
        consumer = line.simple()
        line.send("before")
        line.ack(consumer, line.receive_one(consumer))
        broker.kill()
        broker.start()
        line.send_at_last("after")
        line.ack(consumer, line.receive_at_last(consumer))

    def test_telemetry_and_receive_go_on_after_a_restart(
        self, line: Line, broker: BrokerProcess
    ) -> None:
        """Killed, started on the same address: producer and push consumer go on by themselves."""
        consumer = line.push()
        line.send("before")
        line.official.wait_consumed(consumer, 1)
        broker.kill()
        broker.start()
        line.send_at_last("after")
        line.official.wait_for(
            lambda: "after" in [text(one) for one in line.official.consumed(consumer)],
            "a message from after the restart",
        )
        line.official.call("shutdown", name=consumer)
