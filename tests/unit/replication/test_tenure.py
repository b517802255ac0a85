"""An owner and the time: what it may still say."""

from collections.abc import Iterable

import pytest

from latermq_broker.errors import EntriesLostError
from latermq_broker.replication.batch import encode_batch, fence_of, hand_over_of
from latermq_broker.replication.entry import UNTOLD, Entry
from latermq_broker.replication.reader import Piece, Reader
from latermq_broker.replication.shipper import SIZES, Shipper, ShipSizes
from latermq_broker.replication.tenure import (
    BEAT_MS,
    PAUSE_MS,
    RESEND_MS,
    SILENT_MS,
    Gap,
    Tenure,
    Wary,
)
from latermq_broker.replication.validity import EMPTY, Verdict, judge

FENCE = fence_of(1, 1, 1, 77)


def tenure(heard_ms: int = 0, sizes: ShipSizes = SIZES) -> Tenure:
    """One that claimed an empty log at 10,000 ms; its fence is the entry 0."""
    _, standing = judge(EMPTY, FENCE, 0)
    return Tenure(FENCE, Reader(1, 1, standing, 1), 10_000, heard_ms, sizes)


def read(it: Tenure, gap: Gap, entries: Iterable[Entry], end: int, now_ms: int) -> None:
    """Take all entries of a gap, and end it."""
    for entry in entries:
        it.take(entry)
    it.read(gap, end, now_ms)


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


@pytest.mark.parametrize(
    ("counted_ms", "passed_ms", "jumps"),
    [
        (50, 50, False),
        (50, 50 + PAUSE_MS, False),  # set a little
        (50, 51 + PAUSE_MS, True),  # a machine that was stopped, and did not count it
        (51 + PAUSE_MS, 51 + PAUSE_MS, True),
        (50, -3_600_000, False),
    ],
)
def test_a_pause_that_only_the_wall_clock_knows_of_is_one(
    counted_ms: int, passed_ms: int, jumps: bool
) -> None:
    counted, wall = 10_000, 1_700_000_000_000
    clock = Wary(lambda: counted, lambda: wall)
    it = tenure()
    assert not it.look(clock.now_ms())
    counted, wall = counted + counted_ms, wall + passed_ms
    assert it.look(clock.now_ms()) is jumps
    assert it.serving(clock.now_ms()) is not jumps
    assert not it.look(clock.now_ms())
    assert clock.now_ms() - 10_000 == max(counted_ms, passed_ms if jumps else 0)


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
    it.read(gap, 4, 10_004)  # what stood there was nobody's
    assert it.valid_end == 110


def test_an_engine_that_lost_its_end_is_found_out() -> None:
    """It acknowledged the entries up to 3, and then has an entry 2 that comes behind them."""
    it = tenure()
    for offset in (1, 2, 3):
        it.add(Piece(8 * offset, bytes(8), 1_000 if offset == 1 else 0), last=True)
        (shipment,) = it.step(10_000)
        it.reported(shipment, offset, 10_001)
    promised = it.valid_end
    it.add(Piece(promised, bytes(8), 0), last=True)
    (shipment,) = it.step(10_002)
    with pytest.raises(EntriesLostError, match="entry 3 was there"):
        it.reported(shipment, 2, 10_003)
    assert it.valid_end == promised


def test_a_report_that_comes_late_is_no_loss() -> None:
    """What it is of was read meanwhile, with what else stood there."""
    it = tenure(sizes=ShipSizes(ship_bytes=1))
    it.add(Piece(0, bytes(100), 1_000), last=True)
    (first,) = it.step(10_000)
    it.add(Piece(100, bytes(10), 0), last=True)
    (second,) = it.step(10_000)
    it.reported(first, UNTOLD, 10_001)
    gap = it.gap()
    assert gap is not None
    read(it, gap, [Entry(1, first.entry), Entry(2, second.entry)], 3, 10_002)
    it.reported(second, 2, 10_003)
    assert it.valid_end == 110


def test_what_stands_behind_the_fence_that_ends_it_is_left_to_its_next_life() -> None:
    """A note of what its reader knows is where the directory goes on as a standby."""
    it = tenure()
    (beat,) = it.step(10_000 + BEAT_MS)
    next_owner = fence_of(1, 1, 2, 88)
    shipper = Shipper(next_owner, 0)
    shipper.add(Piece(0, bytes(100), 1_000), last=True)
    (first,) = shipper.ship(0)
    entries = [Entry(1, encode_batch(next_owner)), Entry(2, first.entry)]
    it.reported(beat, 3, 10_400)
    gap = it.gap()
    assert gap is not None
    read(it, gap, entries, 3, 10_401)
    assert it.fenced
    assert it.reader.offset == 2
    verdict, pieces = it.reader.read(entries[1])
    assert verdict is Verdict.VALID
    assert [len(piece.data) for piece in pieces] == [100]


def test_an_entry_that_stands_nobody_knows_where_is_looked_for_up_to_the_end() -> None:
    it = tenure()
    (beat,) = it.step(10_000 + BEAT_MS)
    it.reported(beat, UNTOLD, 10_400)
    gap = it.gap()
    assert gap is not None
    assert (gap.begin, gap.end) == (1, None)


def test_a_log_is_handed_over_when_all_that_was_added_is_valid() -> None:
    it = tenure()
    it.add(Piece(0, bytes(100), 1_000), last=True)
    (first,) = it.step(10_000)
    it.hand_over()
    assert not it.serving(10_000)
    it.add(Piece(100, bytes(10), 0), last=True)  # too late: nobody waits for it
    assert it.step(10_001) == []
    it.reported(first, 1, 10_002)
    (last,) = it.step(10_002)
    assert last.batch == hand_over_of(FENCE)
    assert it.step(10_003) == []
    assert not it.handed_over
    it.reported(last, 2, 10_004)
    assert (it.handed_over, it.fenced, it.valid_end) == (True, True, 100)


def test_a_hand_over_that_is_not_known_to_stand_is_sent_again() -> None:
    it = tenure()
    it.hand_over()
    (last,) = it.step(10_000)
    it.failed(last, 10_001)
    assert it.step(10_001) == []
    assert it.step(10_001 + RESEND_MS) == [last]
    it.reported(last, 5, 10_200)  # something stands before it: the first copy?
    gap = it.gap()
    assert gap is not None
    read(it, gap, [Entry(3, last.entry)], 5, 10_201)
    assert it.handed_over


def test_a_log_that_another_took_is_not_handed_over() -> None:
    it = tenure()
    it.hand_over()
    (last,) = it.step(10_000)
    it.reported(last, 2, 10_001)
    gap = it.gap()
    assert gap is not None
    read(it, gap, [Entry(1, encode_batch(fence_of(1, 1, 2, 99)))], 2, 10_002)
    assert (it.fenced, it.handed_over) == (True, False)


def test_who_may_not_serve_yet_hands_nothing_over() -> None:
    """Whoever takes it serves at once, and the owner before may still do so."""
    it = tenure(heard_ms=9_900)
    it.hand_over()
    (beat,) = it.step(10_000)
    it.reported(beat, 1, 10_100)
    assert not any(each.batch.fence for each in it.step(9_900 + SILENT_MS - 1))
    it = tenure(heard_ms=9_900)
    it.hand_over()
    (last,) = it.step(9_900 + SILENT_MS)
    assert last.batch.fence
