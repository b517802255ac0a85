"""Which letters of a dead-letter topic were redriven or dropped, and since when.

Eight bytes for each letter from the first that was to the last, in one column: a checkpoint copies
it, however many they are.

    u64   since_ms · 4 + state; 0: the letter is DEAD still
"""

import struct
from array import array
from collections.abc import Iterator, Mapping
from typing import Final

from latermq_broker.engine.model import DeadState

#  letters   0      4    8       16      24
#            | topic| pad| first | count | column 8 x count     one for each dead-letter topic
_TOPIC: Final = struct.Struct("<I4xQQ")
assert _TOPIC.size == 24
_STATE_BITS: Final = 2
_STATE_MASK: Final = (1 << _STATE_BITS) - 1
assert max(DeadState) <= _STATE_MASK

Change = tuple[DeadState, int]  # what became of a letter, and since when


class LetterStates:
    __slots__ = ("_column", "_count", "_first")

    def __init__(self) -> None:
        self._column = array("Q")
        self._first = 0  # offset of the letter that the column begins with
        self._count = 0

    def __len__(self) -> int:
        """How many are no longer DEAD."""
        return self._count

    def __contains__(self, offset: int) -> bool:
        at = offset - self._first
        return 0 <= at < len(self._column) and self._column[at] != 0

    def get(self, offset: int) -> Change | None:
        """None: it is DEAD."""
        if offset not in self:
            return None
        return _change(self._column[offset - self._first])

    def items(self) -> Iterator[tuple[int, Change]]:
        """By offset."""
        for offset, packed in enumerate(self._column, self._first):
            if packed:
                yield offset, _change(packed)

    def put(self, offset: int, state: DeadState, since_ms: int) -> None:
        column = self._column
        if not column:
            self._first = offset
        if offset < self._first:
            self._column = column = array("Q", bytes(8 * (self._first - offset))) + column
            self._first = offset
        at = offset - self._first
        if at >= len(column):
            column.frombytes(bytes(8 * (at + 1 - len(column))))
        self._count += not column[at]
        column[at] = since_ms << _STATE_BITS | state

    def trim(self, first: int) -> None:
        """Letters below `first` are gone."""
        gone = self._column[: max(0, first - self._first)]
        del self._column[: len(gone)]
        self._first += len(gone)
        self._count -= len(gone) - gone.count(0)

    def pack(self, topic_id: int) -> bytes:
        return _TOPIC.pack(topic_id, self._first, len(self._column)) + self._column.tobytes()

    def load(self, first: int, column: bytes) -> None:
        """Into one that is empty."""
        self._first = first
        self._column.frombytes(column)
        self._count = len(self._column) - self._column.count(0)


_NONE: Final = LetterStates()


def _change(packed: int) -> Change:
    return DeadState(packed & _STATE_MASK), packed >> _STATE_BITS


def letters_of(dead: Mapping[int, LetterStates], topic_id: int) -> LetterStates:
    """Those of a dead-letter topic, to be read only."""
    return dead.get(topic_id, _NONE)


def pack_letters(dead: Mapping[int, LetterStates]) -> bytes:
    return b"".join(letters.pack(topic_id) for topic_id, letters in dead.items() if letters)


def unpack_letters(section: bytes) -> dict[int, LetterStates]:
    """By dead-letter topic."""
    dead: dict[int, LetterStates] = {}
    at = 0
    while at < len(section):
        topic_id, first, count = _TOPIC.unpack_from(section, at)
        at += _TOPIC.size
        dead[topic_id] = LetterStates()
        dead[topic_id].load(first, section[at : at + 8 * count])
        at += 8 * count
    return dead
