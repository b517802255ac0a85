"""Queue entries whose message was rolled forward: they replace what the queue's files hold.

The files are never changed, so that older checkpoints go on vouching for them. Few: packed in
memory, by offset, saved in checkpoints.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

ENTRY_BYTES: Final = 32


class MovedEntries:
    """Offset → packed entry, in the order of the offsets."""

    def __init__(self) -> None:
        self._offsets: array[int] = array("Q")
        self._entries = bytearray()

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def first(self) -> int | None:
        return self._offsets[0] if self._offsets else None

    def put(self, offset: int, entry: bytes) -> None:
        index = bisect_left(self._offsets, offset)
        at = index * ENTRY_BYTES
        if index < len(self._offsets) and self._offsets[index] == offset:
            self._entries[at : at + ENTRY_BYTES] = entry
        else:
            self._offsets.insert(index, offset)
            self._entries[at:at] = entry

    def between(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, packed entry) from `first` up to `end`, exclusive."""
        for index in range(bisect_left(self._offsets, first), bisect_left(self._offsets, end)):
            at = index * ENTRY_BYTES
            yield self._offsets[index], bytes(self._entries[at : at + ENTRY_BYTES])

    def trim(self, first: int) -> None:
        """Forget all below `first`."""
        count = bisect_left(self._offsets, first)
        del self._offsets[:count]
        del self._entries[: count * ENTRY_BYTES]

    def snapshot(self) -> bytes:
        """Encode the offsets, then the entries."""
        return self._offsets.tobytes() + bytes(self._entries)

    def restore(self, data: bytes) -> None:
        count = len(data) // (8 + ENTRY_BYTES)
        self._offsets = array("Q")
        self._offsets.frombytes(data[: 8 * count])
        self._entries = bytearray(data[8 * count :])
