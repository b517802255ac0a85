"""The ledger itself: it must cry when a promise is broken, and only then."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from support.ledger import Delivery, Ledger, Outcome

Step: TypeAlias = Callable[[Ledger], None]

BODY = b"body"
NOW = 1_000_000


def ledger() -> Ledger:
    """One acknowledged message `m`, due at NOW, for groups `g` (3 attempts) and `h`."""
    made = Ledger({"g": 3, "h": 3})
    made.sending({"m": (BODY, NOW)})
    made.sent(["m"], Outcome.DONE)
    return made


def delivery(
    attempt: int = 1, *, at_ms: int = NOW, body: bytes = BODY, message_id: str = "m"
) -> Delivery:
    """Asked for and given out when it came; leased for 100 ms."""
    return Delivery(message_id, body, attempt, at_ms, at_ms, at_ms, 100)


def test_an_orderly_life_has_no_violation() -> None:
    made = ledger()
    made.delivered("g", delivery(1))
    made.waits("g", "m", NOW + 10, 30)  # a nack
    made.delivered("g", delivery(2, at_ms=NOW + 40))
    made.crashed()
    made.delivered("g", delivery(3, at_ms=NOW + 140))
    made.acking("g", "m")
    made.acked("g", "m", 3, accepted=True, at_ms=NOW + 150)
    made.delivered("h", delivery(1))
    made.forwarding("h", "m")
    made.forwarded("h", "m")
    made.died("h", "m", BODY)
    made.check_drained("g", NOW)
    made.check_drained("h", NOW)
    assert made.violations == []


def test_what_was_never_answered_may_have_happened_or_not() -> None:
    made = ledger()
    made.sending({"unknown": (BODY, 0)})
    made.delivered("g", delivery(1, message_id="unknown"))
    made.delivered("g", delivery(1))
    made.acking("g", "m")
    made.crashed()
    made.delivered("g", delivery(3, at_ms=NOW + 100))  # attempt 2 was leased as the broker died
    made.forwarding("g", "m")
    made.crashed()
    made.died("g", "m", BODY)
    made.check_drained("g", NOW)
    made.check_drained("h", NOW - 1)  # nothing is due yet
    assert made.violations == []


def acked(made: Ledger) -> None:
    made.delivered("g", delivery(1))
    made.acked("g", "m", 1, accepted=True, at_ms=NOW)


def forwarded(made: Ledger) -> None:
    made.delivered("g", delivery(1))
    made.forwarding("g", "m")
    made.forwarded("g", "m")


def refuse(made: Ledger) -> None:
    made.sent(["m"], Outcome.REFUSED)


def comes(attempt: int = 1, **fields: Any) -> Step:
    return lambda made: made.delivered("g", delivery(attempt, **fields))


def refused_ack(made: Ledger) -> None:
    made.acked("g", "m", 1, accepted=False, at_ms=NOW + 99)


def dies(made: Ledger) -> None:
    made.died("g", "m", BODY)


def drained(made: Ledger) -> None:
    made.check_drained("g", NOW)


BROKEN: dict[str, list[Step]] = {
    "nobody sent it": [comes(message_id="x")],
    "its body changed": [comes(body=b"bodY")],
    "1 ms early": [comes(at_ms=NOW - 1)],
    "send was refused": [refuse, comes()],
    "acknowledged, and delivered again": [acked, comes(2, at_ms=NOW + 200)],
    "dead, and delivered again": [forwarded, comes(2, at_ms=NOW + 200)],
    "1 ms before the last lease": [comes(), comes(2, at_ms=NOW + 99)],
    "follows attempt 2, 0 hidden": [comes(), comes(2, at_ms=NOW + 100), comes(2, at_ms=NOW + 200)],
    "follows attempt 1, 1 hidden": [comes(), Ledger.crashed, comes(at_ms=NOW + 200)],
    "follows attempt 0, 0 hidden": [comes(2)],
    "more than 3 attempts": [comes(4)],
    "live lease was refused": [comes(), refused_ack],
    "lost": [drained],
    "not among the dead letters": [forwarded, drained],
    "nobody sent": [lambda made: made.died("g", "x", BODY)],
    "two dead letters": [forwarded, dies, dies],
    "acknowledged, and a dead letter": [acked, dies],
    "dead after 1 attempts": [comes(), dies],
}


@pytest.mark.parametrize("words", BROKEN)
def test_a_broken_promise_is_told(words: str) -> None:
    made = ledger()
    for step in BROKEN[words]:
        step(made)
    assert any(words in violation for violation in made.violations), made.violations
