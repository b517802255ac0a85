import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from latermq_broker.delivery.failure import Failure
from latermq_broker.delivery.history import (
    Attempt,
    History,
    Life,
    Outcome,
    decode_history,
    decode_outline,
    encode_history,
    last_failure,
    without_stacks,
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


AWKWARD = st.lists(
    st.sampled_from(['"', "\\", ',"stack":"', '"}', ',"attempts":[', "]}", "ä", "\n", "a"]),
    max_size=8,
).map("".join)


@example(["", "", "\\"], "")
@given(st.lists(AWKWARD, min_size=1, max_size=4), AWKWARD)
def test_a_reader_without_stacks_decodes_none(texts: list[str], name: str) -> None:
    told = [Failure(text, text, text, text + text) for text in texts]
    attempts = [
        each
        for n, failure in enumerate(told, 1)
        for each in (
            Attempt(n, 1, 2, name, Outcome.NACK, failure, 3),
            Attempt(n, 1, 2, name, Outcome.EXPIRED, None, 0, 2),
        )
    ]
    body = encode_history(History(name, "billing", "forwarded", name, tuple(attempts)))
    assert decode_outline(body) == History(name, "billing", "forwarded", name, ())
    short = decode_history(without_stacks(body)).attempts
    assert list(short) == [
        each._replace(failure=each.failure and each.failure._replace(stack="")) for each in attempts
    ]
    life = Life(body, lambda ms: ms + 10)
    assert [each.started_ms for each in (*life.short, *life.whole)] == [11] * 2 * len(attempts)
    assert [each.failure for each in life.whole] == [each.failure for each in attempts]
    assert not any(each.failure and each.failure.stack for each in life.short)


def test_a_letter_without_a_history_has_no_attempts() -> None:
    life = Life(b"", int)
    assert (life.outline.origin_topic, life.short, life.whole) == ("", (), ())
