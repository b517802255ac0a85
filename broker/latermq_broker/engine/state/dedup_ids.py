"""Ids that senders gave their messages: of each, which message has it and until when it counts.

Rows are kept as the bytes that DEDUP records have (`store/records/dedup_records.py`), one after
another in blocks, so that a checkpoint joins blocks and nothing is encoded: 640,000 ids in 20 ms. A
look-up asks for the time, so forgetting is only for the memory, and may be late.

Topics differ in their windows, so what came first is not always over first. A row goes to the first
lane whose last one is over no later than it: each lane ends in its order, there are no more of them
than windows, and a checkpoint, which has one lane after the other, brings back the same ones.

    dedup    a row, key and value, for each id, lane by lane         section `dedup`
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from latermq_broker.catalog.shares import count_up
from latermq_broker.store.records.dedup_records import (
    DedupRow,
    DedupValue,
    decode_dedup_value,
    dedup_key_at,
    dedup_made_by,
    dedup_rows,
    dedup_until_ms,
    dedup_value_end,
)

BLOCK_BYTES: Final = 1 << 16  # a row lies in one block; the largest has less than half of it
FORGET_LATE_MS: Final = 1_000  # so that many go at one tick
FORGET_SLICE: Final = 1_024  # at a tick: 1 ms


class _Lane:
    """Rows in the order in which they are over."""

    __slots__ = ("at", "blocks", "last_ms")

    def __init__(self) -> None:
        self.blocks: deque[int] = deque()  # their numbers
        self.at = 0  # where its oldest row is, in the first of them
        self.last_ms = 0  # until when its newest row counts


class DedupIds:
    """See the module. `bytes` is what the rows take in a checkpoint, `of_users` those in shares.

    Args:
        bytes_max: what they may take, as far as senders decide.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.of_users: dict[str, int] = {}  # bytes by access key
        self._places: dict[bytes, int] = {}  # key → where its row is: block · BLOCK_BYTES + offset
        self._blocks: dict[int, bytearray] = {}  # by number
        self._next_block = 0
        self._lanes: list[_Lane] = []  # of each the newest row is over before that of the one above

    def __len__(self) -> int:
        return len(self._places)

    def get(self, key: bytes, now_ms: int) -> DedupValue | None:
        """Find the message that has the id; None: it is free."""
        place = self._places.get(key)
        if place is None:
            return None
        block = self._blocks[place // BLOCK_BYTES]
        at = place % BLOCK_BYTES + len(key)
        if dedup_until_ms(block, at) <= now_ms:
            return None
        return decode_dedup_value(block, at)

    def put(self, rows: Iterable[DedupRow]) -> None:
        """Remember ids that were free when they were given: of two rows the later one counts."""
        for key, value in rows:
            until_ms = dedup_until_ms(value, 0)
            is_newest = self.get(key, until_ms) is None
            lane = self._lane(until_ms)
            size = len(key) + len(value)
            if not lane.blocks or len(self._blocks[lane.blocks[-1]]) + size > BLOCK_BYTES:
                lane.blocks.append(self._next_block)
                self._blocks[self._next_block] = bytearray()
                self._next_block += 1
            number = lane.blocks[-1]
            block = self._blocks[number]
            if is_newest:
                self._places[key] = number * BLOCK_BYTES + len(block)
            block += key
            block += value
            self.bytes += size
            count_up(self.of_users, dedup_made_by(value, 0), size)

    def _lane(self, until_ms: int) -> _Lane:
        """Return the lane that a row goes to which counts until then, as its newest."""
        for lane in self._lanes:
            if lane.last_ms <= until_ms:
                break
        else:
            lane = _Lane()
            self._lanes.append(lane)
        lane.last_ms = until_ms
        return lane

    def forget(self, now_ms: int, count_max: int = FORGET_SLICE) -> None:
        """Forget rows whose window is over: some of those that are over first in their lanes."""
        for lane in reversed(self._lanes):  # what is below is over before what is above
            while count_max and lane.blocks and self._end_ms(lane) <= now_ms:
                self._forget_first(lane)
                count_max -= 1
        while self._lanes and not self._lanes[-1].blocks:
            self._lanes.pop()

    def _end_ms(self, lane: _Lane) -> int:
        """Tell until when the oldest row of a lane counts."""
        block = self._blocks[lane.blocks[0]]
        return dedup_until_ms(block, lane.at + len(dedup_key_at(block, lane.at)))

    def _forget_first(self, lane: _Lane) -> None:
        number, at = lane.blocks[0], lane.at
        block = self._blocks[number]
        key = dedup_key_at(block, at)
        if self._places.get(key) == number * BLOCK_BYTES + at:  # else it was given anew
            del self._places[key]
        end = dedup_value_end(block, at + len(key))
        self.bytes -= end - at
        count_up(self.of_users, dedup_made_by(block, at + len(key)), at - end)
        lane.at = end
        if end == len(block):
            del self._blocks[lane.blocks.popleft()]
            lane.at = 0

    def next_deadline_ms(self) -> int | None:
        """Tell when `forget` has something to do; None: nothing is remembered."""
        ends = [self._end_ms(lane) for lane in self._lanes if lane.blocks]
        return min(ends) + FORGET_LATE_MS if ends else None

    def snapshot(self) -> bytes:
        """Join the rows; those of a lane stay together."""
        pieces: list[bytes | bytearray] = []
        for lane in self._lanes:
            blocks = [self._blocks[number] for number in lane.blocks]
            if lane.at:
                blocks[0] = blocks[0][lane.at :]
            pieces += blocks
        return b"".join(pieces)

    def restore(self, section: bytes) -> None:
        """Replace what it knew; b"" is the section of a checkpoint that has none."""
        self._places.clear()
        self._blocks.clear()
        self._lanes.clear()
        self.of_users.clear()
        self._next_block = self.bytes = 0
        self.put(dedup_rows(section))
