"""QueryAssignment, auto-renewed leases, retries and dead letters: the official push consumer."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from interop.official import OfficialClient, text
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support.wire_client import WireClient

LADDER_MS = (1_000, 2_000)  # the client counts in whole seconds


def push(
    official: OfficialClient,
    endpoint: str,
    name: str,
    failures: dict[str, int] | None = None,
    *,
    group: str = "",
) -> str:
    """A started push consumer's name, on the topic `name`."""
    consumer = f"{name}-{group}"
    official.call(
        "push",
        name=consumer,
        endpoint=endpoint,
        group=group or name,
        topics={name: "*"},
        failures=failures or {},
    )
    return consumer


@pytest.fixture
def producer(official: OfficialClient, broker: Any, name: str) -> str:
    official.call("producer", name=name, endpoint=broker.endpoint, topics=[name])
    return name


def test_push_consumer_success(
    official: OfficialClient, broker: Any, wire: WireClient, producer: str, name: str
) -> None:
    """Messages from before its start and after it; each once, and gone afterwards."""
    bodies = [str(index) for index in range(10)]
    for body in bodies[:5]:
        official.call("send", name=producer, topic=name, text=body)
    consumer = push(official, broker.endpoint, name)
    official.wait_consumed(consumer, 5)
    for body in bodies[5:]:
        official.call("send", name=producer, topic=name, text=body)
    official.wait_consumed(consumer, 10)
    official.call("shutdown", name=consumer)
    consumed = official.consumed(consumer)
    assert sorted(text(one) for one in consumed) == bodies
    assert {one["attempt"] for one in consumed} == {1}
    assert not wire.receive(name, name, wait_ms=100).messages


def test_push_consumer_failure_is_retried_by_the_ladder(
    official: OfficialClient, broker: Any, wire: WireClient, producer: str, name: str
) -> None:
    """One that fails twice, then succeeds; the waits are the ladder's, never shorter."""
    wire.create_group(name, max_attempts=5, ladder_ms=LADDER_MS)
    official.call("send", name=producer, topic=name, text="shaky")
    official.call("send", name=producer, topic=name, text="fine")
    consumer = push(official, broker.endpoint, name, {"shaky": 2})
    consumed = official.wait_consumed(consumer, 4)
    official.call("shutdown", name=consumer)
    shaky = [one for one in consumed if text(one) == "shaky"]
    assert [one["attempt"] for one in shaky] == [1, 2, 3]
    waits_ms = [later["at_ms"] - sooner["at_ms"] for sooner, later in pairwise(shaky)]
    for wait_ms, step_ms in zip(waits_ms, LADDER_MS, strict=True):
        assert step_ms <= wait_ms < step_ms + 2_000
    assert Counter(text(one) for one in consumed) == {"shaky": 3, "fine": 1}


def test_push_consumer_failure_until_the_dead_letter(
    official: OfficialClient, broker: Any, wire: WireClient, producer: str, name: str
) -> None:
    """Three attempts, then %DLQ%group: whole, with its origin, read by another group."""
    wire.create_group(name, max_attempts=3, ladder_ms=(1_000,))
    sent = official.call(
        "send",
        name=producer,
        topic=name,
        text="doomed",
        tag="t",
        keys=["k1", "k2"],
        properties={"order": "17"},
    )
    consumer = push(official, broker.endpoint, name, {"doomed": -1})
    dead_topic, reader = f"%DLQ%{name}", f"{name}-audit"
    official.call(
        "simple",
        name=reader,
        endpoint=broker.endpoint,
        group=reader,
        topics={dead_topic: "*"},
        wait_s=20,
    )
    [dead] = official.call("receive", name=reader)
    attempts = official.consumed(consumer)
    official.call("shutdown", name=consumer)
    assert [one["attempt"] for one in attempts] == [1, 2, 3]
    assert text(dead) == "doomed"
    assert dead["topic"] == dead_topic
    assert dead["attempt"] == 1  # the reader's own
    assert dead["message_id"] == sent["message_id"]
    assert (dead["tag"], dead["keys"], dead["properties"]) == ("t", ["k1", "k2"], {"order": "17"})
    assert dead["born_ms"] == attempts[0]["born_ms"]
    official.call("ack", name=reader, ref=dead["ref"])
    # The official client does not show dead_letter_queue; the wire does.
    [letter] = wire.receive(dead_topic, f"{name}-second-audit").messages
    origin = letter.system_properties.dead_letter_queue
    assert (origin.topic, origin.message_id) == (name, sent["message_id"])
    assert letter.system_properties.delivery_attempt == 1
    assert not wire.receive(name, name, wait_ms=100).messages


def test_push_consumer_dead_letters_fail_again_in_their_readers_group(
    official: OfficialClient, broker: Any, wire: WireClient, producer: str, name: str
) -> None:
    """A push consumer on %DLQ%group: its attempts count from 1 and end in its own dead letters."""
    reader = f"{name}-r"
    wire.create_group(name, max_attempts=1)
    wire.create_group(reader, max_attempts=2, ladder_ms=(1_000,))
    official.call("send", name=producer, topic=name, text="twice dead")
    first = push(official, broker.endpoint, name, {"twice dead": -1})
    official.wait_consumed(first, 1)
    official.call(
        "push",
        name=reader,
        endpoint=broker.endpoint,
        group=reader,
        topics={f"%DLQ%{name}": "*"},
        failures={"twice dead": -1},
    )
    official.wait_consumed(reader, 2)
    [letter] = wire.receive(f"%DLQ%{reader}", f"{name}-audit").messages
    official.call("shutdown", name=first)
    official.call("shutdown", name=reader)
    assert [one["attempt"] for one in official.consumed(first)] == [1]
    assert [one["attempt"] for one in official.consumed(reader)] == [1, 2]
    assert bytes(letter.body) == b"twice dead"
    assert letter.system_properties.dead_letter_queue.topic == f"%DLQ%{name}"


def test_push_consumer_500_messages_none_lost_none_doubled(
    official: OfficialClient, broker: Any, wire: WireClient, producer: str, name: str
) -> None:
    """Three producers with four threads each, two push consumers of one group."""
    producers = [producer, f"{name}-2", f"{name}-3"]
    for other in producers[1:]:
        official.call("producer", name=other, endpoint=broker.endpoint, topics=[name])
    consumers = [push(official, broker.endpoint, name)]
    official.call(
        "push",
        name=f"{name}-b",
        endpoint=broker.endpoint,
        group=name,
        topics={name: "*"},
        failures={},
    )
    consumers.append(f"{name}-b")
    sent = official.call("send_many", names=producers, topic=name, prefix="n", count=500)
    official.wait_for(
        lambda: sum(len(official.consumed(one)) for one in consumers) >= 500, "500 messages", 30
    )
    for consumer in consumers:
        official.call("shutdown", name=consumer)
    consumed = [one for consumer in consumers for one in official.consumed(consumer)]
    assert Counter(one["message_id"] for one in consumed) == Counter(sent)
    assert {text(one) for one in consumed} == {f"n{index}" for index in range(500)}
    assert {one["attempt"] for one in consumed} == {1}
    assert not wire.receive(name, name, wait_ms=100).messages


def test_notify_client_termination_frees_what_a_push_consumer_held(
    official: OfficialClient, broker: Any, wire: WireClient, producer: str, name: str
) -> None:
    """Leases of a consumer that left become receivable after a second, not after a minute."""
    wire.route(name)
    official.call("send", name=producer, topic=name, text="held")
    with WireClient(broker.endpoint, "holder@1@0@test") as holder:
        holder.announce_push_consumer(name, name)
        [held] = holder.receive(name, name, auto_renew=True).messages
        assert not wire.receive(name, name, wait_ms=1_500).messages
        assert holder.leave(name).code == definition_pb2.Code.OK
    [again] = wire.receive(name, name).messages
    assert again.system_properties.message_id == held.system_properties.message_id
    assert again.system_properties.delivery_attempt == 2
