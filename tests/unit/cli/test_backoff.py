"""`--backoff` in words."""

import pytest

from latermq_cli.catalog.backoff import format_backoff, parse_backoff
from latermq_proto.latermq.v1 import group_pb2


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
