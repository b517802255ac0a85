"""Values that many rows have in common, kept once: a row holds a number in their place.

A value goes when the last row that names it lets go; its number is then given to another.
"""

from array import array
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Number 0 is nobody's value."""

    def __init__(self, nothing: T) -> None:
        self.values: list[T] = [nothing]
        self._counts = array("I", [1])
        self._numbers: dict[T, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        """How many are named."""
        return len(self._numbers)

    def hold(self, value: T, times: int = 1) -> int:
        """The number of an equal value, named so many times more."""
        number = self._numbers.get(value)
        if number is not None:
            self._counts[number] += times
            return number
        if self._free:
            number = self._free.pop()
            self.values[number] = value
            self._counts[number] = times
        else:
            number = len(self.values)
            self.values.append(value)
            self._counts.append(times)
        self._numbers[value] = number
        return number

    def release(self, number: int, times: int = 1) -> bool:
        """Named so many times less; whether that was the last. The value can be read until its
        number is given away."""
        left = self._counts[number] - times
        self._counts[number] = left
        if left:
            return False
        assert number
        del self._numbers[self.values[number]]
        self._free.append(number)
        return True

    def load(self, values: Iterable[T], counts: Mapping[int, int]) -> None:
        """Into one that names nothing: values by number, from 1, and how often each is named."""
        for number, value in enumerate(values, 1):
            count = counts.get(number, 0)
            self.values.append(value)
            self._counts.append(count)
            if count:
                self._numbers[value] = number
            else:
                self._free.append(number)

    def count(self, number: int) -> int:
        """How often it is named."""
        return self._counts[number]
