"""Ids that senders gave their messages: of each, which message has it and until when it counts.

Kept as the bytes that DEDUP records have (`store/records/dedup_records.py`), so that a checkpoint
joins them and nothing is encoded. A look-up asks for the time, so forgetting is only for the
memory: it may be late.

    dedup    a row, key and value, for each id, the oldest first      section `dedup`
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import chain
from typing import Final

from latermq_broker.store.records.dedup_records import (
    DedupRow,
    DedupValue,
    decode_dedup,
    decode_dedup_value,
    dedup_until_ms,
)

FORGET_LATE_MS: Final = 1_000  # so that many go at one tick
FORGET_SLICE: Final = 4_096  # at a tick: 2 ms


class DedupIds:
    """See the module. `bytes` is what the rows take in a checkpoint.

    Args:
        bytes_max: what they may take, as far as senders decide.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self._rows: OrderedDict[bytes, bytes] = OrderedDict()  # the oldest first

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: bytes, now_ms: int) -> DedupValue | None:
        """Find the message that has the id; None: it is free."""
        value = self._rows.get(key)
        if value is None or dedup_until_ms(value) <= now_ms:
            return None
        return decode_dedup_value(value)

    def put(self, rows: Sequence[DedupRow]) -> None:
        """Remember ids that were free."""
        for key, value in rows:
            before = self._rows.pop(key, None)
            if before is not None:
                self.bytes -= len(key) + len(before)
            self._rows[key] = value
            self.bytes += len(key) + len(value)

    def forget(self, now_ms: int, count_max: int = FORGET_SLICE) -> None:
        """Forget ids whose window is over, the oldest first."""
        rows = self._rows
        for _ in range(min(count_max, len(rows))):
            key = next(iter(rows))
            value = rows[key]
            if dedup_until_ms(value) > now_ms:
                return
            del rows[key]
            self.bytes -= len(key) + len(value)

    def next_deadline_ms(self) -> int | None:
        """Tell when `forget` has something to do; None: nothing is remembered."""
        if not self._rows:
            return None
        return dedup_until_ms(self._rows[next(iter(self._rows))]) + FORGET_LATE_MS

    def snapshot(self) -> bytes:
        return b"".join(chain.from_iterable(self._rows.items()))

    def restore(self, section: bytes) -> None:
        """Forgets what it knew; b"" is the section of a checkpoint that has none."""
        self._rows.clear()
        self.bytes = 0
        self.put(decode_dedup(section))
