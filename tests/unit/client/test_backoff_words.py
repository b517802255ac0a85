"""Backoffs in words: `--backoff` of the command line, `retry=` of a listener."""

from datetime import timedelta

import pytest

from latermq.admin import backoff_message, read_backoff
from latermq.backoff import Backoff
from latermq_proto.latermq.v1 import group_pb2


def parse_backoff(text: str) -> group_pb2.Backoff:
    return backoff_message(Backoff(text))


def format_backoff(backoff: group_pb2.Backoff) -> str:
    return str(read_backoff(backoff) or "")


def test_a_ladder() -> None:
    assert list(parse_backoff("1s 5s 10s").ladder.delays_ms) == [1_000, 5_000, 10_000]
    assert list(parse_backoff("500ms,1m").ladder.delays_ms) == [500, 60_000]


def test_exponential() -> None:
    policy = parse_backoff("exponential 5s 2h 1.5").exponential
    assert (policy.initial_ms, policy.max_ms, policy.multiplier) == (5_000, 7_200_000, 1.5)
    assert parse_backoff("exponential 5s 2h").exponential.multiplier == 2.0


def test_fixed_with_jitter() -> None:
    for text in ("fixed 10s jitter 20%", "fixed 10s jitter 0.2"):
        backoff = parse_backoff(text)
        assert (backoff.fixed_ms, backoff.jitter) == (10_000, 0.2)


@pytest.mark.parametrize(
    "text", ["1s", "1s 5s 1h30m", "exponential 5s 2h 2", "fixed 250ms", "1s 5s jitter 20%"]
)
def test_what_is_shown_parses_back(text: str) -> None:
    assert format_backoff(parse_backoff(text)) == text


def test_no_policy_is_shown_as_nothing() -> None:
    assert format_backoff(group_pb2.Backoff()) == ""


@pytest.mark.parametrize(
    "text",
    ["", "  ", "linear 5s", "exponential 5s", "exponential 1s 2s x", "fixed", "fixed 1s 2s",
     "1s five", "1s jitter 200%"],
)  # fmt: skip
def test_what_is_no_backoff(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_backoff(text)


def test_jitter_may_be_said_beside_the_words() -> None:
    assert str(Backoff("1s 5s", jitter=0.2)) == "1s 5s jitter 20%"
    assert Backoff("1s jitter 20%", jitter=0.0) == Backoff("1s")
    with pytest.raises(ValueError, match=r"jitter 1\.5 is not within 0 to 1"):
        Backoff("1s", jitter=1.5)
    with pytest.raises(TypeError, match="a backoff is text"):
        Backoff(5)  # type: ignore[arg-type]


def test_waits() -> None:
    second = timedelta(seconds=1)
    ladder = Backoff("1s 5s", jitter=0.5)
    assert [ladder.wait(retry) for retry in (1, 2, 3)] == [second, 5 * second, 5 * second]
    assert (ladder.wait(1, 0.0), ladder.wait(1, 0.75)) == (second / 2, 1.25 * second)
    growth = Backoff("exponential 1s 1m 10")
    assert [growth.wait(retry) for retry in (1, 2, 3)] == [second, 10 * second, 60 * second]
    assert Backoff("fixed 3s").wait(9) == 3 * second
    assert repr(growth) == "Backoff('exponential 1s 1m 10')"
