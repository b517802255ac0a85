"""Where a message is that was sent to come later: with a delivery time, or in a transaction.

Its record names no queue. It waits, or it has entered a queue at about its time, or it never will;
an operator may have moved its time. Every look is bounded: what none of them shows is not known.
"""

from typing import Final, NamedTuple

from latermq_broker.delivery.halves import HalfState
from latermq_broker.engine.state.model import Topic
from latermq_broker.engine.state.state import EngineState
from latermq_broker.engine.state.timers_moved import CANCELLED
from latermq_broker.engine.views.message_query import Found
from latermq_broker.store.records.record import RECORD_ALIGN

ENTRIES_LOOKED_AT_MAX: Final = 4_096  # of one queue, from one time on
ENTRIES_GLANCED_AT_MAX: Final = 128  # likewise, for one of many messages
TIMERS_LOOKED_AT_MAX: Final = 65_536


class Whereabouts(NamedTuple):
    """None of it: not known."""

    queue_id: int = -1
    queue_offset: int = -1
    waits_until_ms: int = 0  # it waits for its delivery time
    half: bool = False  # its transaction has not ended
    cancelled: bool = False  # it never enters a queue: cancelled, recalled, or rolled back


class MessagePlaces:
    def __init__(self, state: EngineState) -> None:
        self._state = state

    def place(self, message: Found, *, glance: bool = False) -> Whereabouts:
        """Find in which queue the message is, or where it waits.
        Args:
            glance: for one of many: the likely places only.
        """
        if message.queue_id >= 0:
            return Whereabouts(message.queue_id, message.queue_offset)
        topic = self._state.catalog.topic(message.topic)
        if topic is None:
            return Whereabouts()
        return (
            self._half(topic, message, glance)
            if message.half
            else self._delayed(topic, message, glance)
        )

    def _half(self, topic: Topic, message: Found, glance: bool) -> Whereabouts:
        halves = self._state.halves
        if halves.at(message.position) is not None:
            return Whereabouts(half=True)
        ended = halves.ended.get(message.first_position)
        if ended is not None and ended[0] is HalfState.ROLLED_BACK:
            return Whereabouts(cancelled=True)
        place, looked_at_all = self._entered(topic, message, message.stored_ms, glance)
        return place or Whereabouts(cancelled=looked_at_all)

    def _delayed(self, topic: Topic, message: Found, glance: bool) -> Whereabouts:
        timer = self._state.timer
        moved_ms = self._state.timers_moved.due_ms(message.position)
        if moved_ms == CANCELLED:
            return Whereabouts(cancelled=True)
        due_ms = moved_ms or message.due_ms
        if timer.contains(due_ms, message.position):
            return Whereabouts(waits_until_ms=due_ms)
        place, looked_at_all = self._entered(topic, message, due_ms, glance)
        if place is not None or glance:
            return place or Whereabouts()
        if len(timer) > TIMERS_LOOKED_AT_MAX:
            return Whereabouts()
        for _, entries in timer.between(message.position, message.position + RECORD_ALIGN):
            for due_ms, position in entries:
                if timer.contains(due_ms, position):
                    return Whereabouts(waits_until_ms=due_ms)
        return Whereabouts(cancelled=looked_at_all)

    def _entered(
        self, topic: Topic, message: Found, likely_ms: int, glance: bool
    ) -> tuple[Whereabouts | None, bool]:
        """Find (where it entered a queue, if it is seen; whether it was looked for everywhere)."""
        count_max = ENTRIES_GLANCED_AT_MAX if glance else ENTRIES_LOOKED_AT_MAX
        everywhere = True
        for queue_id in range(topic.queue_count):
            queue = self._state.queue(topic.id, queue_id)
            for from_ms in (
                (likely_ms,) if glance else dict.fromkeys((likely_ms, message.stored_ms))
            ):
                first = queue.offset_at(from_ms)
                entries = queue.scan(first, count_max)
                for offset, entry in enumerate(entries, first):
                    if entry.position == message.position:
                        return Whereabouts(queue_id, offset), True
            everywhere &= len(entries) < count_max  # from when it was stored to the end
            older = queue.first == 0 or queue.first < first  # what is retained reaches that far
            everywhere &= older
        return None, everywhere and not glance
