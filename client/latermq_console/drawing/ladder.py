"""A group's backoff as steps one can see: after which attempt it waits how long. Pure."""

from typing import Final, NamedTuple

from latermq_proto.latermq.v1 import group_pb2
from latermq_text.durations import format_duration

STEPS_MAX: Final = 40  # drawn; a policy may allow thousands
WIDE: Final = 1000.0
HIGH: Final = 120.0
STEP_WIDE_MAX: Final = 110.0
LONG_MS: Final = 1 << 62


class Step(NamedTuple):
    """The wait after an attempt, and where it is drawn; `at_ms` since the first failure."""

    attempt: int
    wait_ms: int
    at_ms: int
    x: float
    y: float
    wide: float
    high: float


class Ladder(NamedTuple):
    steps: list[Step]
    words: str
    whole_ms: int  # from the first failure to the last attempt, of what is drawn
    cut: bool


def ladder_of(group: group_pb2.Group) -> Ladder | None:
    """Return the steps of the policy that holds, a group's own or the broker's; None: not known."""
    backoff = group.backoff if group.HasField("backoff") else group.default_backoff
    policy = backoff.WhichOneof("policy")
    if policy is None:
        return None
    count = max(0, group.max_attempts - 1)
    waits = [_wait_ms(backoff, policy, number) for number in range(min(count, STEPS_MAX))]
    top = max(waits, default=0) or 1
    step_wide = min(STEP_WIDE_MAX, WIDE / max(1, len(waits)))
    steps, at_ms = [], 0
    for number, wait_ms in enumerate(waits):
        # By the root: a ladder from seconds to hours shows its first steps too.
        high = max(3.0, (wait_ms / top) ** 0.5 * HIGH)
        at_ms += wait_ms
        x = number * step_wide
        steps.append(Step(number + 1, wait_ms, at_ms, x, HIGH - high, step_wide - 4, high))
    return Ladder(steps, _words(backoff, policy), at_ms, count > STEPS_MAX)


def _wait_ms(backoff: group_pb2.Backoff, policy: str, number: int) -> int:
    """Return the wait after the attempt with that index, without jitter."""
    if policy == "fixed_ms":
        return backoff.fixed_ms
    if policy == "ladder":
        delays = backoff.ladder.delays_ms
        return delays[min(number, len(delays) - 1)] if delays else 0
    exponential = backoff.exponential
    grown = exponential.initial_ms * exponential.multiplier ** min(number, 200)
    return int(min(grown, exponential.max_ms or LONG_MS))


def _words(backoff: group_pb2.Backoff, policy: str) -> str:
    jitter = f", give or take {backoff.jitter:.0%}" if backoff.jitter else ""
    if policy == "fixed_ms":
        return f"always {format_duration(backoff.fixed_ms)}{jitter}"
    if policy == "ladder":
        delays = " ".join(format_duration(ms) for ms in backoff.ladder.delays_ms[:STEPS_MAX])
        return f"a ladder: {delays}{jitter}"
    each = backoff.exponential
    return (
        f"from {format_duration(each.initial_ms)}, times {each.multiplier:g} each, "
        f"at most {format_duration(each.max_ms)}{jitter}"
    )
