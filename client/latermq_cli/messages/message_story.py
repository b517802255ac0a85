"""A message and where it is in its life, told to a person: `latermq message show`.

Pure: a latermq.v1.MessageLife in, lines out. Text from messages is escaped and wrapped here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from latermq_cli.terminal.bodies import body_lines
from latermq_cli.terminal.console import counted, styled
from latermq_cli.terminal.facts import fact, room
from latermq_cli.terminal.table import display_width, pad, plain, wrap
from latermq_cli.terminal.times import format_ago, format_instant, zone_name
from latermq_proto.latermq.v1 import dead_letter_pb2 as dead_pb2
from latermq_proto.latermq.v1 import message_pb2
from latermq_text.attempts import counted_of
from latermq_text.durations import format_duration

BODY_LINES_MAX: Final = 6
PROPERTIES_MAX: Final = 12
_SLACK_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    width: int
    now_ms: int
    whole_body: bool = False
    body_hidden: str = ""  # why it is not shown
    zone: tzinfo | None = None


def place(life: message_pb2.MessageLife) -> str:
    """Say where a message stands, in a few words."""
    message = life.message
    if message.queue_id < 0:
        return message.topic
    return f"{message.topic}, queue {message.queue_id}, offset {message.queue_offset}"


def tell(life: message_pb2.MessageLife, telling: Telling) -> list[str]:
    """Tell a message's story, line by line."""
    message = life.message
    title = styled(f"Message {plain(message.message_id)}", bold=True)
    lines = [title, "", *_facts(life, telling), "", styled("Where it is", bold=True)]
    for piece in wrap(plain(_whereabouts(life, telling)), telling.width - 2):
        lines.append(f"  {piece}")
    lines += _groups(life, telling)
    steps = _next_steps(life)
    if steps:
        lines += ["", styled("What you can do", bold=True)]
        wide = max(display_width(command) for command, _ in steps)
        for command, meaning in steps:
            lines.append(f"  {pad(command, wide)}  {styled(meaning, dim=True)}")
    return lines


def _facts(life: message_pb2.MessageLife, telling: Telling) -> Iterator[str]:
    message, width = life.message, telling.width
    yield from fact("topic", [place(life)], width)
    if message.origin_topic:
        yield from fact("died in", [f"topic {message.origin_topic}"], width)
    yield from fact("sent", [_sent(message, telling)], width)
    if message.due_at_ms:
        yield from fact("due", [_due(message, telling)], width)
    if message.message_type not in ("", "normal"):
        yield from fact("type", [message.message_type], width)
    if message.tag:
        yield from fact("tag", [message.tag], width)
    if message.keys:
        yield from fact("keys", [", ".join(message.keys)], width)
    if message.message_group:
        yield from fact("group of", [f"message group {message.message_group}"], width)
    if message.lite_topic:
        yield from fact("lite topic", [message.lite_topic], width)
    if message.HasField("priority"):
        yield from fact("priority", [str(message.priority)], width)
    if message.properties:
        named = sorted(message.properties.items())
        shown = [f"{name} = {value}" for name, value in named[:PROPERTIES_MAX]]
        if len(named) > PROPERTIES_MAX:
            shown.append(f"… and {len(named) - PROPERTIES_MAX} more; --json shows them")
        yield from fact("properties", shown, width)
    yield from _body(message, telling)


def _due(message: message_pb2.FoundMessage, telling: Telling) -> str:
    """Say when it comes, and what it was sent with, should that have been changed."""
    sent_for = format_instant(message.due_at_ms, telling.zone, millis=True)
    if message.waits_until_ms in (0, message.due_at_ms):
        return sent_for
    moved = format_instant(message.waits_until_ms, telling.zone, millis=True)
    return f"{moved}, moved from {sent_for}"


def _sent(message: message_pb2.FoundMessage, telling: Telling) -> str:
    sent_ms = message.born_at_ms or message.stored_at_ms
    text = (
        f"{format_instant(sent_ms, telling.zone, millis=True)} {zone_name(sent_ms, telling.zone)}"
    )
    if message.born_host:
        text += f" by {message.born_host}"
    late_ms = message.stored_at_ms - message.born_at_ms
    if message.born_at_ms and late_ms >= _SLACK_MS:
        text += f", stored {format_duration(late_ms)} later"
    return text


def _body(message: message_pb2.FoundMessage, telling: Telling) -> Iterator[str]:
    size = counted(message.body_size, "byte")
    if message.body_encoding not in ("", "identity"):
        size += f", {message.body_encoding}"
    if telling.body_hidden:
        yield from fact("body", [f"{size}, not shown: {telling.body_hidden}"], telling.width)
        return
    lines = body_lines(
        message.body, message.body_encoding, room(telling.width), size=size,
        lines_max=None if telling.whole_body else BODY_LINES_MAX,
    )  # fmt: skip
    yield from fact("body", lines, telling.width)


def _whereabouts(life: message_pb2.MessageLife, telling: Telling) -> str:
    message = life.message
    if life.waits_until_ms:
        return f"Delayed; no group sees it before {_when(life.waits_until_ms, telling)}."
    if life.half:
        return "Its transaction is open; no group sees it before it is committed."
    half = message.message_type == "transaction"
    if message.cancelled and half:
        return "Its transaction was rolled back; no group ever sees it."
    if message.cancelled:
        return "Cancelled or recalled while it waited for its delivery time; no group ever sees it."
    if message.queue_id < 0:
        ended = "its transaction ended" if half else "its delivery time came, or was changed"
        return (
            f"Not known: {ended}, and it was not found in a bounded look "
            "(`latermq pending list` shows what waits)."
        )
    if life.expired:
        return "No longer in its queue: its time there is over (retention)."
    where = {
        dead_pb2.REDRIVEN: "A dead letter that was redriven: readers of the topic pass it over.",
        dead_pb2.DROPPED: "A dead letter that was dropped: readers of the topic pass it over.",
        dead_pb2.DEAD: "In its queue, as a dead letter.",
    }.get(life.letter_state, "In its queue.")
    return where if life.groups else f"{where} No group has read the topic yet."


def _groups(life: message_pb2.MessageLife, telling: Telling) -> Iterator[str]:
    if not life.groups:
        return
    yield ""
    wide = max(display_width(plain(fate.group)) for fate in life.groups)
    wide = min(wide, 40)
    for fate in life.groups:
        pieces = wrap(plain(_group_words(fate, life, telling)), max(20, telling.width - wide - 4))
        yield f"  {pad(plain(fate.group), wide)}  {pieces[0]}"
        for piece in pieces[1:]:
            yield f"  {' ' * wide}  {piece}"


def _group_words(
    fate: message_pb2.GroupLife, life: message_pb2.MessageLife, telling: Telling
) -> str:
    attempt = f"attempt {counted_of(fate.attempt, fate.max_attempts)}"
    again = ""
    if fate.dead_state == dead_pb2.REDRIVEN:
        again = f"; redriven, it was dead letter {fate.dead_offset}"
    elif fate.dead_state == dead_pb2.DEAD:
        again = f"; dead letter {fate.dead_offset} of an earlier delivery is still there"
    holder = f" by {fate.client_id}" if fate.client_id else ""
    match fate.state:
        case message_pb2.READY if life.expired:
            return f"never delivered: it expired first{again}"
        case message_pb2.READY if fate.ahead_count:
            return f"ready; {counted(fate.ahead_count, 'message')} before it in its queue{again}"
        case message_pb2.READY:
            return f"ready; the next of its queue{again}"
        case message_pb2.LEASED:
            return (
                f"leased{holder}, {attempt}; the lease ends {_when(fate.until_ms, telling)}{again}"
            )
        case message_pb2.WAITS_RETRY if not fate.attempt:
            waits = f"waits until {_when(fate.until_ms, telling)}"
            return f"given back, no attempt counted; {waits}{again}"
        case message_pb2.WAITS_RETRY:
            waits = f"waits for the next until {_when(fate.until_ms, telling)}"
            return f"failed, {attempt}; {waits}{again}"
        case message_pb2.RETRY if not fate.attempt:
            return f"ready for attempt {counted_of(1, fate.max_attempts)}{again}"
        case message_pb2.RETRY:
            return f"ready again, after {attempt}{again}"
        case message_pb2.HELD:
            behind = counted(fate.ahead_count, "message")
            why = ", which is parked behind a dead letter" if fate.parked else ""
            return f"waits its turn: {behind} before it in its message group{why}{again}"
        case message_pb2.DONE:
            return f"done: acknowledged, or not wanted by the group's filter{again}"
        case message_pb2.DIED:
            return _death_words(fate, telling)
    return "not known: the group holds too many messages to look through"


def _death_words(fate: message_pb2.GroupLife, telling: Telling) -> str:
    letter = f"dead letter {fate.dead_offset}"
    if fate.dead_state == dead_pb2.REDRIVEN:
        return f"was {letter}; redriven, and no longer with the group"
    if fate.dead_state == dead_pb2.DROPPED:
        return f"was {letter}; dropped for good"
    when = f" since {_when(fate.dead_at_ms, telling)}" if fate.dead_at_ms else ""
    return f"dead{when}, after {counted(fate.attempt, 'attempt')}: {letter}"


def _when(ms: int, telling: Telling) -> str:
    at = format_instant(ms, telling.zone, millis=True)
    return f"{at} ({format_ago(ms, telling.now_ms)})"


def _next_steps(life: message_pb2.MessageLife) -> list[tuple[str, str]]:
    steps: list[tuple[str, str]] = []
    if life.waits_until_ms:
        name = plain(life.message.message_id)
        steps.append((f"latermq pending expedite {name}", "deliver it now"))
        steps.append((f"latermq pending cancel {name}", "never deliver it"))
    for fate in life.groups:
        if fate.state == message_pb2.DIED and fate.dead_state == dead_pb2.DEAD:
            group = plain(fate.group)
            steps.append((f"latermq dead show {group} --offset {fate.dead_offset}", "why it died"))
    return steps
