"""One broker's part in a replicated log: follow, take over when nobody owns it, own it.

    follow ──silence──► claim ──► own ──fenced──► exit, code 4
      ▲  ▲ └─handed over─┘│        │
      │  └────────────────│────────┘ handed over
      └─somebody was faster

A standby has read all that there is before it claims: when it has heard nothing valid for
TAKE_OVER_MS, the log answering all the while, and longer if others are to own it before; or at once
if it was handed over, or if the last owner was this directory's: its lock says that nobody is that
any more.
"""

import asyncio
import logging
import random
import secrets
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from latermq_broker.callbacks import do_nothing
from latermq_broker.clock import SystemClock
from latermq_broker.config.config import Config
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.figures import DURATION_MS, Histogram
from latermq_broker.errors import EntriesGoneError, LogUnavailableError, StoreUnusableError
from latermq_broker.observability.replication_figures import STANDBY, Others, ReplicationFigures
from latermq_broker.pump.disk_work import DiskWork
from latermq_broker.replication.batch import NOBODY, cluster_hash, encode_batch, fence_of
from latermq_broker.replication.entry import Entry, require_behind
from latermq_broker.replication.local_copy import LocalCopy
from latermq_broker.replication.members.announcing import Members
from latermq_broker.replication.note import Note, write_note
from latermq_broker.replication.owner import Owner
from latermq_broker.replication.reader import Reader
from latermq_broker.replication.replicated_log import ReplicatedLog
from latermq_broker.replication.standby import Standby
from latermq_broker.replication.tenure import RESEND_MS, TAKE_OVER_MS, Tenure, Wary
from latermq_broker.replication.validity import EMPTY, Standing, Verdict
from latermq_broker.store.files import Files

log = logging.getLogger("latermq.replication")

LOOK_S: Final = 0.1  # at the silence
TURN_S: Final = 0.02  # of reading, then whoever else is in the loop
CANARY_MS: Final = 500  # of silence: then the log is asked; and no answer for so long is none
RANK_MS: Final = 700  # between two standbys, so that they seldom claim together
NEW_MS: Final = 10_000  # for the machine that is to have a new log first to be started
ASK_S: Final = 10.0  # how far the log goes
AWAY_S: Final = 1.0  # before the log is asked again
EARLY_MS: Final = 10 * RESEND_MS  # what an owner's batches miss was sent again by then
TOKEN_MAX: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlace:
    """Which log this is a replica of, and where."""

    cluster: str
    shard: int
    directory: Path


class Owned(NamedTuple):
    """What a broker has that owns a log."""

    owner: Owner
    engine: Engine
    disk: DiskWork  # at work since before


class Replica:
    """
    Args:
        now_ms: a clock that never falls.
        members: by which the log's brokers hear of each other, if there is a topic for that.
        on_locked: called when the directory is this process's, perhaps more than once.
    """

    def __init__(
        self,
        place: ReplicaPlace,
        replicated_log: ReplicatedLog,
        config: Config,
        files: Files,
        now_ms: Callable[[], int],
        members: Members | None = None,
    ) -> None:
        self.on_locked: Callable[[], None] = do_nothing
        self._place = place
        self._replicated_log = replicated_log
        self._config = config
        self._files = files
        self._now_ms = now_ms
        self._members = members
        self._heard_ms = 0
        self._others_ms = 0  # when it last heard of an owner that was not of this directory
        self._early_ms: int | None = None  # since when the owner's batches miss one before them
        self._went_back = False
        self._answered_ms = now_ms()  # when the replicated log last said anything
        self._end = 0  # of the replicated log, as it said last
        self._known = False  # that it is the one that the directory has
        self._standby: Standby | None = None
        self._fence_came = asyncio.Event()
        self._left: tuple[tuple[int, int], ...] = ()  # epochs and tokens that are left to others

    async def take_over(
        self, clock: SystemClock, stop: asyncio.Event, *, yields: bool = False
    ) -> Owned | None:
        """Follow until nobody owns the log, then own it; None: `stop` came first.

        The owner is to `begin` at once: nobody hears of it before.

        Args:
            yields: what this directory's broker handed over is left to others for a while.
        Raises:
            StoreError: the directory or what stands in the log cannot be used.
        """
        place = self._place
        while True:
            note = Note(place.cluster, place.shard)
            copy = LocalCopy(place.directory, self._config.store, self._files, note)
            self.on_locked()
            if yields:  # also what was given up, and may be handed over yet, or never
                self._left = copy.note.mine, (copy.note.mine[0] + 1, NOBODY)
            if not self._free(copy) or _just_claimed(copy.reader.standing or EMPTY):
                self._others_ms = self._now_ms()  # all that there is of them may be in the note
            standby = self._standby = Standby(copy, self._config, clock)
            self._known = False
            self._tell(self.figures)
            owned: Owned | None = None
            try:
                tenure = await self._until_mine(standby, stop)
                if tenure is not None:
                    engine, disk = await standby.begin_life()
                    now_ms = Wary(self._now_ms, clock.wall_ms).now_ms
                    owner = Owner(
                        self._replicated_log, tenure, copy.store.log, now_ms, copy.note, self._keep
                    )
                    owner.others = self._others
                    self._tell(owner.figures)
                    owned = Owned(owner, engine, disk)
                return owned
            except EntriesGoneError as error:
                if standby.engine is not None or not copy.new:
                    raise StoreUnusableError(
                        f"{place.directory} is too old: the replicated log no longer has what "
                        f"comes next ({error}). Empty the directory, and the broker fills it again"
                    ) from error
                log.warning("trimming overtook the filling, which begins anew")
                copy.forget()
            finally:
                if owned is None:
                    await standby.close()

    def figures(self) -> ReplicationFigures:
        """Tell how far a standby is; what the owner knows better, `Owner.figures` tells."""
        reader = None if self._standby is None else self._standby.copy.reader
        standing = (None if reader is None else reader.standing) or EMPTY
        return ReplicationFigures(
            role=STANDBY,
            cluster=self._place.cluster,
            epoch=standing.epoch,
            position=standing.whole_end,
            silence_ms=self._now_ms() - self._answered_ms,
            latency_ms=Histogram(DURATION_MS),
            lag_entries=0 if reader is None else max(self._end - reader.offset, 0),
            others=self._others(),
            ready=self._able,
            checkpoint=None if self._standby is None else self._standby.checkpoint,
        )

    @property
    def _able(self) -> bool:
        """Return whether it could take over now: it has all there is, as far as it was told."""
        standby = self._standby
        return standby is not None and standby.able and standby.copy.reader.offset >= self._end

    @property
    def ready(self) -> bool:
        """Return whether it could take over as it is."""
        return self._standby is not None and self._standby.engine is not None

    async def close(self) -> None:
        """Let the log go."""
        members = () if self._members is None else (self._members.close(),)
        await asyncio.gather(self._replicated_log.close(), *members)

    def _tell(self, figures: Callable[[], ReplicationFigures]) -> None:
        if self._members is not None:
            self._members.tell(figures)

    def _others(self) -> Others:
        return Others() if self._members is None else self._members.others()

    # --- follow --------------------------------------------------------------------------------

    async def _until_mine(self, standby: Standby, stop: asyncio.Event) -> Tenure | None:
        """Follow, and claim when nobody owns the log, until it is this broker's; None: `stop`."""
        reading = asyncio.create_task(self._read(standby))
        try:
            while await self._follow(standby, reading, stop):
                tenure = await self._claim(standby, reading, stop)
                if tenure is not None:
                    return None if stop.is_set() else tenure  # a start takes it up at once
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        return None

    async def _follow(
        self, standby: Standby, reading: asyncio.Task[None], stop: asyncio.Event
    ) -> bool:
        """Wait until the log that is read has no owner; False: `stop` came first."""
        self._heard_ms = self._now_ms()
        rank = self._config.cluster.rank
        patience_ms = TAKE_OVER_MS
        patience_ms += random.randrange(RANK_MS) if rank is None else rank * RANK_MS
        reader = standby.copy.reader
        asked_s = asyncio.get_running_loop().time()
        log.info("following the replicated log", extra={"offset": reader.offset})
        while not stop.is_set():
            await self._look_again(reading)
            if not self._handed_over(reader):  # else it is not the time
                await standby.housekeep()
            if standby.cold and reader.offset >= self._end and await self._caught_up(reader):
                _require(reading)
                await standby.warm_up_aside()
                self._heard_ms = self._now_ms()  # it may have taken a while
            silent = self._ownerless(standby.copy, CANARY_MS)
            if silent and not self._handed_over(reader) and not await self._answers():
                continue
            if (
                self._ownerless(standby.copy, patience_ms)
                and await self._caught_up(reader)
                and self._ownerless(standby.copy, patience_ms)  # and all was read
                and not standby.cold
            ):
                await standby.settle()
                _require(reading)  # at the last entry: what it says is not to be claimed
                behind = reader.offset < self._end  # it went back meanwhile
                if self._ownerless(standby.copy, patience_ms) and not behind:  # nobody was faster
                    return not stop.is_set()
            if asyncio.get_running_loop().time() - asked_s >= ASK_S:
                await self._caught_up(reader)  # for who asks how far it is
                asked_s = asyncio.get_running_loop().time()
        return False

    async def _look_again(self, reading: asyncio.Task[None]) -> None:
        """Wait a moment, or until a fence was read. Raises as `_require`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._fence_came.wait()
        self._fence_came.clear()
        _require(reading)

    async def _read(self, standby: Standby) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                if not self._known:
                    await standby.copy.require_source(self._replicated_log)
                    standby.copy.cut()
                    if not standby.copy.note.whole:
                        standby.copy.go_back()
                    self._known = True
                turn_s, reader = loop.time(), standby.copy.reader
                async with aclosing(self._replicated_log.tail(reader.offset)) as tail:
                    async for entry in tail:
                        await standby.ready.wait()
                        self._take(standby, entry)
                        if reader.offset <= entry.offset:  # it went back
                            break
                        if loop.time() - turn_s >= TURN_S:
                            await asyncio.sleep(0)
                            turn_s = loop.time()
            except LogUnavailableError as error:
                log.warning("the replicated log does not answer", extra={"reason": str(error)})
                await asyncio.sleep(AWAY_S)

    def _take(self, standby: Standby, entry: Entry) -> None:
        verdict = standby.take(entry)
        self._answered_ms = self._now_ms()
        if verdict is Verdict.ELSEWHERE:
            raise StoreUnusableError(
                f"the entry at offset {entry.offset} of the replicated log is of another cluster "
                f"or shard than {self._place.cluster!r}, {self._place.shard}: two clusters may "
                "not share a topic"
            )
        if verdict is Verdict.EARLY:
            self._doubt(standby.copy, entry.offset)
        if verdict is Verdict.FENCE:
            self._fence_came.set()
        if verdict in (Verdict.FENCE, Verdict.VALID):
            self._early_ms = None
            self._heard_ms = self._now_ms()
            if self._handed_over(standby.copy.reader):
                self._others_ms = 0  # there is none any more
            elif not self._free(standby.copy):
                self._others_ms = self._heard_ms

    def _doubt(self, copy: LocalCopy, offset: int) -> None:
        """Go back, once, if a batch is missing here for so long that it would be there by now.

        Others may have read it. That is before the owner, none of whose batches count here, is
        taken for silent. If it is missing in the log, too, what comes behind it counts nowhere.
        """
        if self._early_ms is None:
            self._early_ms = self._now_ms()
        missing_ms = self._now_ms() - self._early_ms
        if missing_ms >= EARLY_MS and not self._went_back:
            self._went_back = True
            log.warning(
                "the owner's batches miss one before them, which is not sent again: the last "
                "segment is read again from the replicated log",
                extra={"offset": offset, "ms": missing_ms},
            )
            copy.go_back()

    async def _answers(self) -> bool:
        """Tell whether others could append; if not, silence is not the owner's."""
        began_ms = self._now_ms()
        with suppress(LogUnavailableError):
            await self._replicated_log.canary()
            if self._now_ms() - began_ms < CANARY_MS:
                self._answered_ms = self._now_ms()
                return True
        self._heard_ms = self._now_ms()
        return False

    async def _caught_up(self, reader: Reader) -> bool:
        """Tell whether all that a quorum has was read."""
        read, began_ms = reader.offset, self._now_ms()
        try:
            self._end = await self._replicated_log.end()
        except LogUnavailableError:
            self._heard_ms = self._now_ms()
            return False
        self._answered_ms = self._now_ms()
        if self._answered_ms - began_ms >= CANARY_MS:  # the log had no leader: nobody was heard
            log.warning("the replicated log was slow", extra={"ms": self._answered_ms - began_ms})
            self._heard_ms = self._answered_ms
        return self._known and read <= self._end <= reader.offset  # less: another log, or lost

    def _ownerless(self, copy: LocalCopy, patience_ms: int) -> bool:
        """Tell whether the last owner was silent for so long, or there is none to wait for."""
        standing = copy.reader.standing or EMPTY
        if self._free(copy) and (standing.epoch, standing.token) not in self._left:
            return True
        if standing == EMPTY:
            patience_ms += NEW_MS
        return self._now_ms() - self._heard_ms >= patience_ms

    def _free(self, copy: LocalCopy) -> bool:
        """Tell whether the log has no owner, or this directory's broker was it."""
        standing = copy.reader.standing or EMPTY
        if standing == EMPTY:  # nobody's yet: whoever is to own it first
            return not self._config.cluster.rank
        return standing.ownerless or copy.note.mine == (standing.epoch, standing.token)

    def _handed_over(self, reader: Reader) -> bool:
        """Tell whether the last owner said that it is none any more."""
        standing = reader.standing or EMPTY
        return standing.ownerless and standing != EMPTY

    # --- claim ---------------------------------------------------------------------------------

    async def _claim(
        self, standby: Standby, reading: asyncio.Task[None], stop: asyncio.Event
    ) -> Tenure | None:
        """Fence the log and become its owner; None: somebody else did, or `stop` came."""
        reader = standby.copy.reader
        mine = (reader.standing or EMPTY).epoch + 1, 1 + secrets.randbelow(TOKEN_MAX)
        standby.copy.claim(*mine)
        fence = fence_of(cluster_hash(self._place.cluster), self._place.shard, *mine)
        claimed_ms, known = self._now_ms(), reader.offset
        try:
            offset = await self._replicated_log.claim(encode_batch(fence))
            require_behind(offset, known)
        except LogUnavailableError as error:
            log.warning("no claim", extra={"reason": str(error)})
            return None
        while reader.offset <= offset:
            if stop.is_set():  # the log may not answer for long
                return None
            await self._look_again(reading)
        after = reader.standing
        assert after is not None
        if (after.epoch, after.token) != mine:
            log.info("somebody else owns the log", extra={"epoch": after.epoch})
            return None
        log.info("owner of the log", extra={"epoch": after.epoch, "offset": offset})
        return Tenure(fence, reader, claimed_ms, self._others_ms)

    def _keep(self, note: Note) -> None:
        write_note(self._files, self._place.directory, note)


def _just_claimed(standing: Standing) -> bool:
    """Tell whether an owner of that note may not have waited for the one before yet.

    One that has served notes batches of its own: `Owner` keeps no note before.
    """
    return standing.epoch > 1 and not standing.ownerless and not standing.sequence


def _require(reading: asyncio.Task[None]) -> None:
    """Raise what ended it: what it read last was perhaps not written."""
    if reading.done():
        reading.result()
