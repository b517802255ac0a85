"""Cuts what was appended into batches and says when each goes: a decision, no I/O.

    appended ──► waiting ──ship──► open, in flight ──valid──► settled
                              ▲          │
                              └──resend──┘ nobody knows whether a quorum has it

A batch goes when none is open or SHIP_BYTES wait, at most OPEN_MAX at a time: under load a batch is
many group commits, for one append costs Kafka more than the bytes in it. What failed is sent
again as it was, the same bytes under the same sequence: a second copy does not count.
"""

from collections import deque
from typing import Final, NamedTuple

from latermq_broker.replication.batch import (
    BATCH_BYTES_MAX,
    BATCH_HEADER_BYTES,
    Batch,
    encode_batch,
    hand_over_of,
)
from latermq_broker.replication.reader import Piece

SHIP_BYTES: Final = 64 << 10
OPEN_MAX: Final = 5


class ShipSizes(NamedTuple):
    """When a batch goes, and how large it may be."""

    ship_bytes: int = SHIP_BYTES
    batch_bytes_max: int = BATCH_BYTES_MAX
    open_max: int = OPEN_MAX


SIZES: Final = ShipSizes()


class Shipment:
    """A batch on its way: `in_flight` until something is known of this copy of it."""

    __slots__ = ("batch", "behind", "entry", "in_flight", "shipped_ms")

    def __init__(self, batch: Batch, now_ms: int) -> None:
        self.batch = batch
        self.entry = encode_batch(batch)
        self.in_flight = True
        self.behind = 0  # what the replicated log had, for certain, when this copy went
        self.shipped_ms = now_ms  # the first copy: it may be the one that counted


class Shipper:
    """
    Args:
        fence: the owner's, which stands in the log.
        end: of the log's bytes when the fence came.
    """

    def __init__(self, fence: Batch, end: int, sizes: ShipSizes = SIZES) -> None:
        self._fence = fence
        self._sizes = sizes
        self._end = end  # of what was shipped
        self._sequence = 0
        self._waiting: deque[tuple[Piece, bool]] = deque()  # and whether it ends a group
        self.waiting_bytes = 0
        self.beats = 0
        self.open: deque[Shipment] = deque()

    @property
    def idle(self) -> bool:
        """Tell whether nothing waits, and all that went is settled."""
        return not self.open and not self._waiting

    @property
    def ready(self) -> bool:
        """Tell whether something waits, and may go now."""
        return bool(self._waiting) and self._may_go()

    def add(self, piece: Piece, *, last: bool) -> None:
        """Add what was appended; `last` ends the group."""
        size = len(piece.data)
        self.waiting_bytes += size
        data_max = self._sizes.batch_bytes_max - BATCH_HEADER_BYTES
        if 0 < size <= data_max:  # nearly all
            self._waiting.append((piece, last))
            return
        for at in range(0, size, data_max):
            part = Piece(
                piece.position + at, piece.data[at : at + data_max], piece.segment if not at else 0
            )
            self._waiting.append((part, last and at + data_max >= size))

    def ship(self, now_ms: int, *, beat: bool = False) -> list[Shipment]:
        """Return what is to be appended to the replicated log now, in this order.

        Args:
            beat: if nothing else goes and nothing is open, an empty batch.
        """
        shipments: list[Shipment] = []
        while self.ready:
            shipments.append(self._ship(self._next_pieces(), now_ms))
        if beat and self.idle:
            self.beats += 1
            shipments.append(self._ship([], now_ms))
        return shipments

    def hand_over(self, now_ms: int) -> Shipment:
        """Return what ends the owner's time: behind it nothing of the owner's counts."""
        assert self.idle
        shipment = Shipment(hand_over_of(self._fence), now_ms)
        self.open.append(shipment)
        return shipment

    def resend(self) -> list[Shipment]:
        """Return what is open and not in flight, all of it, once nothing is in flight any more."""
        if any(shipment.in_flight for shipment in self.open):
            return []
        for shipment in self.open:
            shipment.in_flight = True
        return list(self.open)

    def settle(self, sequence: int) -> int | None:
        """Forget what is valid, up to `sequence`; when the newest of it was shipped."""
        shipped_ms: int | None = None
        while self.open and self.open[0].batch.sequence <= sequence:
            shipped_ms = self.open.popleft().shipped_ms
        return shipped_ms

    def _may_go(self) -> bool:
        if not self.open:
            return True
        full = self.waiting_bytes >= self._sizes.ship_bytes
        return full and len(self.open) < self._sizes.open_max

    def _next_pieces(self) -> list[tuple[Piece, bool]]:
        """Take the pieces that go into one batch: of one segment, and together not too large."""
        pieces = [self._waiting.popleft()]
        size = len(pieces[0][0].data)
        data_max = self._sizes.batch_bytes_max - BATCH_HEADER_BYTES
        while self._waiting:
            piece, _ = self._waiting[0]
            if piece.segment or size + len(piece.data) > data_max:
                break
            size += len(piece.data)
            pieces.append(self._waiting.popleft())
        self.waiting_bytes -= size
        return pieces

    def _ship(self, pieces: list[tuple[Piece, bool]], now_ms: int) -> Shipment:
        self._sequence += 1
        position, segment, last = self._end, 0, True
        if pieces:
            position, segment, last = pieces[0][0].position, pieces[0][0].segment, pieces[-1][1]
        data = b"".join([piece.data for piece, _ in pieces])
        self._end = position + len(data)
        batch = self._fence._replace(
            sequence=self._sequence,
            position=position,
            data=data,
            last=last,
            segment=segment,
            fence=False,
        )
        shipment = Shipment(batch, now_ms)
        self.open.append(shipment)
        return shipment
