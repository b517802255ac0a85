"""What goes together in a batch, and when it goes."""

from latermq_broker.replication.batch import (
    BATCH_BYTES_MAX,
    BATCH_HEADER_BYTES,
    decode_batch,
    fence_of,
)
from latermq_broker.replication.reader import Piece
from latermq_broker.replication.shipper import OPEN_MAX, SHIP_BYTES, Shipper

FENCE = fence_of(1, 1, 1, 77)
SEGMENT = 1 << 30


def shipper() -> Shipper:
    return Shipper(FENCE, 0)


def test_the_first_goes_at_once_and_what_follows_waits_for_it() -> None:
    it = shipper()
    it.add(Piece(0, b"head", SEGMENT), last=True)
    (first,) = it.ship(5)
    assert decode_batch(first.entry, 0) == first.batch
    assert (first.batch.position, first.batch.segment, first.shipped_ms) == (0, SEGMENT, 5)
    it.add(Piece(4, b"one", 0), last=True)
    it.add(Piece(7, b"two", 0), last=True)
    assert it.ship(6) == []
    assert it.settle(1) == 5
    (second,) = it.ship(7)
    assert (second.batch.sequence, second.batch.position, second.batch.data) == (2, 4, b"onetwo")


def test_under_load_a_batch_goes_when_it_is_full_and_five_are_open_at_most() -> None:
    it = shipper()
    it.add(Piece(0, b"head", SEGMENT), last=True)
    it.ship(0)
    end = 4
    for _ in range(3 * OPEN_MAX):
        it.add(Piece(end, bytes(SHIP_BYTES), 0), last=True)
        end += SHIP_BYTES
        it.ship(0)
    assert len(it.open) == OPEN_MAX
    it.settle(OPEN_MAX)
    (more,) = it.ship(0)
    assert len(more.batch.data) <= BATCH_BYTES_MAX - BATCH_HEADER_BYTES
    assert len(more.batch.data) > SHIP_BYTES


def test_a_large_group_is_several_batches_and_the_last_one_ends_it() -> None:
    it = shipper()
    it.add(Piece(0, bytes(3 * BATCH_BYTES_MAX), SEGMENT), last=True)
    shipments = it.ship(0)
    it.settle(3)
    shipments += it.ship(0)  # the rest of it was too little to go before
    batches = [shipment.batch for shipment in shipments]
    assert [batch.last for batch in batches] == [False, False, False, True]
    assert [batch.segment for batch in batches] == [SEGMENT, 0, 0, 0]
    assert max(len(shipment.entry) for shipment in shipments) == BATCH_BYTES_MAX
    assert sum(len(batch.data) for batch in batches) == 3 * BATCH_BYTES_MAX


def test_a_segment_begins_a_batch_and_the_group_goes_on_in_it() -> None:
    it = shipper()
    it.add(Piece(96, b"blank", 0), last=False)
    it.add(Piece(128, b"header", 128), last=True)
    batches = [it.ship(0)[0].batch]
    it.settle(1)
    batches.append(it.ship(0)[0].batch)
    assert [(batch.position, batch.last) for batch in batches] == [(96, False), (128, True)]


def test_what_failed_goes_again_as_it_was_when_nothing_is_in_flight() -> None:
    it = shipper()
    it.add(Piece(0, bytes(8), SEGMENT), last=True)
    (first,) = it.ship(0)
    it.add(Piece(8, bytes(SHIP_BYTES), 0), last=True)
    (second,) = it.ship(0)
    first.in_flight = False
    assert it.resend() == []
    second.in_flight = False
    assert [shipment.entry for shipment in it.resend()] == [first.entry, second.entry]
    assert it.resend() == []


def test_a_beat_goes_only_when_nothing_else_does() -> None:
    it = shipper()
    (beat,) = it.ship(0, beat=True)
    assert (beat.batch.data, beat.batch.last, beat.batch.position) == (b"", True, 0)
    assert it.ship(0, beat=True) == []
