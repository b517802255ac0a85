"""Which letters of a dead-letter topic were redriven or dropped, and since when.

Eight bytes for a letter, in blocks of BLOCK offsets that are there once one of their letters was
changed: neither the letters between two that are far apart nor the order of the changes cost
anything, and a checkpoint copies block by block.

    u64   since_ms · 4 + state; 0: the letter is DEAD still
"""

import struct
from array import array
from collections.abc import Iterator, Mapping
from typing import Final

from latermq_broker.engine.state.model import DeadState

BLOCK: Final = 512  # a lone letter has 4 KiB of memory, two in one block 4 KiB of a checkpoint

#  letters   0      4    8       16      24
#            | topic| pad| first | count | column 8 x count     one for each block, by offset
_TOPIC: Final = struct.Struct("<I4xQQ")
assert _TOPIC.size == 24
_STATE_BITS: Final = 2
_STATE_MASK: Final = (1 << _STATE_BITS) - 1
assert max(DeadState) <= _STATE_MASK

Change = tuple[DeadState, int]  # what became of a letter, and since when


class LetterStates:
    __slots__ = ("_blocks", "_count")

    def __init__(self) -> None:
        self._blocks: dict[int, array[int]] = {}  # by offset // BLOCK
        self._count = 0

    def __len__(self) -> int:
        """Count the letters that are no longer DEAD."""
        return self._count

    def __contains__(self, offset: int) -> bool:
        block = self._blocks.get(offset // BLOCK)
        return block is not None and block[offset % BLOCK] != 0

    def get(self, offset: int) -> Change | None:
        """Return what became of the letter; None: it is DEAD."""
        if offset not in self:
            return None
        return _change(self._blocks[offset // BLOCK][offset % BLOCK])

    def items(self) -> Iterator[tuple[int, Change]]:
        """Yield the letters that are no longer DEAD, by offset."""
        for number in sorted(self._blocks):
            for offset, packed in enumerate(self._blocks[number], number * BLOCK):
                if packed:
                    yield offset, _change(packed)

    def put(self, offset: int, state: DeadState, since_ms: int) -> None:
        block, at = self._block(offset // BLOCK), offset % BLOCK
        self._count += not block[at]
        block[at] = since_ms << _STATE_BITS | state

    def trim(self, first: int) -> None:
        """Forget the letters below `first`."""
        for number in [number for number in self._blocks if number * BLOCK < first]:
            block = self._blocks[number]
            count = min(first - number * BLOCK, BLOCK)
            self._count -= count - block[:count].count(0)
            block[:count] = array("Q", bytes(8 * count))
            if count == BLOCK:
                del self._blocks[number]

    def pack(self, topic_id: int) -> bytes:
        """Encode from the first to the last letter of each block that is no longer DEAD."""
        parts: list[bytes] = []
        for number in sorted(self._blocks):
            column = self._blocks[number].tobytes()
            end = (len(column.rstrip(b"\0")) + 7) // 8
            begin = (len(column) - len(column.lstrip(b"\0"))) // 8
            if begin < end:
                parts.append(_TOPIC.pack(topic_id, number * BLOCK + begin, end - begin))
                parts.append(column[8 * begin : 8 * end])
        return b"".join(parts)

    def load(self, first: int, column: "array[int]") -> None:
        """Take up those at the offsets from `first` on, of which nothing was known."""
        done = 0
        while done < len(column):
            number, at = divmod(first + done, BLOCK)
            part = column[done : done + BLOCK - at]
            changed = len(part) - part.count(0)
            if changed:
                self._block(number)[at : at + len(part)] = part
                self._count += changed
            done += len(part)

    def _block(self, number: int) -> "array[int]":
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = array("Q", bytes(8 * BLOCK))
        return block


_NONE: Final = LetterStates()


def _change(packed: int) -> Change:
    return DeadState(packed & _STATE_MASK), packed >> _STATE_BITS


def letters_of(dead: Mapping[int, LetterStates], topic_id: int) -> LetterStates:
    """Return the letters of a dead-letter topic, to be read only."""
    return dead.get(topic_id, _NONE)


def pack_letters(dead: Mapping[int, LetterStates]) -> bytes:
    return b"".join(letters.pack(topic_id) for topic_id, letters in dead.items())


def unpack_letters(section: bytes) -> dict[int, LetterStates]:
    """Decode letters by dead-letter topic. Earlier versions wrote one column for all of a topic."""
    dead: dict[int, LetterStates] = {}
    at = 0
    while at < len(section):
        topic_id, first, count = _TOPIC.unpack_from(section, at)
        at += _TOPIC.size
        column = array("Q", section[at : at + 8 * count])
        dead.setdefault(topic_id, LetterStates()).load(first, column)
        at += 8 * count
    return dead
