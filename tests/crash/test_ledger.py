"""The ledger itself: it must cry when a promise is broken, and only then."""

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from support.ledger import Delivery, Ledger
from support.ledger_sends import Outcome

Step: TypeAlias = Callable[[Ledger], None]

BODY = b"body"
HANDLE = "handle"
NOW = 1_000_000


def ledger() -> Ledger:
    """One acknowledged message `m`, due at NOW, for groups `g` (3 attempts) and `h`."""
    made = Ledger({"g": 3, "h": 3})
    made.sending({"m": (BODY, NOW)})
    made.sent(["m"], Outcome.DONE)
    return made


def delivery(
    attempt: int = 1,
    *,
    at_ms: int = NOW,
    body: bytes = BODY,
    message_id: str = "m",
    handle: str = HANDLE,
) -> Delivery:
    """Asked for and given out when it came; leased for 100 ms."""
    return Delivery(message_id, body, attempt, handle, at_ms, at_ms, at_ms, 100)


def test_an_orderly_life_has_no_violation() -> None:
    made = ledger()
    made.delivered("g", delivery(1))
    made.waits("g", "m", NOW + 10, 30)  # a nack
    made.delivered("g", delivery(2, at_ms=NOW + 40))
    made.crashed()
    made.delivered("g", delivery(3, at_ms=NOW + 140))
    made.acking("g", "m")
    made.acked("g", "m", HANDLE, accepted=True, at_ms=NOW + 150)
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


def test_what_is_given_anew_begins_with_attempt_one() -> None:
    made = ledger()
    acked(made)
    rewound(made)
    made.delivered("g", delivery(1, at_ms=NOW + 1))  # nobody holds it any more
    dies_as_told(made)
    rewound(made, letters=1)
    made.delivered("g", delivery(1, at_ms=NOW + 2))
    made.acking("g", "m")
    made.acked("g", "m", HANDLE, accepted=True, at_ms=NOW + 3)
    made.died("g", "m", BODY)  # the letter of before
    made.check_drained("g", NOW)
    assert made.violations == []


def test_an_offset_of_unknown_outcome_allows_either() -> None:
    for happened in (False, True):
        made = ledger()
        made.delivered("g", delivery(1))
        made.rewinding("g", ["m"], Counter())
        made.skipping("h", ["m"])
        made.crashed()
        made.delivered("g", delivery(1 if happened else 2, at_ms=NOW + 100))
        if not happened:
            made.delivered("h", delivery(1))
        made.check_drained("h", NOW - 1)
        assert made.violations == []


def test_an_offset_moved_on_after_one_that_may_have_moved_back_owes_nothing() -> None:
    made = ledger()
    made.delivered("g", delivery(1))
    made.rewinding("g", ["m"], Counter())
    made.crashed()
    skipped(made)
    made.check_drained("g", NOW)
    made.delivered("g", delivery(2, at_ms=NOW + 100))  # or it had not moved back
    assert made.violations == []


def test_what_is_skipped_or_not_wanted_is_not_owed() -> None:
    made = ledger()
    skipped(made)
    made.receiving("h", frozenset("t"), NOW)
    made.check_drained("g", NOW)
    made.check_drained("h", NOW)
    assert made.violations == []


def test_a_renewed_lease_outlives_a_stop_and_not_a_crash() -> None:
    for end, broken in ((Ledger.stopped, True), (Ledger.crashed, False)):
        made = ledger()
        made.delivered("g", delivery(1)._replace(renewed_ms=5_000))
        end(made)
        made.delivered("g", delivery(2, at_ms=NOW + 200))
        assert bool(made.violations) is broken


def test_a_redriven_message_comes_before_those_behind_it() -> None:
    for redriven in (False, True):
        made = Ledger({"g": 3})
        made.sending({"m": (BODY, 0), "n": (BODY, 0)}, keys={"m": "k", "n": "k"})
        made.sent(["m", "n"], Outcome.DONE)
        forwarded(made)
        if redriven:
            made.redriving("g", "m")
            made.redriven("g", "m")
        made.delivered("g", delivery(1, message_id="n", at_ms=NOW + 1)._replace(reply=2))
        assert bool(made.violations) is redriven


def test_a_topic_that_is_there_tells_whether_its_deletion_happened() -> None:
    for found in ("old", "new", ""):
        made = ledger()
        acked(made)
        made.deleting_topic("old", {"g": Counter()})
        made.crashed()
        made.found_topic(found)
        made.check_drained("h", NOW)  # its message is owed as long as its topic is there
        assert bool(made.violations) is (found == "old")
        made.violations.clear()
        made.delivered("g", delivery(2, at_ms=NOW + 200))
        assert ("its topic was deleted" in made.violations[0]) is (found != "old")


def test_a_topic_that_is_there_was_never_made_anew() -> None:
    made = ledger()
    made.deleting_topic("first", {"g": Counter("m")})
    made.deleted_topic("first")
    redriven(made)
    for attempt in (1, 2):  # in the second
        made.delivered("g", delivery(attempt, at_ms=NOW + 100 * attempt))
    made.deleting_topic("second", {})
    made.deleting_topic("third", {})
    made.crashed()
    made.found_topic("second")
    made.delivered("g", delivery(3, at_ms=NOW + 300))
    assert made.violations == []


def test_a_lease_that_nobody_saw_may_be_of_the_life_that_deleted_the_topic() -> None:
    made = ledger()
    forwarded(made)
    made.crashed()
    made.deleting_topic("old", {"g": Counter("m")})
    made.redriving("g", "m")  # lent then, and written as the power failed
    made.crashed()
    made.found_topic("new")
    made.delivered("g", delivery(2, at_ms=NOW + 200))
    assert made.violations == []


def test_what_a_deleted_topic_had_is_not_owed_and_its_letters_stay() -> None:
    made = ledger()
    forwarded(made)
    deleted(made, letters=1)
    dies(made)
    made.check_drained("g", NOW)
    made.check_drained("h", NOW)
    redriven(made)
    made.delivered("g", delivery(1, at_ms=NOW + 1))
    made.acked("g", "m", HANDLE, accepted=True, at_ms=NOW + 2)
    made.check_drained("g", NOW)
    deleted(made)
    made.check_drained("g", NOW)
    assert made.violations == []


def test_a_group_made_anew_is_given_all_that_is_there() -> None:
    made = ledger()
    acked(made)
    made.remaking_group("g", "ordered", Counter(), 500)
    assert made.kinds["g"] == ("plain", "", "ordered")
    made.remade_group("g", "ordered", 500)
    made.delivered("g", delivery(1, at_ms=NOW + 1))
    made.found_group("g", "ordered")
    assert made.violations == []


@pytest.mark.parametrize("again", ["redriven", "rewound", "group made anew", "elsewhere"])
def test_a_handle_of_before_is_not_that_of_a_lease_with_the_same_attempt(again: str) -> None:
    made = ledger()
    if again == "elsewhere":  # redriven into a topic made anew, whose offsets are set back
        deleted(made, letters=1)
        redriven(made)
    made.delivered("g", delivery(1, handle="before"))
    AGAIN[again](made)
    made.delivered("g", delivery(1, at_ms=NOW + 200, handle="now"))
    made.acked("g", "m", "before", accepted=False, at_ms=NOW + 201)
    assert made.violations == []
    made.acked("g", "m", "", accepted=False, at_ms=NOW + 201)  # it may be of any lease
    assert made.violations == []
    made.acked("g", "m", "now", accepted=False, at_ms=NOW + 201)
    assert "the handle of a live lease was refused" in made.violations[0]


def test_a_changed_lease_has_another_handle() -> None:
    made = ledger()
    made.delivered("g", delivery(1, handle="before"))
    made.waits("g", "m", NOW, 200, "now")
    made.acked("g", "m", "before", accepted=False, at_ms=NOW + 1)
    assert made.violations == []
    made.acked("g", "m", "now", accepted=False, at_ms=NOW + 199)
    assert "the handle of a live lease was refused" in made.violations[0]


def acked(made: Ledger) -> None:
    made.delivered("g", delivery(1))
    made.acked("g", "m", HANDLE, accepted=True, at_ms=NOW)


def forwarded(made: Ledger) -> None:
    made.delivered("g", delivery(1))
    made.forwarding("g", "m")
    made.forwarded("g", "m")


def skipped(made: Ledger) -> None:
    made.skipping("g", ["m"])
    made.skipped("g", ["m"])


def rewound(made: Ledger, letters: int = 0) -> None:
    made.rewinding("g", ["m"], Counter({"m": letters}))
    made.rewound("g", ["m"])


def deleted(made: Ledger, letters: int = 0) -> None:
    made.deleting_topic("old", {"g": Counter({"m": letters})})
    made.deleted_topic("old")


def redriven(made: Ledger) -> None:
    made.redriving("g", "m")
    made.redriven("g", "m")


def group_made_anew(made: Ledger) -> None:
    made.remaking_group("g", "plain", Counter(), 0)
    made.remade_group("g", "plain", 0)


AGAIN: dict[str, Step] = {
    "redriven": redriven,
    "rewound": rewound,
    "group made anew": group_made_anew,
    "elsewhere": lambda made: made.rewinding("g", [], Counter()),
}


def dies_as_told(made: Ledger) -> None:
    made.forwarding("g", "m")
    made.forwarded("g", "m")


def refuse(made: Ledger) -> None:
    made.sent(["m"], Outcome.REFUSED)


def comes(attempt: int = 1, **fields: Any) -> Step:
    return lambda made: made.delivered("g", delivery(attempt, **fields))


def refused_ack(made: Ledger) -> None:
    made.acked("g", "m", HANDLE, accepted=False, at_ms=NOW + 99)


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
    "skipped, and delivered": [skipped, comes()],
    "not wanted, and delivered": [lambda m: m.receiving("g", frozenset("t"), NOW), comes()],
    "GetOffset passes it": [lambda made: made.told_offset("g", ["m"])],
    "withdrawn, and is good": [
        comes(),
        rewound,
        lambda made: made.acked_void("g", "m", accepted=True),
    ],
    "g m: lost": [acked, rewound, drained],
    "g m: lost (due": [acked, group_made_anew, drained],
    "its topic was deleted, yet it came": [deleted, comes()],
    "redriven into a new topic, and lost": [forwarded, deleted, redriven, drained],
    "follows attempt 1, 0 hidden": [forwarded, deleted, redriven, comes(), comes(at_ms=NOW + 200)],
    "was deleted, and is there again": [deleted, lambda made: made.found_topic("old")],
    "topic new is lost": [
        lambda made: made.made_topic("new"),
        lambda made: made.found_topic("other"),
    ],
    "group g is lost": [lambda made: made.found_group("g", "")],
    "group g is ordered": [group_made_anew, lambda made: made.found_group("g", "ordered")],
}


@pytest.mark.parametrize("words", BROKEN)
def test_a_broken_promise_is_told(words: str) -> None:
    made = ledger()
    for step in BROKEN[words]:
        step(made)
    assert any(words in violation for violation in made.violations), made.violations
