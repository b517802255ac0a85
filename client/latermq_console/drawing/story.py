"""One dead letter's life, from the message's first day to now: what a page tells, in order.

Pure: a latermq.v1.DeadLetter in, values out. Times are the broker's, whose clock is one.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from latermq_console.drawing.charts import Span, spans
from latermq_console.drawing.words import counted, cut_short
from latermq_proto.latermq.v1 import dead_letter_pb2 as dead_pb2
from latermq_text.durations import format_duration
from latermq_text.letters import cause, failure_of, pattern

SLACK_MS: Final = 1_000  # a wait that is not worth a word
STACKS_CHARACTERS_MAX: Final = 256 << 10  # of all stacks of a letter that differ, together
STACK_CHARACTERS_MAX: Final = 64 << 10
STACK_LINES_MAX: Final = 1_000
TEXT_CHARACTERS_MAX: Final = 8 << 10  # of one failure's text
LINE_WIDE: Final = 1000.0
ENDINGS: Final = {
    "nack": "failed",
    "expired": "its lease ended without an answer",
    "client_gone": "its consumer crashed, left or lost its connection before it answered",
    "forwarded": "the consumer sent it to the dead letters",
    "rejected": "the application refused it",
    "suspended": "given back; it does not count as an attempt",
    "acknowledged": "acknowledged, and given again with its batch",
}
REASONS: Final = {
    "attempts_exhausted": "its attempts were used up",
    "forwarded": "the consumer sent it to the dead letters",
    "rejected": "the application refused it",
    "filtered": "no consumer's filter wants it any more",
    "sent": "a producer sent it straight here",
}


class Event(NamedTuple):
    """A step of the life. kind: sent, wait, attempt, redriven, dead, dropped."""

    kind: str
    at_ms: int
    title: str
    detail: str = ""
    failure_class: str = ""
    failure_text: str = ""
    stack: str = ""
    stack_as: int = 0  # the attempt that had the same stack before; 0: none
    client_id: str = ""
    ran_ms: int = -1


def events(letter: dead_pb2.DeadLetter) -> list[Event]:
    """Return the life, the oldest first."""
    return list(_events(letter))


def _events(letter: dead_pb2.DeadLetter) -> Iterator[Event]:
    first_ms = letter.stored_at_ms or letter.born_at_ms or letter.dead_at_ms
    target = letter.origin_topic or f"%DLQ%{letter.group}"
    by = f"by {letter.born_host}" if letter.born_host else ""
    yield Event("sent", first_ms, f"Sent to {target}", by)
    yield from _hidden(letter)
    stacks: dict[str, int] = {}
    differing = len({attempt.stack for attempt in letter.attempts})
    stack_max = min(STACK_CHARACTERS_MAX, STACKS_CHARACTERS_MAX // max(1, differing))
    previous: dead_pb2.Attempt | None = None
    for attempt in letter.attempts:
        if previous is not None and attempt.life != previous.life:
            yield _redriven(letter, attempt)
        else:
            yield from _wait(previous, attempt, first_ms)
        yield _attempt(attempt, stacks, stack_max)
        previous = attempt
    if letter.origin_topic:
        yield Event("dead", letter.dead_at_ms, "Dead", REASONS.get(letter.reason, letter.reason))
    if letter.state == dead_pb2.REDRIVEN:
        words = "sent back by an operator; no longer dead"
        yield Event("redriven", letter.redriven_at_ms, "Redriven", words)
    elif letter.state == dead_pb2.DROPPED:
        yield Event("dropped", 0, "Dropped", "given up for good")


def _hidden(letter: dead_pb2.DeadLetter) -> Iterator[Event]:
    kept = sum(attempt.outcome != "suspended" for attempt in letter.attempts)
    missing = letter.attempt_count - kept
    if missing > 0 and letter.redrive_count == 0:
        yield Event("wait", 0, f"… {counted(missing, 'earlier attempt')} not kept")


def _redriven(letter: dead_pb2.DeadLetter, attempt: dead_pb2.Attempt) -> Event:
    known = 0 < letter.redriven_at_ms <= attempt.started_at_ms
    when = letter.redriven_at_ms if known else 0
    return Event("redriven", when, f"Redriven to {letter.group}", "attempts count from 1 again")


def _wait(
    previous: dead_pb2.Attempt | None, attempt: dead_pb2.Attempt, first_ms: int
) -> Iterator[Event]:
    if previous is None:
        waited_ms = attempt.started_at_ms - first_ms
        if attempt.attempt == 1 and waited_ms >= SLACK_MS:
            yield Event("wait", 0, f"waited {format_duration(waited_ms)} for its first delivery")
        return
    waited_ms = attempt.started_at_ms - previous.ended_at_ms
    backoff_ms = previous.backoff_ms
    idle_ms = waited_ms - backoff_ms
    if backoff_ms and idle_ms >= SLACK_MS:
        words = f"waited {format_duration(backoff_ms)} as the group's backoff says, then "
        yield Event("wait", 0, f"{words}{format_duration(idle_ms)} for a consumer to ask")
    elif backoff_ms:
        yield Event("wait", 0, f"waited {format_duration(backoff_ms)}, as the group's backoff says")
    elif waited_ms >= SLACK_MS:
        yield Event("wait", 0, f"waited {format_duration(waited_ms)} for a consumer to ask")


def _attempt(attempt: dead_pb2.Attempt, stacks: dict[str, int], stack_max: int) -> Event:
    seen, stack = 0, ""
    if attempt.stack:
        seen = stacks.setdefault(attempt.stack, attempt.attempt)
    if seen == attempt.attempt:
        stack = cut_short(attempt.stack, stack_max, STACK_LINES_MAX)
    return Event(
        "attempt",
        attempt.started_at_ms,
        f"Attempt {attempt.attempt}",
        ENDINGS.get(attempt.outcome, attempt.outcome),
        failure_class=attempt.failure_class,
        failure_text=cut_short(attempt.failure_text, TEXT_CHARACTERS_MAX, STACK_LINES_MAX),
        stack=stack,
        stack_as=seen if seen != attempt.attempt else 0,
        client_id=attempt.client_id,
        ran_ms=max(0, attempt.ended_at_ms - attempt.started_at_ms),
    )


def line(letter: dead_pb2.DeadLetter) -> list[Span]:
    """Return the life as one line drawn to scale: attempts, and the waits between them."""
    if not letter.attempts:
        return []
    begin_ms = letter.stored_at_ms or letter.attempts[0].started_at_ms
    end_ms = max(letter.dead_at_ms, letter.attempts[-1].ended_at_ms, begin_ms + 1)
    stretches: list[tuple[int, int, str, str]] = []
    for attempt in letter.attempts:
        if attempt.backoff_ms:
            until_ms = min(end_ms, attempt.ended_at_ms + attempt.backoff_ms)
            words = f"waited {format_duration(attempt.backoff_ms)}"
            stretches.append((attempt.ended_at_ms, until_ms, "wait", words))
    for attempt in letter.attempts:
        ran = format_duration(max(0, attempt.ended_at_ms - attempt.started_at_ms))
        words = f"attempt {attempt.attempt}: {failure_of(attempt) or attempt.outcome}, ran {ran}"
        stretches.append((attempt.started_at_ms, attempt.ended_at_ms, attempt.outcome, words))
    return spans(stretches, begin_ms, end_ms, LINE_WIDE)


def why(letter: dead_pb2.DeadLetter) -> str:
    """Say in a sentence or two why it died, and what its attempts have in common."""
    return " ".join(filter(None, (cause(letter), pattern(letter))))
