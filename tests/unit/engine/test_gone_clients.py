"""How a lease that ran out is told: its client gave no answer, or could give none any more."""

from collections.abc import Callable
from typing import Final

import pytest

from latermq_broker.store.records.lease_records import Outcome
from support.engine_facts import newest_letter
from support.engine_rig import EngineRig

MINUTE_MS: Final = 60_000
GROUP: Final = "billing"


def outcomes(rig: EngineRig, message: str = "m1") -> list[Outcome]:
    """Have the message die at its next attempt, and list how its attempts ended."""
    (one,) = rig.receive(client="undertaker")
    rig.engine.forward(GROUP, one.handle, rig.now_ms)
    return [each.outcome for each in newest_letter(rig.engine, GROUP, message).attempts][:-1]


def terminated(rig: EngineRig, handle: str) -> None:
    del handle
    rig.engine.client_gone("client-1", rig.now_ms)


def unproved(rig: EngineRig, handle: str) -> None:
    rig.engine.unproved(GROUP, [handle], rig.now_ms)


def silent(rig: EngineRig, handle: str) -> None:
    del handle
    rig.advance(3 * MINUTE_MS)
    rig.engine.end_silent_clients(rig.now_ms)


@pytest.mark.parametrize("lease_ms", [500, MINUTE_MS])
@pytest.mark.parametrize("ends", [terminated, unproved])
@pytest.mark.parametrize("again", ["", "crash", "restart", "checkpoint"])
def test_a_renewed_lease_of_a_client_that_is_gone_says_so(
    ends: Callable[[EngineRig, str], None], again: str, lease_ms: int
) -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive(push=True, lease_ms=lease_ms)
    ends(rig, one.handle)
    if again == "checkpoint":
        rig.checkpoint()
    if again:
        rig.restart() if again == "restart" else rig.crash()
    for _ in range(7):  # another process of the client may live
        rig.engine.client_seen("client-1", rig.now_ms)
        rig.advance(10_000)
    assert outcomes(rig) == [Outcome.CLIENT_GONE]
    rig.crash()
    (letter,) = (newest_letter(rig.engine, GROUP, "m1"),)
    assert letter.attempts[0].outcome is Outcome.CLIENT_GONE


def test_a_client_that_fell_silent_is_gone() -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive(push=True, lease_ms=MINUTE_MS)
    silent(rig, one.handle)
    rig.advance(2_000)
    assert outcomes(rig) == [Outcome.CLIENT_GONE]


def test_a_client_that_lives_and_says_nothing_is_not_gone() -> None:
    rig = EngineRig()
    rig.send("m1", "m2")
    simple, pushed = rig.receive(count=1, lease_ms=5_000)[0], rig.receive(push=True, count=1)[0]
    rig.engine.client_seen("client-1", rig.now_ms)
    rig.engine.change_invisible(GROUP, pushed.handle, 1_000, rig.now_ms, extends=True)
    rig.advance(1_000)
    assert outcomes(rig, "m2") == [Outcome.EXPIRED]
    rig.advance(4_000)
    assert outcomes(rig) == [Outcome.EXPIRED]
    assert rig.engine.ack(GROUP, [simple.handle], rig.now_ms) != [None]


@pytest.mark.parametrize("back", [False, True])
def test_a_simple_consumer_without_a_connection_is_gone_until_it_is_back(back: bool) -> None:
    rig = EngineRig()
    rig.send("m1")
    rig.receive(lease_ms=5_000)
    rig.engine.hearing.client_left("client-1")
    if back:
        rig.engine.client_seen("client-1", rig.now_ms)
    rig.advance(5_000)
    assert outcomes(rig) == [Outcome.EXPIRED if back else Outcome.CLIENT_GONE]


def test_a_nack_without_a_reason_and_a_return_are_told_apart() -> None:
    rig = EngineRig()
    rig.send("m1")
    (one,) = rig.receive()
    rig.engine.change_invisible(GROUP, one.handle, 1, rig.now_ms, repeatable=True)
    rig.advance(MINUTE_MS)
    (one,) = rig.receive()
    rig.engine.change_invisible(GROUP, one.handle, 1, rig.now_ms, suspend=True)
    rig.advance(1)
    assert outcomes(rig) == [Outcome.NACK, Outcome.SUSPENDED]
