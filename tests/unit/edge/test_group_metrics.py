"""Series by topic, and by consumer group and topic."""

import random

import pytest

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.engine.state import group_flow as flow
from latermq_broker.engine.state.figures import DURATION_MS, Histogram
from latermq_broker.engine.state.model import Failure
from latermq_broker.observability.exposition import as_openmetrics
from latermq_broker.observability.metrics import Edges, render
from latermq_broker.observability.replication_figures import OWNER, ReplicationFigures
from latermq_broker.observability.transport_figures import TransportFigures
from support.engine_rig import EngineRig, short_store

PAIR = '{group="billing",topic="orders"}'
TRANSPORT = TransportFigures(
    calls=9, connections=5, calls_open=1, connections_open=2, deadline_timers=1, tasks=4, others={}
)
REPLICATION = ReplicationFigures(OWNER, "shop", 4, 8_192, 20, Histogram(DURATION_MS))
SUFFIXES = {  # of what a family's samples may be called
    "gauge": [""],
    "counter": ["", "_total"],
    "histogram": ["", "_bucket", "_sum", "_count"],
}


def page_of(rig: EngineRig, subscriptions_max: int = 1_000) -> dict[str, float]:
    text = "".join(render(rig.engine, Edges(rig.now_ms, subscriptions_max=subscriptions_max)))
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {key: float(value) for key, _, value in (line.rpartition(" ") for line in lines)}


def test_who_is_behind_and_by_how_much() -> None:
    rig = EngineRig()
    rig.send("a")
    rig.advance(30_000)
    rig.send("b", "c")
    rig.receive(count=1, lease_ms=600_000)
    rig.advance(2_500)
    page = page_of(rig)
    assert page[f"latermq_group_ready_messages{PAIR}"] == 2
    assert page[f"latermq_group_oldest_unread_seconds{PAIR}"] == 2.5
    assert page[f"latermq_group_in_flight_messages{PAIR}"] == 1
    assert page[f"latermq_group_backoff_messages{PAIR}"] == 0
    assert page[f"latermq_group_deliveries_total{PAIR}"] == 1
    assert page['latermq_topic_messages_total{topic="orders"}'] == 3
    assert page['latermq_topic_stored_messages{topic="orders"}'] == 3
    for delivered in rig.receive(count=10):
        rig.ack(delivered)
    page = page_of(rig)
    assert page[f"latermq_group_ready_messages{PAIR}"] == 0
    assert page[f"latermq_group_oldest_unread_seconds{PAIR}"] == 0


def test_a_restart_keeps_what_is_of_the_state() -> None:
    rig = EngineRig()
    rig.send("a", "b", "c", "d")
    first, second, _ = rig.receive(count=3, push=True, lease_ms=600_000)
    rig.ack(first)
    rig.engine.change_invisible("billing", second.handle, 60_000, rig.now_ms)
    rig.engine.write()
    rig.advance(1_000)
    before = page_of(rig)
    assert before[f"latermq_group_acks_total{PAIR}"] == 1
    rig.engine.close(rig.now_ms, drained=True)
    rig.engine = rig.reopened()
    after = page_of(rig)
    for name in (
        "group_ready_messages", "group_oldest_unread_seconds", "group_in_flight_messages",
        "group_backoff_messages",
    ):  # fmt: skip
        key = f"latermq_{name}{PAIR}"
        assert after[key] == before[key] > 0, name
    assert after['latermq_topic_messages_total{topic="orders"}'] == 4
    assert after[f"latermq_group_acks_total{PAIR}"] == 0
    assert f"latermq_group_attempt_seconds_count{PAIR}" not in after


def test_what_replay_does_again_is_not_counted_again() -> None:
    rig = EngineRig()
    rig.send("a")
    rig.ack(*rig.receive())
    rig.engine.store.abandon()
    rig.engine = rig.reopened()
    assert page_of(rig)[f"latermq_group_acks_total{PAIR}"] == 0


def test_how_attempts_ended_and_how_long_they_took() -> None:
    rig = EngineRig(delivery=DeliveryConfig(max_attempts=2))
    rig.send("a", "b", "c", "d")
    rig.advance(2_000)
    acked, told, silent = rig.receive(count=3, push=True, lease_ms=60_000)
    (late,) = rig.receive(lease_ms=60_000)
    rig.advance(300)
    rig.ack(acked)
    nack = rig.engine.change_invisible
    nack("billing", told.handle, 1, rig.now_ms, failure=Failure("ValueError", "no"))
    nack("billing", silent.handle, 1, rig.now_ms)
    rig.engine.write()
    rig.advance(400_000)
    page = page_of(rig)
    failures = "latermq_group_failures_total"
    inner = PAIR[1:-1]
    assert page[f'{failures}{{{inner},class="ValueError"}}'] == 1
    assert page[f'{failures}{{{inner},class="not_told"}}'] == 1
    assert page[f'{failures}{{{inner},class="lease_expired"}}'] == 1
    attempt, to_ack = "latermq_group_attempt_seconds", "latermq_group_send_to_ack_seconds"
    assert page[f"{attempt}_count{PAIR}"] == 4
    assert page[f'{attempt}_bucket{{{inner},le="0.5"}}'] == 3
    assert page[f"{to_ack}_count{PAIR}"] == 1
    assert page[f"{to_ack}_sum{PAIR}"] == 2.3
    assert late.attempt == 1


def test_messages_acknowledged_together_count_each() -> None:
    rig = EngineRig()
    rig.send(*"abcde")
    rig.advance(1_000)
    rig.ack(*rig.receive(count=5))
    page = page_of(rig)
    assert page[f"latermq_group_acks_total{PAIR}"] == 5
    assert page[f"latermq_group_send_to_ack_seconds_count{PAIR}"] == 5
    assert page[f"latermq_group_send_to_ack_seconds_sum{PAIR}"] == 5


def test_dead_letters_and_redriven_ones() -> None:
    rig = EngineRig(delivery=DeliveryConfig(max_attempts=1))
    rig.send("a", "b")
    for delivered in rig.receive(count=2):
        rig.engine.forward("billing", delivered.handle, rig.now_ms)
    rig.engine.write()
    page = page_of(rig)
    assert page['latermq_group_dead_letters_left{group="billing"}'] == 2
    assert page[f"latermq_group_dead_letters_total{PAIR}"] == 2
    assert page[f'latermq_group_failures_total{{{PAIR[1:-1]},class="not_told"}}'] == 2
    rig.engine.dead.redrive("billing", 0, "", rig.now_ms)
    rig.engine.write()
    page = page_of(rig)
    assert page['latermq_group_dead_letters_left{group="billing"}'] == 1
    assert page[f"latermq_group_redriven_total{PAIR}"] == 1
    assert page[f"latermq_group_ready_messages{PAIR}"] == 1


def test_what_went_unread_is_counted_for_its_group() -> None:
    rig = EngineRig(store=short_store(retention_ms=60_000))
    rig.send("first")
    rig.ack(*rig.receive())
    for _ in range(40):
        rig.send("x" * 1_000)
    rig.advance(120_000)
    rig.send("last")
    rig.checkpoint()
    for _ in range(200):
        rig.advance(1_000)
    expired = page_of(rig)[f"latermq_group_expired_unread_total{PAIR}"]
    assert expired > 0
    assert expired == page_of(rig)["latermq_messages_expired_unread_total"]


def test_classes_are_bounded() -> None:
    seen = flow.Flow()
    for number in range(flow.CLASSES_MAX + 3):
        seen.fail(Failure(f"Class{number}"), 1, 0)
    seen.fail(Failure("x" * 1_000), 1, 0)
    assert len(seen.failures.counts) == flow.CLASSES_MAX + 1
    assert seen.failures.counts[flow.OTHER] == 4


def test_tonights_class_has_a_count_of_its_own_after_a_long_life() -> None:
    classes = flow.FailureClasses()
    for number in range(flow.CLASSES_MAX):
        for _ in range(1_000 + number):
            classes.add(f"Class{number}", 0)
    tonight_ms = 24 * flow.HALF_LIFE_MS
    for _ in range(10):
        classes.add("Tonight", tonight_ms)
    assert classes.counts["Tonight"] == 8
    assert classes.counts[flow.OTHER] == 2, "before it was frequent"
    assert "Class0" not in classes.counts
    assert classes.counts["Class7"] == 1_007
    for _ in range(10):  # what went may come again, from 0, in the place of another one
        classes.add("Class0", tonight_ms)
    assert 0 < classes.counts["Class0"] < 10
    assert len(classes.counts) == flow.CLASSES_MAX + 1


def test_no_count_goes_down_and_each_failure_counts_once() -> None:
    seed = random.Random(15)
    classes = flow.FailureClasses()
    before: dict[str, int] = {}
    for at in range(20_000):
        now_ms = at * 2_000
        favourite = f"Class{at // 2_000 * 7}"
        rare = f"Unique{at}" if seed.random() < 0.5 else f"Class{seed.randrange(40)}"
        classes.add(favourite if seed.random() < 0.3 else rare, now_ms)
        grown = sum(count - before.get(name, 0) for name, count in classes.counts.items())
        assert grown == 1
        assert all(count >= before.get(name, 0) for name, count in classes.counts.items())
        before = dict(classes.counts)
        assert len(classes.counts) <= flow.CLASSES_MAX + 1
        assert len(classes._rare) <= flow.RARE_MAX
        if at % 2_000 == 1_999:
            assert favourite in classes.counts
            assert max(classes._named, key=classes._named.__getitem__) == favourite


def test_equals_do_not_take_turns() -> None:
    classes = flow.FailureClasses()
    names = [f"Class{number}" for number in range(flow.CLASSES_MAX + 4)]
    for at in range(12_000):
        classes.add(names[at % len(names)], at * 1_000)
    assert set(classes.counts) == {*names[: flow.CLASSES_MAX], flow.OTHER}


def test_series_stay_and_those_left_out_are_told() -> None:
    rig = EngineRig()
    rig.send("a")
    for group in ("z", "y", "x"):
        rig.receive(group=group)
    for _ in range(2):
        page = page_of(rig, 2)
        shown = [key for key in page if key.startswith("latermq_group_ready_messages")]
        assert shown == [
            f'latermq_group_ready_messages{{group="{group}",topic="orders"}}' for group in "zy"
        ]
        assert page['latermq_series_left_out{of="subscriptions"}'] == 1
    rig.engine.groups.delete("z", rig.now_ms)
    page = page_of(rig, 2)
    assert page['latermq_series_left_out{of="subscriptions"}'] == 0
    assert 'latermq_group_ready_messages{group="x",topic="orders"}' in page


@pytest.mark.parametrize("openmetrics", [False, True])
def test_every_family_is_whole_and_explains_itself(openmetrics: bool) -> None:
    rig = EngineRig()
    rig.send("a", "b")
    rig.ack(*rig.receive())
    edges = Edges(rig.now_ms, transport=TRANSPORT, replication=REPLICATION)
    page = render(rig.engine, edges)
    text = "".join(as_openmetrics(page) if openmetrics else page)
    heads = [line.split(" ", 3) for line in text.splitlines() if line.startswith("# ")]
    assert text.endswith("# EOF\n") is openmetrics
    helps = {name: help for _, word, name, help in (h for h in heads if len(h) == 4)
             if word == "HELP"}  # fmt: skip
    kinds = {head[2]: head[3] for head in heads if head[1] == "TYPE"}
    assert helps.keys() == kinds.keys()
    taken = [
        f"{head[2]}{suffix}"
        for head in heads if head[1] == "TYPE" for suffix in SUFFIXES[head[3]]
    ]  # fmt: skip
    assert len(taken) == len(set(taken)), [name for name in taken if taken.count(name) > 1]
    for name, help in helps.items():
        assert help.endswith("."), name
        assert len(help.split()) >= 2, name
    family = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            family = line.split(" ")[2]
        elif not line.startswith("#"):
            name = line.split(" ")[0].split("{")[0]
            assert name.startswith(family), line
            if kinds[family] == "counter":
                assert name == family + "_total" * openmetrics, line
            else:
                assert not family.endswith("_total"), line
