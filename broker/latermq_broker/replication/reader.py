"""Reads entries of a replicated log in order and hands on the bytes that count, group by group.

What it knows between two groups can be kept and given to a later reader, which goes on from there.
"""

from typing import NamedTuple

from latermq_broker.errors import DamagedBatchError
from latermq_broker.replication.batch import Batch, decode_batch, is_batch
from latermq_broker.replication.entry import Entry, Offset
from latermq_broker.replication.validity import EMPTY, Standing, Verdict, begin_at, judge


class Piece(NamedTuple):
    """Bytes of the shard's log, as they stand in one segment."""

    position: int
    data: bytes
    segment: int  # the size of the segment whose header they begin with; or 0


class Reader:
    """
    Args:
        cluster: as `batch.cluster_hash` has it.
        standing: what the log says before `offset`. None: nothing is known, and the first entry
            that there is tells.
        offset: of the first entry to read.
    """

    def __init__(
        self, cluster: int, shard: int, standing: Standing | None = None, offset: Offset = 0
    ) -> None:
        self.standing = standing
        self.offset = offset  # of the next entry
        self.segments: dict[int, Offset] = {}  # base: where the valid batch is that begins it
        self._address = cluster, shard
        self._begun: list[Piece] = []  # of a group that is not whole yet

    @property
    def between_groups(self) -> bool:
        """Tell whether no group was read in part: a later reader may go on from here."""
        standing = self.standing
        return standing is not None and standing.end == standing.whole_end and not self._begun

    def read(self, entry: Entry) -> tuple[Verdict, list[Piece]]:
        """Take the next entry; the verdict, and the pieces of the group that became whole with it.

        Raises:
            DamagedBatchError: it is damaged, or entries before it are gone that are needed.
            UnsupportedFormatError: a newer version wrote it.
        """
        if entry.offset < self.offset:
            raise DamagedBatchError(entry.offset, f"it was read before, {self.offset} is due")
        if self.standing is None and entry.offset == 0:
            self.standing = EMPTY
        verdict, batch = self._verdict(entry)
        self.offset = entry.offset + 1
        if verdict is Verdict.FENCE:
            self._begun.clear()  # its owner will not end it any more
        if verdict is not Verdict.VALID or batch is None:
            return verdict, []
        if batch.segment:
            self.segments[batch.position] = entry.offset
        if batch.data:
            self._begun.append(Piece(batch.position, batch.data, batch.segment))
        if not batch.last:
            return verdict, []
        whole, self._begun = self._begun, []
        return verdict, whole

    def go_back(self, offset: Offset) -> None:
        """Read anew from `offset` on, where the log begins or a segment of it."""
        self.standing, self.offset = None, offset
        self._begun.clear()

    def forget_before(self, base: int) -> None:
        """Forget where segments begin that lie before the one at `base`: they were dropped."""
        for former in [each for each in self.segments if each < base]:
            del self.segments[former]

    def skip(self, batch: Batch, offset: Offset) -> Verdict:
        """Take the next entry without reading it: the batch that stands there is known."""
        assert self.standing is not None
        verdict, self.standing = judge(self.standing, batch, offset)
        self.offset = offset + 1
        self._begun.clear()
        if verdict is Verdict.VALID and batch.segment:
            self.segments[batch.position] = offset
        return verdict

    def _verdict(self, entry: Entry) -> tuple[Verdict, Batch | None]:
        if not is_batch(entry.data):
            return Verdict.FOREIGN, None
        batch = decode_batch(entry.data, entry.offset)
        if (batch.cluster, batch.shard) != self._address:
            return Verdict.ELSEWHERE, None
        if self.standing is None:
            self.standing = begin_at(batch, entry.offset)
            return Verdict.VALID, batch
        verdict, self.standing = judge(self.standing, batch, entry.offset)
        return verdict, batch
