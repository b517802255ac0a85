"""Which batches count: one pure function of what the log said so far and of the batch.

Every reader applies it to the same entries in the same order, so all agree: the owner, who knows
most entries without reading them, a standby, and whoever starts from an empty directory.

    a fence    counts if its epoch is newer than that of the last one that counted. Of two with one
               epoch the first in the log's order counts. It cuts off a group that has only begun.
               One with the token 0 hands the log over: whoever owned it says that nobody does.
    a batch    counts if (epoch, token) are those of the last fence that counted, and it is that
               owner's next one. It then lies where the one before ended.

All others are as if they were not there: those of an owner that was fenced and does not know yet,
second copies of one that was sent twice, and what came before one that did not.
"""

from enum import Enum, auto
from typing import Final, NamedTuple

from latermq_broker.errors import DamagedBatchError
from latermq_broker.replication.batch import NOBODY, Batch


class Verdict(Enum):
    """What a reader makes of a batch. Only the first two change anything."""

    FENCE = auto()  # from here on its owner's batches count
    VALID = auto()
    OUTRUN = auto()  # a fence, but one of this epoch or a newer one stands before it
    STALE = auto()  # of another owner than the last fence's
    REPEATED = auto()  # of the owner, and it stands in the log before
    EARLY = auto()  # of the owner, but one before it is missing: it will be sent again
    ELSEWHERE = auto()  # of another shard or another cluster: somebody's settings are wrong
    FOREIGN = auto()  # no batch at all


class Standing(NamedTuple):
    """What the log said up to some entry. Positions are those of the shard's log."""

    epoch: int = 0
    token: int = 0
    sequence: int = 0  # of the owner's last valid batch
    end: int = 0  # of the valid batches' bytes
    segment_end: int = 0  # of the segment that `end` lies in; 0: the log has none
    whole_end: int = 0  # the same two, up to the last group that is whole
    whole_segment_end: int = 0

    @property
    def ownerless(self) -> bool:
        """Return whether nobody owns the log: nobody ever did, or its owner handed it over."""
        return self.token == NOBODY


EMPTY: Final = Standing()  # what an empty log says


def judge(standing: Standing, batch: Batch, offset: int) -> tuple[Verdict, Standing]:
    """Say whether `batch`, the next in the log, counts, and what the log says with it.

    Args:
        offset: of the batch, for the error.
    Raises:
        DamagedBatchError: it is the owner's next, but does not lie where the last one ended.
    """
    if batch.fence:
        if batch.epoch <= standing.epoch:
            return Verdict.OUTRUN, standing
        end, segment_end = standing.whole_end, standing.whole_segment_end
        return Verdict.FENCE, Standing(
            batch.epoch, batch.token, 0, end, segment_end, end, segment_end
        )
    if batch.epoch != standing.epoch or batch.token != standing.token:
        return Verdict.STALE, standing
    if batch.sequence <= standing.sequence:
        return Verdict.REPEATED, standing
    if batch.sequence != standing.sequence + 1:
        return Verdict.EARLY, standing
    return Verdict.VALID, _with(standing, batch, offset)


def begin_at(batch: Batch, offset: int) -> Standing:
    """Return what the log says with `batch`, the first that trimming left.

    An owner trims only in front of a valid batch that begins a segment, so this one counts.
    Raises DamagedBatchError: it is not such a batch; nobody may tell what stood before it.
    """
    if batch.fence or not batch.segment:
        raise DamagedBatchError(
            offset, "the replicated log begins with it, and it does not begin a segment"
        )
    before = Standing(batch.epoch, batch.token, batch.sequence - 1)
    return _with(before, batch, offset)


def _with(standing: Standing, batch: Batch, offset: int) -> Standing:
    """Add the owner's next batch. The first segment of a log may begin anywhere."""
    segment_end = standing.segment_end
    due = standing.end
    if batch.segment:
        due = segment_end or batch.position
        segment_end = batch.position + batch.segment
    end = batch.position + len(batch.data)
    if batch.position != due or end > segment_end:
        raise DamagedBatchError(
            offset,
            f"batch {batch.sequence} of epoch {batch.epoch} has bytes {batch.position} to {end} "
            f"of the log, where {due} is due and the segment ends at {segment_end}",
        )
    owner = batch.epoch, batch.token, batch.sequence
    if batch.last:
        return Standing(*owner, end, segment_end, end, segment_end)
    return Standing(*owner, end, segment_end, standing.whole_end, standing.whole_segment_end)
