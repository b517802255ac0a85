"""The rule against a model that says it the other way round: owners' times first, then batches."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from latermq_broker.replication.batch import Batch, encode_batch, fence_of, hand_over_of
from latermq_broker.replication.entry import Entry
from latermq_broker.replication.reader import Reader
from latermq_broker.replication.validity import EMPTY, Standing, Verdict, judge

SEGMENT_BYTES = 1_000
COUNTING = (Verdict.FENCE, Verdict.VALID)


class Writer:
    """An owner, or somebody who was or wants to be one: writes on from where it believes to be."""

    def __init__(self, epoch: int, token: int, standing: Standing) -> None:
        self.fence = fence_of(1, 2, epoch, token)
        self.sequence = 0
        self.end, self.segment_end = standing.whole_end, standing.whole_segment_end

    def next(self, size: int, last: bool) -> Batch:
        segment = 0
        if self.end + size > self.segment_end:
            self.end, segment = self.segment_end, SEGMENT_BYTES
            self.segment_end += SEGMENT_BYTES
        self.sequence += 1
        data = bytes([self.fence.token % 251]) * size
        batch = self.fence._replace(
            sequence=self.sequence,
            position=self.end,
            data=data,
            last=last,
            segment=segment,
            fence=False,
        )
        self.end += size
        return batch


moves = st.lists(
    st.tuples(
        st.sampled_from(["claim", "race", "leave", "write", "write", "write", "again", "lose"]),
        st.integers(0, 7),
        st.integers(0, 300),
        st.booleans(),
    ),
    max_size=60,
)


def written(moves: Sequence[tuple[str, int, int, bool]]) -> list[Batch]:
    """Make a log of what writers do that come, race, go on and send twice, in any order."""
    log: list[Batch] = []
    writers: list[Writer] = []
    sent: list[Batch] = []
    standing = EMPTY
    for move, who, size, last in moves:
        batch: Batch | None = None
        if move in ("claim", "race") or not writers:
            # Who races knows the log as it was a while ago, and so chooses an epoch that is taken.
            epoch = max(1, standing.epoch if move == "race" else standing.epoch + 1)
            batch = fence_of(1, 2, epoch, 1_000 + len(log))
        elif move == "leave":  # once more perhaps, or long after another has taken over
            batch = hand_over_of(writers[-1 - who % len(writers)].fence)
        elif move == "again" and sent:
            batch = sent[-1 - who % len(sent)]
        else:
            batch = writers[-1 - who % len(writers)].next(size, last)
            sent.append(batch)
            if move == "lose":
                continue
        _, standing = judge(standing, batch, len(log))
        log.append(batch)
        if batch.fence:
            sent.append(batch)
            if move in ("claim", "race") or not writers:
                writers.append(Writer(batch.epoch, batch.token, standing))
    return log


def model(log: Sequence[Batch]) -> set[int]:
    """Find the offsets that count: each owner's time, then its batches in it, one after another."""
    fences: list[int] = []
    for offset, batch in enumerate(log):
        if batch.fence and all(batch.epoch > log[earlier].epoch for earlier in fences):
            fences.append(offset)
    counting = set(fences)
    ends = [*fences[1:], len(log)]
    for begin, end in zip(fences, ends, strict=False):
        owner = log[begin].epoch, log[begin].token
        due = 1
        for offset in range(begin + 1, end):
            batch = log[offset]
            mine = (batch.epoch, batch.token) == owner and not batch.fence
            if mine and batch.sequence == due:
                counting.add(offset)
                due += 1
    return counting


@given(moves)
def test_the_rule_takes_what_the_model_takes(moves: list[tuple[str, int, int, bool]]) -> None:
    log = written(moves)
    standing = EMPTY
    counting = set()
    for offset, batch in enumerate(log):
        verdict, after = judge(standing, batch, offset)
        if verdict in COUNTING:
            counting.add(offset)
        else:
            assert after == standing
        standing = after
    assert counting == model(log)


@given(moves)
def test_valid_bytes_lie_one_after_another(moves: list[tuple[str, int, int, bool]]) -> None:
    end = segment_end = 0
    reader = Reader(1, 2)
    for offset, batch in enumerate(written(moves)):
        for piece in reader.read(Entry(offset, encode_batch(batch)))[1]:
            assert piece.position == (segment_end if piece.segment else end)
            if piece.segment:
                segment_end = piece.position + piece.segment
            end = piece.position + len(piece.data)
            assert end <= segment_end
    if reader.standing is not None and reader.standing.whole_end:
        assert (reader.standing.whole_end, reader.standing.whole_segment_end) == (end, segment_end)


@given(moves, st.integers(0, 60))
def test_readers_that_begin_anywhere_agree(
    moves: list[tuple[str, int, int, bool]], begin: int
) -> None:
    """What does not count changes nothing, and what is known at an offset is all one needs."""
    log = written(moves)
    standing, at_begin = EMPTY, EMPTY
    counting = []
    for offset, batch in enumerate(log):
        if offset == begin:
            at_begin = standing
        verdict, standing = judge(standing, batch, offset)
        if verdict in COUNTING:
            counting.append(batch)
    from_begin = at_begin if begin < len(log) else standing
    for batch in log[begin:]:
        _, from_begin = judge(from_begin, batch, 0)
    alone = EMPTY
    for batch in counting:
        verdict, alone = judge(alone, batch, 0)
        assert verdict in COUNTING
    assert standing == from_begin == alone
