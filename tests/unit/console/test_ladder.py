"""A group's backoff as steps, and a message's fate in words."""

import pytest

from latermq_console.drawing import ladder, life
from latermq_proto.latermq.v1 import dead_letter_pb2 as dead_pb2
from latermq_proto.latermq.v1 import group_pb2, message_pb2

Backoff = group_pb2.Backoff


@pytest.mark.parametrize(
    ("backoff", "waits", "words"),
    [
        (Backoff(fixed_ms=5_000), [5_000] * 3, "always 5 s"),
        (
            Backoff(ladder=Backoff.Ladder(delays_ms=[1_000, 60_000]), jitter=0.2),
            [1_000, 60_000, 60_000], "a ladder: 1 s 1m, give or take 20%",
        ),
        (
            Backoff(exponential=Backoff.Exponential(initial_ms=10, max_ms=25, multiplier=2)),
            [10, 20, 25], "from 10 ms, times 2 each, at most 25 ms",
        ),
    ],
)  # fmt: skip
def test_steps(backoff: group_pb2.Backoff, waits: list[int], words: str) -> None:
    drawn = ladder.ladder_of(group_pb2.Group(max_attempts=4, backoff=backoff))
    assert drawn is not None
    assert [step.wait_ms for step in drawn.steps] == waits
    assert (drawn.words, drawn.whole_ms, drawn.cut) == (words, sum(waits), False)


def test_a_policy_without_end_is_cut() -> None:
    huge = Backoff.Exponential(initial_ms=1, max_ms=1 << 60, multiplier=1_000)
    group = group_pb2.Group(max_attempts=10_000, backoff=Backoff(exponential=huge))
    drawn = ladder.ladder_of(group)
    assert drawn is not None
    assert (len(drawn.steps), drawn.cut) == (ladder.STEPS_MAX, True)
    assert ladder.ladder_of(group_pb2.Group(max_attempts=3)) is None
    single = ladder.ladder_of(group_pb2.Group(max_attempts=1, backoff=Backoff(fixed_ms=1)))
    assert single is not None
    assert single.steps == []


@pytest.mark.parametrize("state", message_pb2.LifeState.values())
@pytest.mark.parametrize("dead", dead_pb2.DeadLetterState.values())
def test_every_fate_has_words(state: int, dead: int) -> None:
    group_life = message_pb2.GroupLife(
        group="g", state=message_pb2.LifeState.Name(state), attempt=2, max_attempts=3,
        until_ms=7, dead_offset=5, dead_state=dead_pb2.DeadLetterState.Name(dead),
    )  # fmt: skip
    fate = life.fate_of(group_life, expired=False)
    assert fate.pill
    assert fate.words
    assert (fate.until_ms == 7) == (state in (message_pb2.LEASED, message_pb2.WAITS_RETRY))
    died = state == message_pb2.DIED and dead not in (dead_pb2.REDRIVEN, dead_pb2.DROPPED)
    assert (fate.dead_offset == 5) == died
