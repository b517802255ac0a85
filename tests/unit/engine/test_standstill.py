"""What the broker could not hear counts against nobody: silence, leases, transactions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latermq_broker.config.config import TransactionConfig
from latermq_broker.engine.state.hearing import Hearing
from latermq_broker.engine.state.model import HalfEvent, Outgoing
from support.engine_facts import facts
from support.engine_rig import START_MS, EngineRig

SILENT_MS = 120_000
STILL_MS = 3_600_000


def stand_still(rig: EngineRig, lasting_ms: int = STILL_MS) -> None:
    """The process is stopped, and goes on before anything else has happened."""
    rig.engine.hearing.missed(rig.now_ms, rig.now_ms + lasting_ms)
    rig.now_ms += lasting_ms


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=8),
    st.integers(0, 60),
    st.integers(0, 400),
    st.integers(1, 200),
)
def test_silence_is_what_was_heard_of_it(
    spans: list[tuple[int, int]], rest: int, seen_ms: int, silence_ms: int
) -> None:
    """Against counting: heard and missed milliseconds in turn."""
    hearing, heard, now_ms = Hearing(), [], 0
    for heard_ms, missed_ms in spans:
        heard += [True] * heard_ms + [False] * missed_ms
        now_ms = len(heard)
        hearing.missed(now_ms - missed_ms, now_ms)
    heard += [True] * rest
    now_ms = len(heard)
    seen_ms = min(seen_ms, now_ms)
    silent = sum(heard[seen_ms:]) > silence_ms
    assert (hearing.judged_ms(now_ms, silence_ms) - seen_ms > silence_ms) == silent
    assert hearing.missed_since_ms(seen_ms) == heard[seen_ms:].count(False)


def test_a_deadline_in_a_standstill_lies_as_far_behind_its_end() -> None:
    hearing = Hearing()
    hearing.missed(100, 200)
    hearing.missed(300, 310)
    assert [hearing.extended_ms(at) for at in (50, 100, 101, 160, 200, 201, 305, 400)] == [
        50, 100, 201, 260, 300, 201, 315, 400,
    ]  # fmt: skip


def test_a_lease_that_its_client_keeps_alive_stays() -> None:
    rig = EngineRig()
    rig.send("m")
    [held] = rig.receive(push=True)
    rig.engine.client_seen("client-1", rig.now_ms)
    rig.advance(5_000)
    stand_still(rig)
    rig.engine.end_silent_clients(rig.now_ms)
    rig.advance(SILENT_MS - 6_000)
    rig.engine.end_silent_clients(rig.now_ms)
    rig.engine.client_seen("client-1", rig.now_ms)
    rig.advance(60_000)
    assert rig.receive(client="other") == []
    assert rig.ack(held) == [True]


def test_a_client_that_is_dead_is_found_to_be_after_what_was_left_of_its_time() -> None:
    rig = EngineRig()
    rig.send("m")
    rig.receive(push=True)
    rig.engine.client_seen("client-1", rig.now_ms)
    rig.advance(SILENT_MS - 10_000)
    stand_still(rig)
    rig.advance(9_000)
    rig.engine.end_silent_clients(rig.now_ms)
    rig.advance(1_000)
    assert rig.receive(client="other") == []
    rig.advance(1)
    rig.engine.end_silent_clients(rig.now_ms)
    rig.advance(1_000)
    assert [again.attempt for again in rig.receive(client="other")] == [2]


def test_a_lease_of_a_fixed_time_has_as_much_left_as_when_the_broker_stopped() -> None:
    rig = EngineRig()
    rig.send("m", "n")
    one, two = rig.receive(lease_ms=10_000)
    rig.advance(4_000)
    stand_still(rig)
    rig.advance(0)
    before = facts(rig.engine)
    rig.crash()
    assert facts(rig.engine) == before  # a restart knows of the longer lease
    rig.advance(5_999)
    assert rig.ack(one) == [True]
    assert rig.receive(client="other") == []
    rig.advance(1)
    [again] = rig.receive(client="other")
    assert (again.queue_offset, again.attempt) == (two.queue_offset, 2)


def test_a_renewed_lease_ends_after_its_total_time_without_the_standstill() -> None:
    rig = EngineRig()
    total_ms = rig.config.delivery.auto_renew_total_ms_max
    rig.send("m")
    [held] = rig.receive(push=True)
    stand_still(rig, total_ms)
    for _ in range(total_ms // 60_000 - 1):
        rig.engine.client_seen("client-1", rig.now_ms)
        rig.advance(60_000)
    assert rig.receive(client="other") == []
    assert rig.ack(held) == [True]


@pytest.mark.parametrize("checks_max", [1, 3])
def test_a_producer_that_was_asked_has_its_time_to_answer(checks_max: int) -> None:
    config = TransactionConfig(checks_max=checks_max)
    rig = EngineRig(transaction=config)
    rig.engine.ensure_topic("orders", rig.now_ms)
    [half] = rig.engine.transactions.send([Outgoing("orders", b"body", b"m", "m")], rig.now_ms)
    rig.advance(config.first_check_ms)
    assert rig.engine.transactions.waiting("orders", 9) == [half.position]
    rig.engine.transactions.asked(half.position, "producer", rig.now_ms)
    rig.advance(config.check_interval_ms - 1_000)
    stand_still(rig, config.age_ms_max)
    rig.advance(999)
    assert rig.engine.transactions.waiting_topics() == []
    rig.engine.transactions.end("orders", half.transaction_id, "m", HalfEvent.COMMIT, rig.now_ms)
    rig.advance(0)
    assert rig.names() == ["m"]
    assert rig.now_ms > START_MS + config.age_ms_max
