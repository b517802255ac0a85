"""When the broker was cut off: the lives on this log that did not end with a drained stop.

What such a life said last may never have gone out, though the log has it. After a drained stop
every reply did. The log tells which it was: each life begins with a MARK of a new epoch, and only a
drained stop ends it with a CLEAN one. A checkpoint keeps what the log below it told:

    0       4     8        16
    | epoch | pad | began | begin, end; begin, end; … u64: store times

    began        when the life of `epoch` began: the store time of the last record before it
    begin, end   of a life that was cut off: from when it began to its last record

A life may lose all its connections and go on. What it said before is in doubt, too, and nothing on
the log tells of it: such a life is not to end with a CLEAN mark while what it said may matter.
"""

import struct
from collections.abc import Mapping
from typing import Final

from latermq_broker.store.records.record import Record

CUT_OFFS_SECTION: Final = "store.cut_offs"
CUT_OFFS_MAX: Final = 32  # further ones: the oldest two count as one, with what was between them
_HEAD: Final = struct.Struct("<I4xQ")
_SPAN: Final = struct.Struct("<QQ")
assert (_HEAD.size, _SPAN.size) == (16, 16)


class CutOffs:
    """See the module. The same from a checkpoint and the log behind it as from the whole log."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []
        self._epoch = 0
        self._began_ms = 0
        self._last_ms = 0
        self._drained = True  # an empty log: nothing was said
        self._lost_ms = 0  # the last record before this life lost its connections; 0: it did not

    def restore(self, sections: Mapping[str, bytes], epoch: int, last_ms: int) -> None:
        """Restore from a checkpoint that the life of `epoch` took, behind a record of `last_ms`.

        One of an older version says nothing: then that life began, as far as is known, with the
        log.
        """
        section = sections.get(CUT_OFFS_SECTION, b"")
        self._epoch, self._began_ms, self._spans = epoch, 0, []
        if section:
            self._epoch, self._began_ms = _HEAD.unpack_from(section)
            self._spans = list(_SPAN.iter_unpack(section[_HEAD.size :]))
        self._last_ms, self._drained = last_ms, False

    def begin(self, *, whole: bool) -> None:
        """Begin a replay without a checkpoint; `whole`: it sees the log's first record."""
        self._spans, self._epoch, self._began_ms, self._last_ms = [], 0, 0, 0
        self._drained = whole

    def see(self, first: Record, last: Record) -> None:
        """See some records of a replay, in a row, of one life."""
        if first.epoch > self._epoch:
            before = self._epoch > 0
            self.begin_life(first.epoch, self._last_ms if before else first.store_ms)
        self._last_ms = last.store_ms
        self._drained = last.is_clean_mark

    def begin_life(self, epoch: int, last_ms: int) -> None:
        """Begin a broker's life; the newest record before it is of `last_ms`."""
        if not self._drained:
            self._spans.append((self._began_ms, last_ms))
            if len(self._spans) > CUT_OFFS_MAX:
                self._spans[:2] = [(self._spans[0][0], self._spans[1][1])]
        self._epoch, self._began_ms = epoch, last_ms
        self._last_ms, self._drained = last_ms, False
        self._lost_ms = 0

    def lose_connections(self, last_ms: int) -> None:
        """Note that this life ended all connections; the newest record is of `last_ms`."""
        self._lost_ms = last_ms

    def lost_since(self, at_ms: int) -> bool:
        """Tell whether this life lost its connections at this store time or later."""
        return self._lost_ms >= max(at_ms, 1)

    def snapshot(self) -> dict[str, bytes]:
        head = _HEAD.pack(self._epoch, self._began_ms)
        return {CUT_OFFS_SECTION: head + b"".join(_SPAN.pack(*span) for span in self._spans)}

    def concern(self, at_ms: int) -> bool:
        """Tell whether what was said at this store time may not have gone out: we were cut off."""
        if self._began_ms <= at_ms <= self._lost_ms:
            return True
        return any(begin <= at_ms <= end for begin, end in self._spans)
