"""Ids that senders gave their messages: of each, which message has it and until when it counts.

Rows are kept as the bytes that DEDUP records have (`store/records/dedup_records.py`), one after
another in blocks, so that a checkpoint joins blocks and nothing is encoded: 640,000 ids in 20 ms. A
look-up asks for the time, so forgetting is only for the memory, and may be late.

    dedup    a row, key and value, for each id, the oldest first      section `dedup`
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
        self._blocks: deque[bytearray] = deque()
        self._first = 0  # number of the first block
        self._at = 0  # where its oldest row is

    def __len__(self) -> int:
        return len(self._places)

    def get(self, key: bytes, now_ms: int) -> DedupValue | None:
        """Find the message that has the id; None: it is free."""
        place = self._places.get(key)
        if place is None:
            return None
        block = self._blocks[place // BLOCK_BYTES - self._first]
        at = place % BLOCK_BYTES + len(key)
        if dedup_until_ms(block, at) <= now_ms:
            return None
        return decode_dedup_value(block, at)

    def put(self, rows: Iterable[DedupRow]) -> None:
        """Remember ids that were free."""
        blocks = self._blocks
        for key, value in rows:
            size = len(key) + len(value)
            if not blocks or len(blocks[-1]) + size > BLOCK_BYTES:
                blocks.append(bytearray())
            block = blocks[-1]
            self._places[key] = (self._first + len(blocks) - 1) * BLOCK_BYTES + len(block)
            block += key
            block += value
            self.bytes += size
            count_up(self.of_users, dedup_made_by(value, 0), size)

    def forget(self, now_ms: int, count_max: int = FORGET_SLICE) -> None:
        """Forget rows whose window is over, the oldest first."""
        for _ in range(count_max):
            if not self._blocks:
                return
            block, at = self._blocks[0], self._at
            key = dedup_key_at(block, at)
            if dedup_until_ms(block, at + len(key)) > now_ms:
                return
            if self._places[key] == self._first * BLOCK_BYTES + at:  # else it was given anew
                del self._places[key]
            end = dedup_value_end(block, at + len(key))
            self.bytes -= end - at
            count_up(self.of_users, dedup_made_by(block, at + len(key)), at - end)
            self._at = end
            if end == len(block):
                self._blocks.popleft()
                self._first += 1
                self._at = 0

    def next_deadline_ms(self) -> int | None:
        """Tell when `forget` has something to do; None: nothing is remembered."""
        if not self._blocks:
            return None
        block, at = self._blocks[0], self._at
        return dedup_until_ms(block, at + len(dedup_key_at(block, at))) + FORGET_LATE_MS

    def snapshot(self) -> bytes:
        joined = b"".join(self._blocks)
        return joined[self._at :] if self._at else joined

    def restore(self, section: bytes) -> None:
        """Forgets what it knew; b"" is the section of a checkpoint that has none."""
        self._places.clear()
        self._blocks.clear()
        self.of_users.clear()
        self._first = self._at = self.bytes = 0
        self.put(dedup_rows(section))
