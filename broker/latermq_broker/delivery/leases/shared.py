"""What many deliveries have in common, kept once: where their messages are, and who has them.

A row holds a number in its place. A value goes when the last row that names it lets go; its number
is then given to another.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")
tuple_new: Final = tuple.__new__  # as DeliveryKey(...), without its keyword handling

LOW_BITS: Final = 32  # of an offset; the rest is in the place
LOW_MASK: Final = (1 << LOW_BITS) - 1


class DeliveryKey(NamedTuple):
    """What the messages of one queue in one group share, with the same tag."""

    group_id: int
    topic_id: int
    queue_id: int
    offset_high: int = 0  # the offset's bits above LOW_BITS
    tag_hash: int = 0
    order_key: int = 0  # of its message group, where the order is kept
    origin_topic_id: int = 0  # of the letter that was redriven; 0: read from the queue named above
    origin_queue_id: int = 0
    redrive: int = 0  # how often the message was redriven to this group; 0: read from its queue

    def is_of(self, owner: tuple[int, int]) -> bool:
        """Tell whether it is this group's on this topic; topic 0: on whichever."""
        group_id, topic_id = owner
        return self.group_id == group_id and topic_id in (0, self.topic_id)


class Origin(NamedTuple):
    """The identity of a message: the queue entry that it had first, in a life of a topic."""

    topic_id: int
    queue_id: int
    offset: int


class Holder(NamedTuple):
    """Who has a lease, or had the last one."""

    client: int  # position of its CLIENT record; 0: nobody
    client_id: str
    auto_renew: bool


NOBODY: Final = Holder(0, "", False)


def place_of(
    group_id: int,
    topic_id: int,
    queue_id: int,
    offset: int,
    tag_hash: int,
    order_key: int = 0,
    origin_topic_id: int = 0,
    origin_queue_id: int = 0,
    redrive: int = 0,
) -> DeliveryKey:
    """Name the place of the message at that offset; `origin_topic_id` 0: read from that queue."""
    assert offset >= 0
    assert (origin_topic_id != 0) == (redrive != 0)
    where = (
        group_id, topic_id, queue_id, offset >> LOW_BITS, tag_hash, order_key, origin_topic_id,
        origin_queue_id, redrive,
    )  # fmt: skip
    return tuple_new(DeliveryKey, where)


def places_of(
    group_id: int, topic_id: int, queue_id: int, offsets: Sequence[int], tag_hashes: Sequence[int]
) -> list[DeliveryKey]:
    """Name the places of messages of one queue: most often one for all."""
    assert len(offsets) == len(tag_hashes)
    places: list[DeliveryKey] = []
    place: DeliveryKey | None = None
    high = last_tag = -1
    for index in range(len(offsets)):
        tag = tag_hashes[index]
        if place is None or tag != last_tag or offsets[index] >> LOW_BITS != high:
            last_tag, high = tag, offsets[index] >> LOW_BITS
            place = place_of(group_id, topic_id, queue_id, offsets[index], tag)
        places.append(place)
    return places


class Shared(Generic[T]):
    """Number 0 is nobody's value."""

    def __init__(self, nothing: T) -> None:
        self.values: list[T] = [nothing]
        self._counts = array("I", [1])
        self._numbers: dict[T, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        """Count the values that are named."""
        return len(self._numbers)

    def hold(self, value: T, times: int = 1) -> int:
        """Name a value so many times more; return the number of its equal."""
        assert times > 0
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
        """Name a value so many times less; tell whether that was the last. It can be read until its
        number is given away."""
        left = self._counts[number] - times
        assert left >= 0
        self._counts[number] = left
        if left:
            return False
        assert number
        del self._numbers[self.values[number]]
        self._free.append(number)
        return True

    def load(self, values: Iterable[T], counts: Mapping[int, int]) -> None:
        """Load values by number, from 1, and how often each is named; nothing is named yet."""
        assert not self._numbers
        for number, value in enumerate(values, 1):
            count = counts.get(number, 0)
            self.values.append(value)
            self._counts.append(count)
            if count:
                self._numbers[value] = number
            else:
                self._free.append(number)

    def count(self, number: int) -> int:
        """Return how often a value is named."""
        return self._counts[number]
