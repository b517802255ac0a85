"""What an operator did last to messages that wait for their delivery time.

The record of a message says when it was to come, not when it is to come now. The log knows, but it
is not searched; so the last changes are remembered, a bounded number. A restart forgets those
before its checkpoint; whoever asks then looks through the timer and the queues, as far as that
goes.
"""

from collections import OrderedDict
from typing import Final

COUNT_MAX: Final = 10_000
CANCELLED: Final = 0


class TimersMoved:
    """Position of the message → its new due time, or CANCELLED."""

    def __init__(self) -> None:
        self._due_ms: OrderedDict[int, int] = OrderedDict()

    def note(self, position: int, due_ms: int) -> None:
        """Of a TIMER record; `due_ms` 0: CANCELLED."""
        self._due_ms[position] = due_ms
        self._due_ms.move_to_end(position)
        if len(self._due_ms) > COUNT_MAX:
            self._due_ms.popitem(last=False)

    def due_ms(self, position: int) -> int | None:
        """None: nothing was done to it, as far as is remembered."""
        return self._due_ms.get(position)
