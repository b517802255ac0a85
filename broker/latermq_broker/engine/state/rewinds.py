"""Where one group was moved back to on one topic: which of its letters are of an earlier life.

A group that is moved back is given messages anew, also those that its letters hold. A letter of a
delivery from before that move says nothing about the message's newest life. Delivery ids only grow,
so a move is remembered by its offset and by the first id that came after it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

MOVES_MAX: Final = 64  # moves back remembered of one queue, or of one lite topic
PLACES_MAX: Final = 1_024  # queues and lite topics with moves back; the least recent is forgotten


class Move(NamedTuple):
    """One move back; of several that reach an offset the one with the highest offset is newest."""

    queue_id: int
    lite_key: int  # 0: of the whole queue
    offset: int  # the first that is given anew
    next_id: int  # deliveries from there on have ids from here on


class Rewinds:
    def __init__(self) -> None:
        self._moves: dict[tuple[int, int], list[Move]] = {}  # offsets and ids rise

    def __iter__(self) -> Iterator[Move]:
        for moves in self._moves.values():
            yield from moves

    def note(self, move: Move) -> None:
        """Remember a move back; those that reached no further down are covered by it."""
        key = (move.queue_id, move.lite_key)
        moves = self._moves[key] = self._moves.pop(key, [])  # as the most recent
        assert not moves or moves[-1].next_id <= move.next_id
        while moves and moves[-1].offset >= move.offset:
            moves.pop()
        moves.append(move)
        if len(moves) > MOVES_MAX:
            del moves[0]
        if len(self._moves) > PLACES_MAX:
            del self._moves[next(iter(self._moves))]

    def load(self, moves: Iterable[Move]) -> None:
        """Remember these alone."""
        self._moves.clear()
        for move in moves:
            self.note(move)

    def first_id(self, queue_id: int, lite_key: int, offset: int) -> int:
        """Return the first delivery id after the newest move back to that offset or below; 0: the
        group was not moved back over it. `lite_key` 0: the message is of no lite topic."""
        first_id = 0
        for key in {0, lite_key}:
            moves = self._moves.get((queue_id, key), [])
            at = bisect_right(moves, offset, key=_offset)
            if at:
                first_id = max(first_id, moves[at - 1].next_id)
        return first_id


def _offset(move: Move) -> int:
    return move.offset
