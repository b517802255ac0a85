"""Columns of numbers in memory of their own: it grows without being copied, and leaves no holes.

An `array` lives in the heap. When it grows it moves, and where it was stays behind as free memory
that the process keeps; with a million rows that was a third more than the rows. An anonymous map
takes a page when it is first written to, and the system moves it by its page table.
"""

import mmap
import sys
from array import array
from typing import Final

Numbers = memoryview
NUMBER_BYTES: Final = {"B": 1, "H": 2, "I": 4, "Q": 8}


def numbers(code: str, data: bytes | mmap.mmap) -> Numbers:
    """View the bytes as numbers of the size that `code` has."""
    view: Numbers = memoryview(data).cast(code)  # type: ignore[call-overload]
    assert view.itemsize == NUMBER_BYTES[code]
    return view


def swapped(code: str, data: bytes) -> bytes:
    """Turn numbers of the machine into little-endian ones, or back."""
    if sys.byteorder == "little":
        return data
    column = array(code, data)
    column.byteswap()
    return column.tobytes()


class Column:
    """Unsigned numbers, all 0 until written. After `resize` the old `view` is void."""

    __slots__ = ("_bytes", "_memory", "code", "view")

    def __init__(self, code: str, count: int) -> None:
        self.code = code
        self._bytes = NUMBER_BYTES[code]
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, count * self._bytes, flags=flags)
        self.view = numbers(code, self._memory)

    def resize(self, count: int) -> None:
        """Grow the column to `count` numbers."""
        assert count > len(self.view)
        self.view.release()
        self._memory.resize(count * self._bytes)
        self.view = numbers(self.code, self._memory)
