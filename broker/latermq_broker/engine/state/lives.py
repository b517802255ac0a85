"""The lives of the broker on this log: which life a queue entry is of.

A copy of the log that goes on by itself has other lives from the copy on. A reader that remembers
which life an entry was of notices that another one stands at its offset now.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from latermq_broker.store.derived.consume_queue import ConsumeQueue

LIVES_MAX: Final = 16  # the newest are remembered: entries of older ones are of an unknown life


class Lives:
    """The newest lives of the broker: when each began, by its own time, and its random number."""

    def __init__(self) -> None:
        self._lives: deque[tuple[int, int]] = deque(maxlen=LIVES_MAX)

    def begin(self, own_ms: int, number: int) -> None:
        """Apply a LIFE record; times never fall."""
        self._lives.append((own_ms, number))

    def of_queue(self, queue: ConsumeQueue) -> list[tuple[int, int]]:
        """List (offset, life) in order: from that offset on, up to the next, entries are of it.

        Of several with one offset the last counts. Life 0 is unknown: entries of before the first
        life there, and of the millisecond in which one ended and the next began.
        """
        begins: list[tuple[int, int]] = []
        for own_ms, number in reversed(self._lives):
            first, sure = queue.offset_at(own_ms), queue.offset_at(own_ms + 1)
            begins += ((sure, number), (first, 0))
            if first <= queue.first:
                break
        return begins[::-1]

    def snapshot(self) -> list[tuple[int, int]]:
        return list(self._lives)

    def restore(self, lives: Iterable[Sequence[int]]) -> None:
        """Restore what `snapshot` gave, to lives without any."""
        assert not self._lives
        for each in lives:
            self._lives.append((each[0], each[1]))
