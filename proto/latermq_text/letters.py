"""Why a message died, in sentences: what a terminal says and what a page shows. Pure."""

from collections.abc import Mapping
from typing import Final

from latermq_proto.latermq.v1 import dead_letter_pb2 as dead_pb2

SILENT: Final[Mapping[str, str]] = {"expired": "lease ended", "client_gone": "client gone"}


def failure_words(class_name: str, text: str) -> str:
    """Return `TimeoutError: the bank did not answer`, whatever of it is known, on one line."""
    text = " ".join(text.split())
    return f"{class_name}: {text}" if class_name and text else class_name or text


def failure_of(failed: dead_pb2.Attempt | dead_pb2.DeadLetter) -> str:
    """Return `failure_words` of an attempt, or of a letter's last one."""
    return failure_words(failed.failure_class, failed.failure_text)


def cause(letter: dead_pb2.DeadLetter) -> str:
    """Say what rule made it a dead letter."""
    if not letter.origin_topic:
        return (
            "It did not: a producer sent it straight to the dead letters, and no consumer had it "
            "before."
        )
    words = failure_of(letter)
    said = f" ({words})" if words else ""
    if letter.reason == "rejected":
        return f"The application refused it at attempt {letter.attempt_count}{said}."
    if letter.reason == "forwarded":
        return (
            f"The consumer sent it to the dead letters itself at attempt {letter.attempt_count}"
            f"{said}."
        )
    if letter.reason == "filtered":
        return (
            f"After attempt {letter.attempt_count}{said} no consumer wanted it again: the group's "
            "filter was changed, and it withheld its message group."
        )
    allowed = letter.max_attempts or letter.attempt_count
    life = " since its last redrive" if letter.redrive_count else ""
    if letter.attempt_count > allowed:  # the policy was changed on the way
        had = _attempts(letter.attempt_count)
        return f"The group allowed {allowed} when it died; it had had {had}{life} without success."
    used = "all were used up" if allowed > 1 else "it was used up"
    return f"The group allows {_attempts(allowed)}, and {used}{life} without success."


def pattern(letter: dead_pb2.DeadLetter) -> str:
    """Say what its attempts have in common; "" where that says nothing."""
    last = max((attempt.life for attempt in letter.attempts), default=1)
    lately = [a for a in letter.attempts if a.life == last and a.outcome != "suspended"]
    if not lately:
        return ""
    if all(attempt.outcome == "client_gone" for attempt in lately):
        return (
            "No attempt ended with an answer: each time the consumer crashed, left, or lost its "
            "connection."
        )
    if all(attempt.outcome in SILENT for attempt in lately):
        return (
            "No attempt ended with an answer: the consumer hung, crashed, or needs a longer "
            "invisible duration."
        )
    if len(lately) < 2:
        return ""
    tally: dict[str, int] = {}
    for attempt in lately:
        name = attempt.failure_class or SILENT.get(attempt.outcome, "no failure told")
        tally[name] = tally.get(name, 0) + 1
    if len(tally) == 1:
        name = next(iter(tally))
        return f"Every attempt failed the same way ({name}); retrying did not help."
    parts = ", ".join(f"{name} ({count})" for name, count in tally.items())
    return f"The attempts ended differently: {parts}."


def _attempts(count: int) -> str:
    return "1 attempt" if count == 1 else f"{count:,} attempts"
