"""Where a message is in its life, in words: as a whole, and for each group. Pure."""

from typing import Final, NamedTuple

from latermq_console.drawing.words import counted
from latermq_proto.latermq.v1 import dead_letter_pb2 as dead_pb2
from latermq_proto.latermq.v1 import message_pb2
from latermq_text.attempts import counted_of

_PILLS: Final = {
    message_pb2.READY: ("ready", ""),
    message_pb2.LEASED: ("in flight", ""),
    message_pb2.WAITS_RETRY: ("waits for a retry", "warn"),
    message_pb2.RETRY: ("ready for a retry", "warn"),
    message_pb2.DONE: ("done", "good"),
    message_pb2.DIED: ("dead", "bad"),
    message_pb2.HELD: ("held back", "warn"),
}


class Fate(NamedTuple):
    """What a message is for a group; `until_ms` is when that ends, 0 where nothing says so."""

    group: str
    pill: str
    level: str
    words: str
    until_ms: int
    dead_offset: int  # of its dead letter; -1: it has none that is dead


def whereabouts(life: message_pb2.MessageLife) -> tuple[str, str]:
    """Return where a message is: a word for a pill, and a sentence."""
    message = life.message
    half = message.message_type == "transaction"
    if life.waits_until_ms:
        return "delayed", "No group sees it before its time."
    if life.half:
        return "open transaction", "No group sees it before its transaction is committed."
    if message.cancelled and half:
        return "rolled back", "Its transaction was rolled back; no group ever sees it."
    if message.cancelled:
        return "cancelled", "Cancelled or recalled while it waited; no group ever sees it."
    if message.queue_id < 0:
        return "not known", "Its time came or was changed, and a bounded look did not find it."
    if life.expired:
        return "expired", "No longer in its queue: its time there is over."
    if life.letter_state == dead_pb2.REDRIVEN:
        return "redriven", "A dead letter that was redriven; readers of the topic pass it over."
    if life.letter_state == dead_pb2.DROPPED:
        return "dropped", "A dead letter that was dropped; readers of the topic pass it over."
    if life.letter_state == dead_pb2.DEAD:
        return "dead letter", "In its queue, as a dead letter."
    return "in its queue", "" if life.groups else "No group has read the topic yet."


def fate_of(life: message_pb2.GroupLife, *, expired: bool) -> Fate:
    """Return what a message is for one group."""
    pill, level = _PILLS.get(life.state, ("not known", ""))
    offset = -1
    if life.state == message_pb2.DIED:
        if life.dead_state == dead_pb2.REDRIVEN:
            pill, level = "done", "good"
        elif life.dead_state == dead_pb2.DROPPED:
            pill, level = "dropped", ""
        else:
            offset = life.dead_offset
    if life.state == message_pb2.READY and expired:
        pill, level = "expired", "warn"
    until_ms = life.until_ms if life.state in (message_pb2.LEASED, message_pb2.WAITS_RETRY) else 0
    return Fate(life.group, pill, level, _words(life, expired=expired), until_ms, offset)


def _words(life: message_pb2.GroupLife, *, expired: bool) -> str:
    attempt = f"attempt {counted_of(life.attempt, life.max_attempts)}"
    letter = f"dead letter {life.dead_offset}"
    again = f"; it was {letter}" if life.dead_state == dead_pb2.REDRIVEN else ""
    if life.dead_state == dead_pb2.DEAD:
        again = f"; {letter} of an earlier delivery is still there"
    match life.state:
        case message_pb2.READY if expired:
            return f"never delivered: it expired first{again}"
        case message_pb2.READY if life.ahead_count:
            return f"{counted(life.ahead_count, 'message')} before it in its queue{again}"
        case message_pb2.READY:
            return f"the next of its queue{again}"
        case message_pb2.LEASED:
            holder = f" with {life.client_id}" if life.client_id else ""
            return f"{attempt}{holder}{again}"
        case message_pb2.WAITS_RETRY if not life.attempt:
            return f"given back, no attempt counted{again}"
        case message_pb2.WAITS_RETRY:
            return f"{attempt} failed{again}"
        case message_pb2.RETRY if not life.attempt:
            return f"before attempt {counted_of(1, life.max_attempts)}{again}"
        case message_pb2.RETRY:
            return f"after {attempt}{again}"
        case message_pb2.HELD:
            parked = ", which is parked behind a dead letter" if life.parked else ""
            ahead = f"{counted(life.ahead_count, 'message')} before it in its message group"
            return f"{ahead}{parked}{again}"
        case message_pb2.DONE:
            return f"acknowledged, or not wanted by the group's filter{again}"
        case message_pb2.DIED if life.dead_state == dead_pb2.REDRIVEN:
            return f"was {letter}; redriven, and no longer with the group"
        case message_pb2.DIED if life.dead_state == dead_pb2.DROPPED:
            return f"was {letter}; given up for good"
        case message_pb2.DIED:
            return f"after {counted(life.attempt, 'attempt')}"
    return "the group holds too many messages to look through"
