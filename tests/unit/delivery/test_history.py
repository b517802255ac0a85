import pytest

from latermq_broker.delivery.failure import Failure
from latermq_broker.delivery.history import (
    Attempt,
    History,
    Outcome,
    decode_history,
    encode_history,
    last_failure,
)

FAILED = Failure("ValueError", "schlecht: ä", "0123456789abcdef", "line 1\nline 2")
HISTORY = History(
    origin_topic="orders",
    group="billing",
    reason="attempts_exhausted",
    signature="0011223344556677",
    attempts=(
        Attempt(1, 1_000, 1_500, "host@1@0@x", Outcome.NACK, FAILED, 5_000),
        Attempt(2, 6_500, 66_500, "host@2@0@y", Outcome.EXPIRED, None, 0, 2),
    ),
)
GOLDEN = (
    '{"v":1,"topic":"orders","group":"billing","reason":"attempts_exhausted",'
    '"signature":"0011223344556677","attempts":[{"n":1,"start":1000,"end":1500,'
    '"client":"host@1@0@x","how":1,"wait":5000,"class":"ValueError","text":"schlecht: ä",'
    '"hash":"0123456789abcdef","stack":"line 1\\nline 2"},{"n":2,"start":6500,"end":66500,'
    '"client":"host@2@0@y","how":2,"life":2}]}'
)


def test_golden() -> None:
    assert encode_history(HISTORY).decode() == GOLDEN
    assert decode_history(GOLDEN.encode()) == HISTORY


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_survives(outcome: Outcome) -> None:
    told = FAILED._replace(rejected=outcome is Outcome.REJECTED)
    attempt = HISTORY.attempts[0]._replace(outcome=outcome, failure=told)
    history = History("t", "g", "r", "", (attempt,))
    assert decode_history(encode_history(history)) == history


def test_text_that_is_not_unicode_does_not_stop_a_death() -> None:
    odd = HISTORY.attempts[0]._replace(failure=FAILED._replace(text="\ud800"))
    assert decode_history(encode_history(History("t", "g", "r", "", (odd,))))


def test_the_last_failure_told_counts() -> None:
    assert last_failure(HISTORY.attempts) == FAILED
    assert last_failure(()) is None
