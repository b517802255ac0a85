"""An owner's time: what it knows of the log without reading it, and whether it still serves.

It knows an entry when a report says where its own batch stands and nothing is between that and what
it knew: offsets are dense. At a gap it reads what stands there, and applies to it the rule that all
readers apply. So what it takes for acknowledged is what every reader takes for valid:

    report at the next offset ──────────► judged ──► valid: promises up to its end hold
    report further on ──► gap, read ──────► judged ──► another's fence: it is over
    no report, or not where ──► sent again, or read up to the log's end

A proof that it is the owner is as old as the batch that proved it was when it was shipped. Without
one for SILENT_MS it does not serve. Nor does a new owner until SILENT_MS after it last heard of the
one before, unless that one handed the log over: so there are never two. After a pause of its own no
proof is that new; but what its clients still wait for was decided long ago: it drops them, and
proves itself with a beat. One that is mute, for its disk does not answer, appends nothing and
serves nobody, so that it is taken for dead; it listens for who is the next.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from latermq_broker.replication.batch import Batch
from latermq_broker.replication.entry import UNTOLD, Entry, Offset, require_behind
from latermq_broker.replication.reader import Piece, Reader
from latermq_broker.replication.shipper import SIZES, Shipment, Shipper, ShipSizes
from latermq_broker.replication.validity import Verdict

TAKE_OVER_MS: Final = 2_000  # of silence: then the first standby claims the log
SILENT_MS: Final = 1_000  # without a proof: the owner does not serve
PAUSE_MS: Final = TAKE_OVER_MS // 2  # between two looks: the owner was not there
BEAT_MS: Final = 300  # without anything appended
RESEND_MS: Final = 100


class Gap(NamedTuple):
    """Entries that the owner does not know: from `begin` to before `end`."""

    begin: Offset
    end: Offset | None  # None: the log's, as it says when it is asked now
    shipments: tuple[Shipment, ...]  # of which it was not told where they stand


class Wary:
    """A clock that never falls, on which what the wall clock skips has passed, too.

    A machine that was stopped as a whole may have counted nothing meanwhile: whoever sets its wall
    clock right again tells of it.
    """

    def __init__(self, now_ms: Callable[[], int], wall_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._apart_ms = wall_ms() - now_ms()
        self._skipped_ms = 0

    def now_ms(self) -> int:
        """Look at both."""
        now_ms = self._now_ms()
        apart_ms = self._wall_ms() - now_ms
        if apart_ms - self._apart_ms > PAUSE_MS:
            self._skipped_ms += apart_ms - self._apart_ms
        self._apart_ms = apart_ms
        return now_ms + self._skipped_ms


class Tenure:
    """
    Args:
        fence: the owner's own.
        reader: has read up to the fence, and it counted.
        claimed_ms: when the claim began, by the clock that all methods are given: it never falls.
        heard_ms: when the reader last read a fence or a valid batch of another owner; 0: there is
            none any more.
    """

    def __init__(
        self,
        fence: Batch,
        reader: Reader,
        claimed_ms: int,
        heard_ms: int,
        sizes: ShipSizes = SIZES,
    ) -> None:
        standing = reader.standing
        assert standing is not None
        assert (standing.epoch, standing.token) == (fence.epoch, fence.token)
        self.fenced = False
        self.mute = False  # appends nothing and does not serve; may change at any time
        self.valid_end = standing.whole_end  # of the groups that every reader takes for valid
        self.gaps = 0  # that were read
        self.reader = reader
        self.shipper = Shipper(fence, standing.end, sizes)
        self._reports: list[tuple[Offset, int, Shipment]] = []  # a heap
        self._ties = count()
        self._untold: list[Shipment] = []  # acknowledged, but not where
        self._reading = False
        self._leaving = False
        self._proven_ms = claimed_ms
        self._serve_from_ms = heard_ms + SILENT_MS
        self._looked_ms = claimed_ms
        self._shipped_ms = claimed_ms
        self._resend_ms: int | None = None

    # --- time ----------------------------------------------------------------------------------

    def look(self, now_ms: int) -> bool:
        """Note that the owner is there. True: it was not, for long, and may have been replaced.

        To be called before anything else when the loop turns; after True connections are dropped.
        """
        paused = now_ms - self._looked_ms > PAUSE_MS
        self._looked_ms = now_ms
        return paused

    def serving(self, now_ms: int) -> bool:
        """Tell whether clients may be answered."""
        if self.fenced or self.mute or self._leaving:
            return False
        return now_ms - self._proven_ms < SILENT_MS and now_ms >= self._serve_from_ms

    # --- the end -------------------------------------------------------------------------------

    def hand_over(self) -> None:
        """Serve no more, and hand the log over as soon as all that was added is valid.

        Not before it might have served: the next one does at once, so the one before must be gone.
        """
        self._leaving = True

    @property
    def handed_over(self) -> bool:
        """Return whether every reader knows that nobody owns the log."""
        standing = self.reader.standing
        return self.fenced and standing is not None and standing.ownerless

    # --- what is appended ----------------------------------------------------------------------

    def add(self, piece: Piece, *, last: bool) -> None:
        """Add what was appended to the shard's log; `last` ends the group.

        After `hand_over` it is left out: nobody waits for it, and a start cuts it off.
        """
        if not self._leaving:
            self.shipper.add(piece, last=last)

    def step(self, now_ms: int) -> list[Shipment]:
        """Return what is to be appended to the replicated log now, in this order."""
        shipments = [] if self.fenced or self.mute else self._due(now_ms)
        for shipment in shipments:
            shipment.behind = self.reader.offset
        return shipments

    def _due(self, now_ms: int) -> list[Shipment]:
        if self._resend_ms is not None and self.shipper.open:
            shipments = self.shipper.resend() if now_ms >= self._resend_ms else []
            if shipments:
                self._resend_ms = None
            return shipments
        self._resend_ms = None
        if self._leaving and self.shipper.idle and now_ms >= self._serve_from_ms:
            return [self.shipper.hand_over(now_ms)]
        quiet = now_ms - self._shipped_ms >= BEAT_MS or not self.serving(now_ms)
        shipments = self.shipper.ship(now_ms, beat=quiet)
        if shipments:
            self._shipped_ms = now_ms
        return shipments

    # --- what becomes of it --------------------------------------------------------------------

    def reported(self, shipment: Shipment, offset: Offset, now_ms: int) -> None:
        """Take note that a quorum has a copy of `shipment`, and where it stands.

        Raises EntriesLostError: where something stood already when it was sent.
        """
        if offset == UNTOLD:
            self._untold.append(shipment)
            return
        require_behind(offset, shipment.behind)
        heappush(self._reports, (offset, next(self._ties), shipment))
        self._take_reports(now_ms)

    def failed(self, shipment: Shipment, now_ms: int) -> None:
        """Take note that nobody knows what became of a copy of `shipment`."""
        shipment.in_flight = False
        self._resend_from(now_ms)

    def gap(self) -> Gap | None:
        """Return what is to be read before anything else can be judged; None while it is read."""
        if self._reading or self.fenced:
            return None
        if self._untold:
            shipments, self._untold = tuple(self._untold), []
            gap = Gap(self.reader.offset, None, shipments)
        elif self._reports:
            gap = Gap(self.reader.offset, self._reports[0][0], ())
        else:
            return None
        self._reading = True
        self.gaps += 1
        return gap

    def rest(self) -> Gap | None:
        """Return all that it does not know of the log, to be read as a gap; None while one is."""
        if self._reading or self.fenced:
            return None
        self._reading = True
        return Gap(self.reader.offset, None, ())

    def unread(self, gap: Gap) -> None:
        """Take note that a gap could not be read: it is still there."""
        self._reading = False
        self._untold = [*gap.shipments, *self._untold]

    def take(self, entry: Entry) -> None:
        """Judge the next entry of a gap that is being read; behind a fence nothing counts.

        Raises as `Reader.read`: this owner cannot go on.
        """
        if entry.offset >= self.reader.offset and not self.fenced:
            self._judged(self.reader.read(entry)[0])

    def read(self, gap: Gap, end: Offset, now_ms: int) -> None:
        """End a gap, all of whose entries were taken up to `end`, or to a fence.

        Raises as `Reader.read`: this owner cannot go on.
        """
        self._reading = False
        if not self.fenced:  # else it stays at the fence: what is behind it was not read
            self.reader.offset = max(self.reader.offset, end)
        self._take_reports(now_ms)
        for shipment in gap.shipments:
            self._unless_valid(shipment, now_ms)

    def _take_reports(self, now_ms: int) -> None:
        """Judge what stands where the known part of the log ends, as far as it goes."""
        while self._reports and self._reports[0][0] <= self.reader.offset and not self.fenced:
            offset, _, shipment = heappop(self._reports)
            if offset == self.reader.offset:
                self._judged(self.reader.skip(shipment.batch, offset))
            self._unless_valid(shipment, now_ms)

    def _judged(self, verdict: Verdict) -> None:
        standing = self.reader.standing
        assert standing is not None
        if verdict is Verdict.FENCE:  # its own stands before all that it reads
            self.fenced = True
        elif verdict is Verdict.VALID:
            self.valid_end = standing.whole_end
            shipped_ms = self.shipper.settle(standing.sequence)
            if shipped_ms is not None:
                self._proven_ms = max(self._proven_ms, shipped_ms)

    def _unless_valid(self, shipment: Shipment, now_ms: int) -> None:
        """Have it sent again if the copy that was reported does not count, nor any before it."""
        shipment.in_flight = False
        if shipment in self.shipper.open:
            self._resend_from(now_ms)

    def _resend_from(self, now_ms: int) -> None:
        if self._resend_ms is None:
            self._resend_ms = now_ms + RESEND_MS
