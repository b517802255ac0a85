"""Consumers of one group with different filters: what a live one wants is for that one."""

import pytest

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.engine.state.lag import Lag, lag_of
from latermq_broker.engine.state.model import (
    EVERYTHING,
    MessageFilter,
    Outgoing,
    ReceiveRequest,
    TagFilter,
    TopicType,
    sql_filter,
)
from support.engine_rig import EngineRig

A, B = TagFilter(frozenset("a")), TagFilter(frozenset("b"))


def receive(
    rig: EngineRig,
    filter: MessageFilter,
    *wanted: MessageFilter,
    waits: bool = False,
    count: int = 32,
    topic: str = "orders",
) -> list[str]:
    delivered = rig.engine.receive(
        ReceiveRequest(
            "billing", topic, "c", count, 60_000, filter=filter, wanted=wanted, waits=waits
        ),
        rig.now_ms,
    )
    rig.engine.write()
    return [one.sys.decode() for one in delivered]


def send(rig: EngineRig, *names: str, key: str = "") -> None:
    """Each with the tag that its name begins with."""
    messages = [
        Outgoing("orders", b"body", name.encode(), name, tag=name[0], message_group=key)
        for name in names
    ]
    rig.engine.send(messages, rig.now_ms)
    rig.engine.write()


def lag(rig: EngineRig) -> Lag:
    state = rig.engine._state
    [subscription] = state.subscriptions.values()
    return lag_of(state, subscription, state.catalog.require_topic("orders"))


def test_of_a_backlog_each_gets_what_it_wants() -> None:
    rig = EngineRig()
    send(rig, *(f"{tag}{number}" for number in range(50) for tag in "abc"))
    got_a: list[str] = []
    while more := receive(rig, A, A, B):
        got_a += more
    assert got_a == [f"a{number}" for number in range(50)]
    assert lag(rig).ready_count == 50  # nobody wants the c
    rig.crash()
    assert lag(rig).ready_count == 50
    got_b: list[str] = []
    while more := receive(rig, B, A, B):
        got_b += more
    assert got_b == [f"b{number}" for number in range(50)]
    assert lag(rig) == Lag(0, 0)


def test_what_none_wants_is_passed_over_and_that_is_written() -> None:
    rig = EngineRig()
    send(rig, "b1", "b2")
    assert receive(rig, A, A, B) == []
    assert lag(rig).ready_count == 2
    assert receive(rig, A, A) == []  # the other one is gone
    assert lag(rig) == Lag(0, 0)
    rig.crash()
    assert lag(rig) == Lag(0, 0)
    assert receive(rig, B, A, B) == []


def test_a_receive_that_waits_passes_nothing_over() -> None:
    rig = EngineRig()
    receive(rig, A)
    send(rig, "b1", "a1", "b2")
    assert receive(rig, A, A, waits=True) == ["a1"]
    assert lag(rig).ready_count == 2
    rig.restart()
    assert receive(rig, B, B) == ["b1", "b2"]


def test_with_everything_wanted_nothing_is_passed_over() -> None:
    rig = EngineRig()
    send(rig, "a1", "b1", "a2")
    assert receive(rig, sql_filter("TAGS = 'a'"), EVERYTHING) == []  # no tag is in `sys` here
    assert receive(rig, A, A, EVERYTHING) == ["a1", "a2"]
    assert receive(rig, EVERYTHING, A, EVERYTHING) == ["b1"]


def test_strict_each_receive_goes_by_its_own_filter() -> None:
    rig = EngineRig(strict=True)
    rig.engine.topics.create("orders", TopicType.MIXED, 1, rig.now_ms)
    send(rig, "a1", "b1")
    assert receive(rig, A, A, B, waits=True) == ["a1"]
    assert receive(rig, B, A, B) == []


def test_in_a_message_group_what_another_wants_is_waited_for() -> None:
    rig = EngineRig()
    rig.engine.topics.create("orders", TopicType.FIFO, 1, rig.now_ms)
    rig.engine.groups.create("billing", fifo=True, max_attempts=9, backoff=None, now_ms=rig.now_ms)
    send(rig, "a1", "b2", "c3", "a4", key="k")
    send(rig, "a5", key="other")
    assert receive(rig, A, A, B) == ["a1", "a5"]
    assert receive(rig, B, A, B) == []  # the first is under way
    [first, _] = rig.engine._state.leases.deliveries
    rig.engine.ack(
        "billing",
        [rig.engine._state.handles.encode(first, rig.engine._state.leases.stride)],
        rig.now_ms,
    )
    rig.crash()
    assert receive(rig, A, A, B) == []
    assert receive(rig, A, A) == ["a4"]  # the other one is gone


def test_what_was_wanted_is_known_after_a_restart() -> None:
    rig = EngineRig()
    send(rig, "a1")
    receive(rig, A, A, B)
    before = {("billing", "orders"): ("tags:a", "tags:b")}
    assert dict(rig.engine.progress.wanted()) == before
    for start in (rig.crash, rig.restart):
        start()
        assert dict(rig.engine.progress.wanted()) == before
    receive(rig, A, A, EVERYTHING)
    assert dict(rig.engine.progress.wanted()) == {("billing", "orders"): ()}


def test_a_group_moved_back_gets_all_anew() -> None:
    rig = EngineRig()
    send(rig, "b1", "a2", "b3", "a4")
    assert receive(rig, A, A, B) == ["a2", "a4"]
    assert rig.engine.queues.committed("billing", "orders", 0) == 0
    rig.engine.queues.commit("billing", "orders", 0, 2, rig.now_ms)  # skips b1
    assert receive(rig, B, A, B) == ["b3"]
    rig.engine.queues.commit("billing", "orders", 0, 0, rig.now_ms)
    rig.crash()
    assert receive(rig, EVERYTHING) == ["b1", "a2", "b3", "a4"]


def test_a_slow_consumer_holds_the_others_up_at_the_bound() -> None:
    rig = EngineRig(delivery=DeliveryConfig(held_messages_max=3))
    send(rig, *(f"{tag}{number}" for number in range(6) for tag in "ba"))
    got = [receive(rig, A, A, B, count=1) for _ in range(6)]
    assert got == [["a0"], ["a1"], ["a2"], [], [], []]
    assert receive(rig, B, A, B, count=1) == ["b0"]
    assert receive(rig, A, A, B, count=1) == ["a3"]
    assert receive(rig, A, A, B, count=1) == []


@pytest.mark.parametrize("checkpoint", [False, True])
def test_dropped_letters_are_no_lag_of_who_reads_them(*, checkpoint: bool) -> None:
    rig = EngineRig(delivery=DeliveryConfig(max_attempts=1))
    rig.send("m1", "m2")
    rig.receive()
    rig.advance(2_000)
    rig.engine.dead.drop("billing", [0, 1], rig.now_ms)
    topic = rig.engine.catalog.require_topic("%DLQ%billing")
    assert rig.receive("audit", topic=topic.name) == []
    state = rig.engine._state
    [key] = [key for key in state.subscriptions if key[1] == topic.id]
    before = lag_of(state, state.subscriptions[key], topic)
    assert before == Lag(0, 0)
    if checkpoint:
        rig.checkpoint()
    rig.crash()
    state = rig.engine._state
    assert lag_of(state, state.subscriptions[key], topic) == before
