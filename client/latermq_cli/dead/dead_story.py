"""The life of one dead letter, told to a person: `latermq dead show`.

Pure: a latermq.v1.DeadLetter in, lines out. What message it was and where it came from, then what
happened in order of time, one entry per attempt with its wait, then why it died and what can be
done about it. Text from messages and consumers is escaped, wrapped and indented here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from shlex import quote
from typing import Final

from latermq_cli.terminal.bodies import body_lines
from latermq_cli.terminal.console import counted, styled
from latermq_cli.terminal.facts import fact, room
from latermq_cli.terminal.output import unmarked
from latermq_cli.terminal.table import cut, display_width, pad, plain, plain_lines, wrap
from latermq_cli.terminal.times import format_clock, format_instant, same_day, zone_name
from latermq_proto.latermq.v1 import dead_letter_pb2 as dead_pb2
from latermq_text.durations import format_duration
from latermq_text.letters import cause, failure_of, pattern

BODY_LINES_MAX: Final = 6
PROPERTIES_MAX: Final = 12
_TIME_WIDTH: Final = 12  # 07:19:31.123
_NOTE_INDENT: Final = 2 + _TIME_WIDTH + 2
_NAME_WIDTH: Final = 11
_STRAIGHT: Final = "straight to the dead letters"  # the origin of what a producer sent to %DLQ%
_SLACK_MS: Final = 1_000  # a wait this much longer than the backoff was not the backoff alone

ENDINGS: Final = {
    "nack": "failed",
    "expired": "no answer: the lease ended before the consumer acknowledged or failed it",
    "client_gone": "client gone: it crashed, left or lost its connection before it answered",
    "forwarded": "sent to the dead letters by the consumer",
    "rejected": "refused by the application",
    "suspended": "given back; not counted as an attempt",
    "acknowledged": "acknowledged, but given again with one before it that was not",
}
REASONS: Final = {
    "attempts_exhausted": "attempts used up",
    "forwarded": "forwarded by the consumer",
    "rejected": "refused by the application",
    "filtered": "no longer wanted by the group's filter",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """How to tell it. alike_count: other dead letters of the group with the same signature."""

    width: int
    stacks: bool = False
    whole_body: bool = False
    alike_count: int = 0
    zone: tzinfo | None = None


def tell(letter: dead_pb2.DeadLetter, telling: Telling) -> list[str]:
    """Tell a dead letter's story, line by line."""
    lines = [_title(letter), ""]
    lines += _facts(letter, telling)
    lines += ["", *_timeline(letter, telling)]
    lines += ["", *_why(letter, telling)]
    lines += ["", *_next_steps(letter, telling)]
    return lines


def _title(letter: dead_pb2.DeadLetter) -> str:
    number = f"number {letter.queue_offset} in %DLQ%{plain(letter.group)}"
    return styled(f"Dead letter of group {plain(letter.group)}", bold=True) + f", {number}"


# What message it was


def _facts(letter: dead_pb2.DeadLetter, telling: Telling) -> Iterator[str]:
    origin = f"topic {plain(letter.origin_topic)}" if letter.origin_topic else _STRAIGHT
    if letter.origin_queue_id >= 0 and letter.origin_offset >= 0:
        origin += f", queue {letter.origin_queue_id}, offset {letter.origin_offset}"
    yield from fact("message", [letter.message_id], telling.width)
    yield from fact("from", [origin], telling.width)
    yield from fact("sent", [_sent(letter, telling)], telling.width)
    if letter.tag:
        yield from fact("tag", [letter.tag], telling.width)
    if letter.keys:
        yield from fact("keys", [", ".join(letter.keys)], telling.width)
    if letter.message_group:
        yield from fact("group of", [f"message group {letter.message_group}"], telling.width)
    if letter.lite_topic:
        yield from fact("lite topic", [letter.lite_topic], telling.width)
    if letter.HasField("priority"):
        yield from fact("priority", [str(letter.priority)], telling.width)
    if letter.parks:
        stands = "its message group stands still until this letter is redriven or dropped"
        yield from fact("parks", [stands], telling.width)
    if letter.properties:
        named = sorted(letter.properties.items())
        shown = [f"{name} = {value}" for name, value in named[:PROPERTIES_MAX]]
        if len(named) > PROPERTIES_MAX:
            shown.append(f"… and {len(named) - PROPERTIES_MAX} more; --json shows them")
        yield from fact("properties", shown, telling.width)
    yield from _body(letter, telling)
    if letter.state == dead_pb2.REDRIVEN:
        yield from fact("now", ["redriven; no longer dead"], telling.width)
    elif letter.state == dead_pb2.DROPPED:
        yield from fact("now", ["dropped, for good"], telling.width)


def _sent(letter: dead_pb2.DeadLetter, telling: Telling) -> str:
    sent_ms = letter.born_at_ms or letter.stored_at_ms
    text = f"{format_instant(sent_ms, telling.zone, millis=True)}"
    if sent_ms:
        text += f" {zone_name(sent_ms, telling.zone)}"
    if letter.born_host:
        text += f" by {letter.born_host}"
    late_ms = letter.stored_at_ms - letter.born_at_ms
    if letter.born_at_ms and late_ms >= _SLACK_MS:
        text += f", stored {format_duration(late_ms)} later"
    return text


def _body(letter: dead_pb2.DeadLetter, telling: Telling) -> Iterator[str]:
    size = counted(letter.body_size, "byte")
    if letter.body_encoding not in ("", "identity"):
        size += f", {letter.body_encoding}"
    lines = body_lines(
        letter.body, letter.body_encoding, room(telling.width), size=size,
        lines_max=None if telling.whole_body else BODY_LINES_MAX,
    )  # fmt: skip
    yield from fact("body", lines, telling.width)


# What happened


def _timeline(letter: dead_pb2.DeadLetter, telling: Telling) -> Iterator[str]:
    # From here on the broker's clock alone: the sender's may be wrong.
    first_ms = letter.stored_at_ms or letter.born_at_ms or letter.dead_at_ms
    day = format_instant(first_ms, telling.zone)[:10]
    heading = styled("What happened", bold=True)
    yield f"{heading}, on {day} ({zone_name(first_ms, telling.zone)})"
    clock = _Clock(first_ms, telling.zone)
    target = plain(letter.origin_topic or f"%DLQ%{letter.group}")
    yield _entry(clock.at(first_ms), "sent", f"to {target}", telling)
    if not letter.origin_topic:
        return
    hidden = letter.attempt_count - sum(
        attempt.outcome != "suspended" for attempt in letter.attempts
    )
    lives = {attempt.life for attempt in letter.attempts}
    if hidden > 0 and len(lives) <= 1 and letter.redrive_count == 0:
        yield _note(f"… {counted(hidden, 'earlier attempt')} not kept", telling)
    yield from _attempts(letter, telling, clock, first_ms)
    reason = REASONS.get(letter.reason, plain(letter.reason))
    yield _entry(clock.at(letter.dead_at_ms), styled("dead", bold=True), reason, telling)
    if letter.state == dead_pb2.REDRIVEN:
        when = clock.at(letter.redriven_at_ms)
        yield _entry(when, "redriven", "sent back by an operator; no longer dead", telling)


def _attempts(
    letter: dead_pb2.DeadLetter, telling: Telling, clock: "_Clock", first_ms: int
) -> Iterator[str]:
    attempts = letter.attempts
    wide = max((len(_ran(attempt)) for attempt in attempts), default=0)
    last_life = max((attempt.life for attempt in attempts), default=1)
    told_stacks: dict[str, int] = {}
    for index, attempt in enumerate(attempts):
        previous = attempts[index - 1] if index else None
        if previous is None:
            yield from _first_wait(attempt, first_ms, telling)
        elif attempt.life != previous.life:
            known = attempt.life == last_life and 0 < letter.redriven_at_ms <= attempt.started_at_ms
            when = clock.at(letter.redriven_at_ms) if known else ""
            again = f"back to {plain(letter.group)}; attempts count from 1 again"
            yield _entry(when, "redriven", again, telling)
        else:
            yield from _wait(previous, attempt, telling)
        what = f"ran {pad(_ran(attempt), wide)}  on {plain(attempt.client_id) or 'no named client'}"
        name = f"attempt {attempt.attempt}"
        yield _entry(clock.at(attempt.started_at_ms), name, what, telling)
        yield from _ending(attempt, telling)
        if telling.stacks:
            yield from _stack(attempt, told_stacks, telling)


def _ran(attempt: dead_pb2.Attempt) -> str:
    return format_duration(max(0, attempt.ended_at_ms - attempt.started_at_ms))


def _first_wait(attempt: dead_pb2.Attempt, first_ms: int, telling: Telling) -> Iterator[str]:
    waited_ms = attempt.started_at_ms - first_ms
    if attempt.attempt == 1 and waited_ms >= _SLACK_MS:
        yield _note(f"waited {format_duration(waited_ms)} for its first delivery", telling)


def _wait(previous: dead_pb2.Attempt, attempt: dead_pb2.Attempt, telling: Telling) -> Iterator[str]:
    waited_ms = attempt.started_at_ms - previous.ended_at_ms
    backoff_ms = previous.backoff_ms
    if backoff_ms and waited_ms - backoff_ms >= _SLACK_MS:
        idle = format_duration(waited_ms - backoff_ms)
        yield _note(
            f"waited {format_duration(backoff_ms)}, then {idle} for a consumer to ask", telling
        )
    elif backoff_ms:
        yield _note(f"waited {format_duration(backoff_ms)}", telling)
    elif waited_ms >= _SLACK_MS:
        yield _note(f"waited {format_duration(waited_ms)} for a consumer to ask", telling)


def _ending(attempt: dead_pb2.Attempt, telling: Telling) -> Iterator[str]:
    text = ENDINGS.get(attempt.outcome, plain(attempt.outcome))
    words = failure_of(attempt)
    if words:
        text = f"{text}: {words}"
    indent = " " * _NOTE_INDENT
    for piece in wrap(plain(text), telling.width - _NOTE_INDENT):
        yield indent + styled(piece, fg="red")


def _stack(attempt: dead_pb2.Attempt, attempts: dict[str, int], telling: Telling) -> Iterator[str]:
    if not attempt.stack:
        return
    earlier = attempts.setdefault(attempt.stack, attempt.attempt)
    if earlier != attempt.attempt:
        yield _note(f"same stack as attempt {earlier}", telling)
        return
    indent = " " * (_NOTE_INDENT + 2)
    for line in plain_lines(attempt.stack):
        yield styled(indent + line, dim=True)


class _Clock:
    """Times of day, with the date where it is another day than before."""

    def __init__(self, first_ms: int, zone: tzinfo | None) -> None:
        self._last_ms = first_ms
        self._zone = zone

    def at(self, ms: int) -> str:
        if ms <= 0:
            return ""
        same = same_day(self._last_ms, ms, self._zone)
        self._last_ms = ms
        if same:
            return format_clock(ms, self._zone)
        return format_instant(ms, self._zone, millis=True)


def _entry(when: str, name: str, what: str, telling: Telling) -> str:
    padding = " " * max(0, _NAME_WIDTH - display_width(unmarked(name)))
    head = f"  {pad(when, _TIME_WIDTH)}  {name}{padding} "
    room = telling.width - _NOTE_INDENT - _NAME_WIDTH - 1
    return (head + cut(what, max(20, room))).rstrip()


def _note(text: str, telling: Telling) -> str:
    return " " * _NOTE_INDENT + styled(cut(text, telling.width - _NOTE_INDENT), dim=True)


# Why, and what now


def _why(letter: dead_pb2.DeadLetter, telling: Telling) -> Iterator[str]:
    yield styled("Why it died", bold=True)
    sentences = [cause(letter), pattern(letter)]
    for piece in wrap(plain(" ".join(filter(None, sentences))), telling.width - 2):
        yield f"  {piece}"
    if letter.signature:
        alike = "no other dead letter of this group has it"
        if telling.alike_count:
            verb = "has" if telling.alike_count == 1 else "have"
            alike = f"{counted(telling.alike_count, 'other dead letter')} of this group {verb} it"
        said = f"Signature {plain(letter.signature)}: {alike}."
        for piece in wrap(said, telling.width - 2):
            yield f"  {piece}"


def _next_steps(letter: dead_pb2.DeadLetter, telling: Telling) -> Iterator[str]:
    group, number = quote(plain(letter.group)), letter.queue_offset
    signature = quote(plain(letter.signature))
    steps: list[tuple[str, str]] = []
    if letter.state == dead_pb2.DEAD:
        again = f"latermq dead redrive {group} --offset {number}"
        if letter.origin_topic:
            steps.append((again, "try it again"))
        else:  # it has no place in the group to go back to
            steps.append((f"{again} --to-topic TOPIC", "send it to a topic"))
        if telling.alike_count:
            steps.append((f"latermq dead redrive {group} --signature {signature}", "and all alike"))
    if not telling.stacks and any(attempt.stack for attempt in letter.attempts):
        steps.append((f"latermq dead show {group} --offset {number} --stack", "with stack traces"))
    if letter.state == dead_pb2.DEAD:
        steps.append((f"latermq dead drop {group} --offset {number}", "give it up"))
    if not steps:
        return
    yield styled("What you can do", bold=True)
    wide = max(display_width(command) for command, _ in steps)
    for command, meaning in steps:
        yield f"  {pad(command, wide)}  {styled(meaning, dim=True)}"
