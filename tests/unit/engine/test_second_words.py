"""What a lease's holder says again because the answer was lost, and how long it asks to keep it."""

import pytest

from latermq_broker.catalog.catalog import Backoff, BackoffKind
from latermq_broker.config.config import DeliveryConfig
from latermq_broker.delivery.leases.lease import State
from latermq_broker.engine.state.model import Delivered, Failure
from latermq_broker.errors import InvalidReceiptHandleError
from support.engine_facts import newest_letter
from support.engine_rig import EngineRig

MINUTE_MS = 60_000
BROKEN = Failure("Broken", "on purpose")


def extended(rig: EngineRig, one: Delivered, by_ms: int) -> str:
    handle = rig.engine.change_invisible(
        "billing", one.handle, by_ms, rig.now_ms, extends=True, topic="orders"
    )
    rig.engine.write()
    return handle


def ended(rig: EngineRig, handle: str, *, verb: str = "nack", wait_ms: int = 5_000) -> str:
    answer = rig.engine.change_invisible(
        "billing",
        handle,
        wait_ms,
        rig.now_ms,
        suspend=verb == "suspend",
        repeatable=True,
        insists=True,
        failure=BROKEN if verb == "nack" else None,
        topic="orders",
    )
    rig.engine.write()
    return answer


def reborn(rig: EngineRig, how: str) -> None:
    if how == "crash":
        rig.crash()
    elif how == "checkpoint":
        rig.checkpoint()
        rig.restart()


def live_on(rig: EngineRig, for_ms: int) -> None:
    """The client sends heartbeats, and nothing else."""
    for _ in range(for_ms // 10_000):
        rig.engine.client_seen("client-1", rig.now_ms)
        rig.advance(10_000)


@pytest.mark.parametrize("how", ["live", "crash", "checkpoint"])
@pytest.mark.parametrize("push", [True, False])
def test_an_extension_keeps_the_handle_the_attempt_and_the_lease(push: bool, how: str) -> None:
    rig = EngineRig(delivery=DeliveryConfig(max_attempts=1))
    rig.send("m1")
    (one,) = rig.receive(push=push, lease_ms=MINUTE_MS)
    assert extended(rig, one, 10 * MINUTE_MS) == one.handle
    assert extended(rig, one, 10 * MINUTE_MS) == one.handle  # told again: its answer was lost
    reborn(rig, how)
    live_on(rig, 9 * MINUTE_MS)
    assert rig.names() == []
    assert rig.ack(one) == [True]


@pytest.mark.parametrize("how", ["live", "crash", "checkpoint"])
@pytest.mark.parametrize("asked_ms", [20_000, 10 * MINUTE_MS, 300 * MINUTE_MS])
def test_an_extension_says_when_a_renewed_lease_ends(asked_ms: int, how: str) -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive(push=True, lease_ms=MINUTE_MS)
    extended(rig, one, asked_ms)
    reborn(rig, how)
    live_on(rig, asked_ms - 10_000)
    assert rig.names() == []
    live_on(rig, 10_000)
    assert rig.names() == ["m1"]
    assert rig.ack(one) == [False]


def test_the_next_lease_of_what_was_extended_is_renewed_again() -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive(push=True, lease_ms=MINUTE_MS)
    extended(rig, one, 20_000)
    live_on(rig, 20_000)
    (again,) = rig.receive(push=True, lease_ms=MINUTE_MS)
    live_on(rig, 10 * MINUTE_MS)
    assert rig.ack(again) == [True]


def test_a_client_that_goes_lets_go_of_what_it_extended() -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive(push=True, lease_ms=MINUTE_MS)
    extended(rig, one, 300 * MINUTE_MS)
    rig.engine.client_gone("client-1", rig.now_ms)
    rig.advance(1_000)
    assert rig.names() == ["m1"]


@pytest.mark.parametrize("how", ["live", "crash", "checkpoint"])
@pytest.mark.parametrize("verb", ["nack", "plain nack", "suspend"])
@pytest.mark.parametrize("passed_ms", [0, 6_000])
@pytest.mark.parametrize("push", [True, False])
def test_an_end_told_again_changes_nothing(push: bool, passed_ms: int, verb: str, how: str) -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive(push=push)
    ended(rig, one.handle, verb=verb)
    reborn(rig, how)
    rig.advance(passed_ms)
    assert ended(rig, one.handle, verb=verb) == one.handle
    rig.advance(5_000 - min(passed_ms, 5_000))
    (again,) = rig.receive(push=True)
    assert again.attempt == 1 + (verb != "suspend")
    reborn(rig, how)
    assert ended(rig, one.handle, verb=verb) == one.handle  # it was lent again meanwhile
    assert rig.ack(again) == [True]


def test_an_end_told_again_of_the_last_attempt_leaves_one_letter() -> None:
    rig = EngineRig(delivery=DeliveryConfig(max_attempts=1))
    rig.send("m1")
    (one,) = rig.receive(push=True)
    for _ in range(2):
        assert ended(rig, one.handle) == one.handle
    assert newest_letter(rig.engine, "billing", "m1").attempt_count == 1
    assert len(rig.receive(topic="%DLQ%billing")) == 1


def test_the_leases_that_ran_out_are_told_from_those_that_were_ended() -> None:
    rig = EngineRig(
        delivery=DeliveryConfig(max_attempts=99),
    )
    rig.send("m1")
    handles: list[tuple[str, bool]] = []
    for ends in (True, False, True, True, False, False, True, False):
        (one,) = rig.receive(push=False, lease_ms=1_000)
        handles.append((one.handle, ends))
        if ends:
            ended(rig, one.handle, wait_ms=1_000)
        rig.advance(1_000)
        for handle, was_ended in handles:
            if was_ended:
                assert ended(rig, handle) == handle
            else:
                with pytest.raises(InvalidReceiptHandleError):
                    ended(rig, handle)


def test_a_group_or_topic_that_it_is_not_of_knows_no_repeat() -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive(push=True)
    rig.names("others")
    ended(rig, one.handle)
    for group, topic in (("others", "orders"), ("billing", "%DLQ%billing"), ("none", "orders")):
        with pytest.raises(InvalidReceiptHandleError):
            rig.engine.change_invisible(
                group, one.handle, 1, rig.now_ms, repeatable=True, topic=topic
            )


def test_official_clients_are_not_changed_by_it() -> None:
    """Their ChangeInvisibleDuration is a nack, gives another handle, and is not told again."""
    rig = EngineRig()
    backoff = Backoff(kind=BackoffKind.FIXED, delays_ms=(7_000,))
    rig.engine.groups.create(
        "billing", fifo=False, max_attempts=3, backoff=backoff, now_ms=rig.now_ms
    )
    rig.send("m1")
    (one,) = rig.receive(push=True)
    handle = rig.engine.change_invisible("billing", one.handle, 10 * MINUTE_MS, rig.now_ms)
    assert handle != one.handle
    (delivery,) = rig.engine._state.leases.deliveries.values()
    assert (delivery.state, delivery.deadline_ms) == (State.BACKOFF, rig.now_ms + 7_000)
    with pytest.raises(InvalidReceiptHandleError):
        rig.engine.change_invisible("billing", one.handle, 1, rig.now_ms)
