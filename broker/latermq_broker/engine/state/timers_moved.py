"""Where delayed messages wait whose time an operator moved, and which were cancelled.

A message is named by when it was to come as it was sent, and by where its record stood then: in
its recall handle, in a listing made earlier. For one that waits for another time these say nothing
any more, and the log is not searched. So the new time is kept, by records and by checkpoints, until
it has come: a bounded number, the oldest go first, and `forgot` says that some did.

    moved    0          8       16       24      section `timers_moved`: a row for each; before
             | position| first| due_ms|          them a u64, 1 if some were forgotten

    over     0          8       16               section `timers_over`: the last OVER_MAX that wait
             | position| due_ms|                 no more, in that order; due_ms CANCELLED: cancelled
"""

import struct
from collections import OrderedDict
from typing import Final

from latermq_broker.delivery.halves import ID_BITS_MASK

MOVED_MAX: Final = 65_536
OVER_MAX: Final = 10_000
CANCELLED: Final = 0
_ROW: Final = struct.Struct("<QQQ")
assert _ROW.size == 24
_OVER_ROW: Final = struct.Struct("<QQ")
assert _OVER_ROW.size == 16
_FORGOT: Final = struct.Struct("<Q")


def delayed_id(due_ms: int, position: int, id_hash: int) -> str:
    """Name a message that waits, in recall handles and listings; `id_hash` is its message id's."""
    return f"d-{due_ms:x}-{position:x}-{id_hash & ID_BITS_MASK:x}"


class TimersMoved:
    """By the position of the message's record; `first` is where it stood when it was sent."""

    def __init__(self) -> None:
        self.forgot = False  # once there were more than MOVED_MAX at a time
        self._waiting: OrderedDict[int, tuple[int, int]] = OrderedDict()  # → first, due_ms
        self._now: dict[int, int] = {}  # first → position, of those that stand elsewhere now
        self._over: OrderedDict[int, int] = OrderedDict()
        """When those came that wait no more, or CANCELLED."""

    def __len__(self) -> int:
        return len(self._waiting)

    def first(self, position: int) -> int | None:
        """Return the first time of one that was moved; None: it was not, as far as is kept."""
        known = self._waiting.get(position)
        return None if known is None else known[0]

    def move(self, position: int, first: int, due_ms: int) -> None:
        """Note that a message waits for `due_ms` from now on."""
        self._waiting[position] = first, due_ms
        self._waiting.move_to_end(position)
        if first != position:
            self._now[first] = position
        if len(self._waiting) > MOVED_MAX:
            self.forgot = True
            self.end(next(iter(self._waiting)))

    def roll(self, old: int, position: int) -> None:
        """Note that a message's record stands at `position` from now on: it was rolled forward."""
        known = self._waiting.pop(old, None)
        if known is not None:
            self._waiting[position] = known
            self._now[known[0]] = position

    def end(self, position: int) -> None:
        """Note that a message's time has come."""
        known = self._waiting.pop(position, None)
        if known is not None:
            self._now.pop(known[0], None)
            self._remember(position, known[1])

    def cancel(self, position: int) -> None:
        """Note that a message is never delivered."""
        self.end(position)
        self._remember(position, CANCELLED)

    def _remember(self, position: int, due_ms: int) -> None:
        self._over[position] = due_ms
        if len(self._over) > OVER_MAX:
            self._over.popitem(last=False)

    def due_ms(self, position: int) -> int | None:
        """Tell when it is or was due, or CANCELLED. None: it was not changed, as far as is kept."""
        known = self._waiting.get(position)
        return self._over.get(position) if known is None else known[1]

    def wait_of(self, first: int) -> tuple[int, int] | None:
        """Return (due, position) of what was sent there. None: not moved, as far as is kept."""
        position = self._now.get(first, first)
        known = self._waiting.get(position)
        if known is None or known[0] != first:
            return None
        return known[1], position

    def snapshot(self) -> bytes:
        rows = (_ROW.pack(position, *known) for position, known in self._waiting.items())
        return _FORGOT.pack(self.forgot) + b"".join(rows)

    def snapshot_over(self) -> bytes:
        return b"".join(map(_OVER_ROW.pack, self._over.keys(), self._over.values()))

    def restore_over(self, section: bytes) -> None:
        """Replace which of them wait no more; b"" is the section of a checkpoint that has none."""
        self._over = OrderedDict(_OVER_ROW.iter_unpack(section))

    def restore(self, section: bytes) -> None:
        """Replace which wait; b"" is the section of a checkpoint that has none."""
        self._waiting.clear()
        self._now.clear()
        self.forgot = False
        if section:
            (forgot,) = _FORGOT.unpack_from(section)
            self.forgot = forgot != 0
            for position, first, due_ms in _ROW.iter_unpack(section[_FORGOT.size :]):
                self.move(position, first, due_ms)
