"""An owner and the time: what it may still say."""

from latermq_broker.replication.batch import fence_of
from latermq_broker.replication.reader import Piece, Reader
from latermq_broker.replication.replicated_log import UNTOLD
from latermq_broker.replication.tenure import BEAT_MS, PAUSE_MS, SILENT_MS, Tenure
from latermq_broker.replication.validity import EMPTY, judge

FENCE = fence_of(1, 1, 1, 77)


def tenure(heard_ms: int = 0) -> Tenure:
    """One that claimed an empty log at 10,000 ms; its fence is the entry 0."""
    _, standing = judge(EMPTY, FENCE, 0)
    return Tenure(FENCE, Reader(1, 1, standing, 1), 10_000, heard_ms)


def test_a_proof_is_as_old_as_the_batch_that_it_is() -> None:
    it = tenure()
    assert it.serving(10_000 + SILENT_MS - 1)
    assert not it.serving(10_000 + SILENT_MS)
    (beat,) = it.step(10_000 + BEAT_MS)
    it.reported(beat, 1, 10_900)
    assert it.serving(10_000 + BEAT_MS + SILENT_MS - 1)
    assert not it.serving(10_000 + BEAT_MS + SILENT_MS)


def test_it_waits_out_whoever_was_before() -> None:
    assert not tenure(heard_ms=9_900).serving(10_000)
    assert not tenure(heard_ms=9_500).serving(9_500 + SILENT_MS - 1)
    assert tenure(heard_ms=9_500).serving(9_500 + SILENT_MS)


def test_beats_come_when_nothing_else_does_and_at_once_when_it_does_not_serve() -> None:
    it = tenure()
    assert it.step(10_000 + BEAT_MS - 1) == []
    assert len(it.step(10_000 + BEAT_MS)) == 1
    again = tenure(heard_ms=10_000)
    assert len(again.step(10_000)) == 1


def test_a_pause_is_noticed() -> None:
    it = tenure()
    assert not it.look(10_000 + PAUSE_MS)
    assert it.look(10_001 + 2 * PAUSE_MS)
    assert not it.look(10_002 + 2 * PAUSE_MS)


def test_what_is_known_without_reading_ends_at_the_first_gap() -> None:
    it = tenure()
    it.add(Piece(0, bytes(100), 1_000), last=True)
    (first,) = it.step(10_000)
    it.reported(first, 1, 10_001)
    assert it.valid_end == 100
    it.add(Piece(100, bytes(10), 0), last=True)
    (second,) = it.step(10_002)
    it.reported(second, 4, 10_003)
    assert it.valid_end == 100
    gap = it.gap()
    assert gap is not None
    assert (gap.begin, gap.end) == (2, 4)
    assert it.gap() is None
    it.read(gap, [], 4, 10_004)  # what stood there was nobody's
    assert it.valid_end == 110


def test_an_entry_that_stands_nobody_knows_where_is_looked_for_up_to_the_end() -> None:
    it = tenure()
    (beat,) = it.step(10_000 + BEAT_MS)
    it.reported(beat, UNTOLD, 10_400)
    gap = it.gap()
    assert gap is not None
    assert (gap.begin, gap.end) == (1, None)
