"""An owner at work: carries what its tenure decides to the replicated log, and back to who waits.

    written ─► tenure ─► append ─► report ─► tenure ─► kept up to here ─► who waits is answered
                                                 └─► in the end: handed over, nobody owns the log

Everything happens in the event loop but `until_kept`, in which the threads of checkpoints wait: so
one is only of what every reader takes for valid. While the owner does not serve, all wait on.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Final

from latermq_broker.callbacks import do_nothing, ignore
from latermq_broker.config.addresses import listen_address
from latermq_broker.deferred import Later
from latermq_broker.engine.state.figures import DURATION_MS, Histogram
from latermq_broker.errors import (
    ConfigError,
    FencedError,
    LogUnavailableError,
    StoreError,
    StoreReadOnlyError,
)
from latermq_broker.observability.replication_figures import OWNER, Others, ReplicationFigures
from latermq_broker.pump.disk_watch import DISK_MS, DiskWatch
from latermq_broker.replication.batch import cluster_hash
from latermq_broker.replication.entry import Offset
from latermq_broker.replication.note import Note
from latermq_broker.replication.reader import Piece, Reader
from latermq_broker.replication.replicated_log import ReplicatedLog, entries_of
from latermq_broker.replication.shipper import Shipment
from latermq_broker.replication.tenure import Gap, Tenure
from latermq_broker.replication.validity import Verdict
from latermq_broker.store.files import NO_ROOM_ERRNOS
from latermq_broker.store.log.commit_log import CommitLog
from latermq_broker.store.log.commitment import WrittenPiece
from latermq_broker.store.log.segment import SEGMENT_HEADER_BYTES, Segment

log = logging.getLogger("latermq.replication")

TICK_S: Final = 0.05
NOTE_S: Final = 5.0
NOTE_BYTES: Final = 16 << 20  # of the log, which a start would read again
ENDING_S: Final = 1.0  # for the last note
NEXT_S: Final = 2.0  # for another broker to own what was handed over
LISTEN_MS: Final = 500  # between two looks of one that is mute at what others append
OPENS_S: Final = 1.0  # from its first batch to its open port
ASK_S: Final = 0.02  # between two looks at that port


class Owner:
    """
    Args:
        note: of the directory, as its fence was appended.
        keep_note: writes a note; called in a thread.
        on_failure: called once: it is fenced, or cannot go on.
        on_serving: whether clients may be answered, whenever that changes. ConfigError ends it:
            somebody else has the port.
        on_pause: the process stood still for long: whoever waits is not to be answered any more.
        on_stop: it lets go: what a quorum has not by now, it never will, from here.
        others: brokers of the same log, for the figures.
    """

    def __init__(
        self,
        replicated_log: ReplicatedLog,
        tenure: Tenure,
        commit_log: CommitLog,
        now_ms: Callable[[], int],
        note: Note,
        keep_note: Callable[[Note], None],
    ) -> None:
        self.on_failure: Callable[[BaseException], None] = ignore
        self.on_serving: Callable[[bool], None] = ignore
        self.on_pause: Callable[[], None] = do_nothing
        self.on_stop: Callable[[BaseException], None] = ignore
        self.others: Callable[[], Others] = Others
        self._replicated_log = replicated_log
        self._tenure = tenure
        self._log = commit_log
        self._now_ms = now_ms
        self._note = note
        self._keep_note = keep_note
        self._loop = asyncio.get_running_loop()
        self._kept = 0
        self._failure: BaseException | None = None
        self._changed = threading.Condition()  # guards the two
        self._serving = False
        self._latency_ms = Histogram(DURATION_MS)
        self._answered_ms = now_ms()
        self._noted = tenure.valid_end
        self._notable = asyncio.Event()  # so much is valid since, or it is the last one
        self._over = asyncio.Event()  # handed over, or failed
        self._tasks: set[asyncio.Task[None]] = set()
        self._disk = DiskWatch(commit_log.syncs)
        self._listened_ms = 0
        self._trimmed = 0
        self._dropped: tuple[int, int] | None = None  # the log's start, once valid up to here

    # --- what the log asks: `commitment.Keepers` -----------------------------------------------

    def begin(self) -> None:
        """Ship what the disk has and a quorum does not: what opening the directory appended."""
        self.written(_unshipped(self._log, self._tenure.valid_end))
        self._log.commitment.keep_with(self, self._tenure.valid_end)
        self._begin_task(self._tick())
        self._begin_task(self._keep_notes())

    def until_kept(self, position: int) -> None:
        """Return when a quorum has the log up to `position`; in a thread of its own.

        Raises StoreReadOnlyError: it never will, from here.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._kept >= position or self._failure is not None)
            if self._kept < position:
                raise StoreReadOnlyError(f"not in the replicated log: {self._failure}")

    def may_commit(self) -> bool:
        """Tell whether clients may be answered."""
        self._look()
        return self._tenure.serving(self._now_ms())

    def written(self, pieces: Sequence[WrittenPiece]) -> None:
        """Ship what was written, at once if it may go."""
        for piece in pieces:
            self._tenure.add(piece_of(*piece), last=piece is pieces[-1])
        if self._tenure.shipper.ready:  # else the next report has it shipped, or a tick
            self._exchange()

    async def hand_over(self, wait_ms: int, synced: Later[None]) -> None:
        """Hand the log over; give it up after `wait_ms`. Return when the next owner serves.

        Nobody is waited for where no standby is heard of, nor for more than NEXT_S and OPENS_S.

        Args:
            synced: a quorum has all that was written, and nothing will be.
        """
        with suppress(TimeoutError, StoreError):
            async with asyncio.timeout(wait_ms / 1_000):
                await synced
                self._serving = False  # nothing to be said of it: the server begins no call
                self._tenure.hand_over()
                self._exchange()
                await self._over.wait()
        if self._tenure.handed_over:
            log.info("handed over", extra={"position": self._tenure.valid_end})
            others = self.others()
            if others.standbys:
                known = self._tenure.reader
                address = cluster_hash(self._note.cluster), self._note.shard
                reader = Reader(*address, known.standing, known.offset)  # that one stays as it is
                addresses = [seen.member.address for seen in others.seen if not seen.silent]
                await _until_owned(self._replicated_log, reader, addresses)

    async def stop(self) -> None:
        """Let go. Whoever waits for a quorum is told that it is over."""
        stops = StoreReadOnlyError("the broker stops")
        if self._fail(stops, say=False):
            self.on_stop(stops)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=ENDING_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def figures(self) -> ReplicationFigures:
        """Tell how it goes."""
        tenure, shipper = self._tenure, self._tenure.shipper
        standing = tenure.reader.standing
        assert standing is not None
        return ReplicationFigures(
            role=OWNER,
            cluster=self._note.cluster,
            epoch=standing.epoch,
            position=tenure.valid_end,
            silence_ms=self._now_ms() - self._answered_ms,
            latency_ms=self._latency_ms,
            lag_bytes=self._log.written - tenure.valid_end,
            waiting_bytes=shipper.waiting_bytes,
            in_flight=len(shipper.open),
            gaps=tenure.gaps,
            beats=shipper.beats,
            take_overs=1,
            others=self.others(),
        )

    # --- what the replicated log is told, and tells --------------------------------------------

    def _exchange(self) -> None:
        if self._failure is not None:
            return
        for shipment in self._tenure.step(self._now_ms()):
            report = partial(self._reported, shipment, self._loop.time())
            self._replicated_log.append(shipment.entry).listen(report)
        gap = self._tenure.gap()
        if gap is not None:
            self._begin_task(self._read(gap))

    def _reported(self, shipment: Shipment, sent_s: float, report: Later[Offset]) -> None:
        if self._failure is not None:
            return
        self._look()
        error = report.error
        if error is None:
            self._answered_ms = self._now_ms()
            self._latency_ms.observe((self._loop.time() - sent_s) * 1_000)
            try:
                self._tenure.reported(shipment, report.result(), self._now_ms())
            except StoreError as lost:  # what stands in the log is nothing to go on from
                self._fail(lost)
        elif isinstance(error, LogUnavailableError):
            log.warning("the replicated log did not take a batch", extra={"reason": str(error)})
            self._tenure.failed(shipment, self._now_ms())
        else:
            self._fail(error)
        self._settle()

    async def _read(self, gap: Gap) -> None:
        unread: LogUnavailableError | None = None
        count, end = 0, gap.begin
        try:
            end = await self._replicated_log.end() if gap.end is None else gap.end
            async with aclosing(entries_of(self._replicated_log, gap.begin, end)) as entries:
                async for entry in entries:  # judged as it comes: a gap may be hours long
                    self._look()
                    self._tenure.take(entry)
                    count += 1
                    if self._tenure.fenced or self._failure is not None:
                        break
        except LogUnavailableError as silence:
            unread = silence
        except StoreError as error:
            self._fail(error)
            return
        if unread is not None:
            log.warning("a gap could not be read", extra={"reason": str(unread)})
            await asyncio.sleep(TICK_S)
            self._tenure.unread(gap)
            return
        if self._failure is not None:
            return
        if not self._tenure.mute:
            log.info("gap read", extra={"begin": gap.begin, "entries": count})
        self._look()
        try:
            self._tenure.read(gap, end, self._now_ms())
        except StoreError as error:
            self._fail(error)
        self._settle()

    def _settle(self) -> None:
        """Tell who waits what is known now, and go on."""
        if self._tenure.handed_over:
            self._over.set()
            return
        if self._tenure.fenced:
            self._fail(FencedError("another broker has taken over this shard"))
        if self._failure is not None:
            return
        serving = self._tenure.serving(self._now_ms())
        if serving and self._kept < self._tenure.valid_end:
            with self._changed:
                self._kept = self._tenure.valid_end
                self._changed.notify_all()
            if self._kept - self._noted >= NOTE_BYTES:
                self._notable.set()
        self._say(serving)
        if serving and self._log.commitment.position < self._kept:
            self._log.commitment.kept(self._kept)
        self._exchange()

    def _look(self) -> None:
        if self._tenure.look(self._now_ms()):
            log.warning("the process stood still: connections are dropped")
            self._disk.begin_anew()
            self.on_pause()

    def _say(self, serving: bool) -> None:
        if serving != self._serving:
            log.info("serves" if serving else "does not serve: no proof that it is the owner")
            self._serving = serving
            try:
                self.on_serving(serving)
            except ConfigError as error:  # else it would be the owner for ever, and serve nobody
                self._fail(error)

    def _fail(self, error: BaseException, *, say: bool = True) -> bool:
        """Let go of the log; whether that is new."""
        with self._changed:
            if self._failure is not None:
                return False
            self._failure = error
            self._changed.notify_all()
        self._notable.set()
        self._over.set()
        if say:
            log.critical("no longer the owner", extra={"reason": str(error)})
            self._say(serving=False)
            self.on_failure(error)
        return True

    # --- now and then --------------------------------------------------------------------------

    async def _tick(self) -> None:
        while self._failure is None:
            self._look()
            now_ms = self._now_ms()
            _mute(self._tenure, hangs=self._disk.hangs(now_ms))
            if self._tenure.mute and now_ms - self._listened_ms >= LISTEN_MS:
                self._listened_ms = now_ms
                if rest := self._tenure.rest():
                    self._begin_task(self._read(rest))
            self._settle()
            self._trim()
            await asyncio.sleep(TICK_S)

    async def _keep_notes(self) -> None:
        """Write down what the directory has: what a quorum and the disk have."""
        over = False
        while not over:
            with suppress(TimeoutError):
                async with asyncio.timeout(NOTE_S):
                    await self._notable.wait()
            self._notable.clear()
            over = self._failure is not None
            reader = self._tenure.reader
            if not reader.between_groups or not self._kept:  # it never served: `Replica`
                continue
            note = self._note.of(reader)
            end = self._noted = self._tenure.valid_end
            while self._log.durable < end and self._failure is None:
                await asyncio.sleep(TICK_S)
            if self._log.durable < end or note == self._note:
                continue
            try:
                await self._loop.run_in_executor(None, self._keep_note, note)
            except OSError as error:
                if error.errno not in NO_ROOM_ERRNOS:
                    raise
                log.warning("no room for a note: the last one stays", extra={"reason": str(error)})
                continue
            self._note = note

    def _trim(self) -> None:
        """Trim the replicated log to what ours still has, once the record that says so is valid.

        Not in front of where a start on this directory would read on, as its note says.
        """
        if self._dropped is not None and self._tenure.valid_end >= self._dropped[1]:
            start, reader = self._dropped[0], self._tenure.reader
            offset = reader.segments.get(start)
            if offset is not None and offset >= self._note.offset:
                return
            self._dropped, self._trimmed = None, start
            reader.forget_before(start)
            if offset is not None:
                self._begin_task(_trim_before(self._replicated_log, offset))
        start = self._log.segments[0].base
        if self._dropped is None and start > self._trimmed:
            self._dropped = start, self._log.end
            self._notable.set()

    def _begin_task(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("replication failed", exc_info=error)
            self._fail(error)


def _mute(tenure: Tenure, *, hangs: bool) -> None:
    """Have the owner fall silent while its disk hangs."""
    if hangs and not tenure.mute:
        why = "the disk does not answer: silent, so that another broker takes over"
        log.error(why, extra={"ms": DISK_MS})
    elif tenure.mute and not hangs:
        log.warning("the disk answers again")
    tenure.mute = hangs


async def _until_owned(
    replicated_log: ReplicatedLog, reader: Reader, addresses: Sequence[str]
) -> None:
    """Read on until there is an owner that appends, and its port is open."""
    with suppress(TimeoutError, StoreError):
        async with asyncio.timeout(NEXT_S), aclosing(replicated_log.tail(reader.offset)) as tail:
            async for entry in tail:
                if reader.read(entry)[0] is Verdict.VALID:  # only an owner's batch is
                    break
        log.info("another broker is the owner")
        async with asyncio.timeout(OPENS_S):
            while not any([await _is_open(address) for address in addresses]):
                await asyncio.sleep(ASK_S)


async def _is_open(address: str) -> bool:
    """Tell whether somebody serves there: the port of one that stands by is closed."""
    with suppress(OSError, ConfigError):
        _, writer = await asyncio.open_connection(*listen_address("address", address))
        writer.close()
        return True
    return False


async def _trim_before(replicated_log: ReplicatedLog, offset: Offset) -> None:
    try:
        await replicated_log.trim(offset)
        log.info("the replicated log is trimmed", extra={"before": offset})
    except LogUnavailableError as error:  # the next drop is behind this one
        log.warning("the replicated log was not trimmed", extra={"reason": str(error)})


def piece_of(segment: Segment, position: int, data: bytes) -> Piece:
    """Make a piece of what was written; with the segment's header in front if it is the first."""
    if position != segment.base + SEGMENT_HEADER_BYTES:
        return Piece(position, data, 0)
    header = segment.pread(SEGMENT_HEADER_BYTES, segment.base)
    return Piece(segment.base, header + data, segment.size)


def _unshipped(commit_log: CommitLog, end: int) -> list[WrittenPiece]:
    """Read what lies between the end of the valid bytes and that of the log, by segment.

    Of one that was closed all that is left, zeros too: where it was closed is not known here.
    """
    pieces: list[WrittenPiece] = []
    for segment in commit_log.segments:
        begin = max(end, segment.base + SEGMENT_HEADER_BYTES)
        size = min(commit_log.written, segment.end) - begin
        if size > 0:
            pieces.append((segment, begin, segment.pread(size, begin)))
    return pieces
