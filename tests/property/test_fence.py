"""Owners, standbys and zombies by seeds: no promise lost, never two that serve."""

from collections.abc import Callable
from typing import Final

import pytest

from latermq_broker.replication.entry import Offset
from latermq_broker.replication.shipper import Shipment
from latermq_broker.replication.tenure import Tenure
from support.fence_sim import Idempotent, World

SEEDS: Final = 1_000
PARTS: Final = 8
CONTROL_SEEDS: Final = 100


@pytest.mark.parametrize("part", range(PARTS))
def test_the_ledger_holds(part: int) -> None:
    """Whatever the log, the network and stopped nodes do; `make replication-long` does more."""
    promises = handed_over = taken_back = mute = refused = 0
    for seed in range(part, SEEDS, PARTS):
        story = World(seed).run()
        assert not story.faults, f"seed {seed}: python -m support.fence_sim {seed}"
        promises += story.kept
        handed_over += story.handed_over
        taken_back += story.taken_back
        mute += story.mute
        refused += story.refused
    assert promises > SEEDS
    assert mute > 0
    assert refused > 0
    assert handed_over > taken_back > 0


class Everlasting(Tenure):
    """Serves for as long as nothing tells it that it was fenced."""

    def serving(self, now_ms: int) -> bool:
        return not self.fenced


class Hasty(Tenure):
    """Takes for valid what a quorum has, and reads no gap first."""

    def reported(self, shipment: Shipment, offset: Offset, now_ms: int) -> None:
        self.reader.offset = max(self.reader.offset, offset)
        super().reported(shipment, offset, now_ms)


class Piecemeal(Tenure):
    """Promises what is valid before its group is whole."""

    def _judged(self, *verdict: object) -> None:
        super()._judged(*verdict)  # type: ignore[arg-type]
        assert self.reader.standing is not None
        self.valid_end = self.reader.standing.end


class Lingering(Tenure):
    """Serves until it knows that it has handed the log over."""

    def serving(self, now_ms: int) -> bool:
        leaving, self._leaving = self._leaving, False
        serves = super().serving(now_ms)
        self._leaving = leaving
        return serves


class Heedless(Tenure):
    """Serves at once, whoever else may have been there a moment ago."""

    def serving(self, now_ms: int) -> bool:
        self._serve_from_ms = 0
        return super().serving(now_ms)


class Impatient(Tenure):
    """Hands the log over while the owner before it may still serve."""

    def hand_over(self) -> None:
        super().hand_over()
        self._serve_from_ms = 0


def without_rule(seed: int) -> World:
    """The measured alternative: an idempotent producer, on a log that does all it promises."""
    return World(seed, rule=False, owner=Idempotent)


CONTROLS: Final[dict[str, tuple[Callable[[int], World], str]]] = {
    "no rule, an idempotent producer alone": (without_rule, "promised and is lost"),
    "no silence": (lambda seed: World(seed, owner=Everlasting), "serves"),
    "gaps not read": (lambda seed: World(seed, owner=Hasty), "promised and is lost"),
    "groups not whole": (lambda seed: World(seed, owner=Piecemeal), "promised and is lost"),
    "nobody is waited for": (lambda seed: World(seed, owner=Heedless), "serves"),
    "handed over while it serves": (lambda seed: World(seed, owner=Lingering), "serves"),
    "handed over too soon": (lambda seed: World(seed, owner=Impatient), "serves"),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_a_weaker_rule_is_seen_to_fail(control: str) -> None:
    make, fault = CONTROLS[control]
    for seed in range(CONTROL_SEEDS):
        if any(fault in line for line in make(seed).run().faults):
            return
    pytest.fail(f"{CONTROL_SEEDS} seeds without a fault: the ledger shows nothing")
