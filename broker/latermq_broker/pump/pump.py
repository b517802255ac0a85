"""Drives the engine: time in, batches out to the file.

The engine only decides; the pump owns the moments. Once per loop turn in which something was
appended: wake the receives that something became ready for, write the batch, resolve who waits.
The engine is ticked at its next deadline, never before it; not while too much waits to be synced.

    append ─call_soon→ turn: wake, write ─→ leased() resolves; with flush=none or async, written()
                              └→ sync in a thread ─→ with flush=sync, written() resolves;
                                                │    with flush=sync-strict, leased() only now
                                                └─ 100 ms without a new append ─→ MARK

With flush=none only a full segment is synced, and whoever waits for `synced`. Where others keep the
log, all wait until these have it; and the disk, if the flush policy says so.

A failed write or sync is final: whoever waits gets the error, `on_failure` is told once, and
nothing is tried again.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from latermq_broker.background.jobs import Background
from latermq_broker.config.config import Config, Flush
from latermq_broker.deferred import Later, Value
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import Ready
from latermq_broker.errors import StoreError, StoreFullError, TooManyRequestsError
from latermq_broker.pump.chores import Chores
from latermq_broker.pump.commit_waits import CommitWaits
from latermq_broker.pump.disk_work import Clock, DiskWork
from latermq_broker.pump.standstill import Standstill

log = logging.getLogger("latermq.pump")

TICK_SLEEP_MS_MAX: Final = 3_600_000  # look again at least this often
FULL_RETRY_MS: Final = 1_000  # after a tick that found the disk full
BEHIND_RETRY_MS: Final = 100  # while it is behind: nothing expires and no timer fires
HOUSEKEEPING_MS: Final = 1_000
LOOK_MS: Final = 100  # from one look for a standstill, a second or more, to the next


class Pump:
    """The `Committer` of the services. Made and used in one running loop.

    Args:
        disk: its hands, which may be at work.
        on_failure: called once, with what failed.
        replicated: others keep the log, too.
        housekeeping_ms: between two looks at what is due about once a second.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        config: Config,
        disk: DiskWork,
        on_failure: Callable[[BaseException], None],
        *,
        replicated: bool = False,
        housekeeping_ms: int = HOUSEKEEPING_MS,
    ) -> None:
        self.on_ready: Callable[[Ready], None] | None = None
        self.on_second: Callable[[], None] | None = None
        self._engine = engine
        self._log = engine.store.log
        self._clock = clock
        self._config = config.store
        flush = config.store.flush
        self._acknowledges_committed = replicated or flush.acknowledges_synced
        self._leases_committed = replicated or flush is Flush.SYNC_STRICT
        self._syncs_at_once = flush.acknowledges_synced or not replicated
        self._unsynced_bytes_max = config.store.unsynced_bytes_max
        self._by_segment = flush is Flush.NONE and not replicated
        if self._by_segment:  # a segment is filled before anything is synced
            self._unsynced_bytes_max += config.store.segment_bytes
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._armed = False
        self._waits = CommitWaits(self._log)
        self._housekeeping_ms = housekeeping_ms
        self._standstill = Standstill(engine.hearing, housekeeping_ms)
        self._looked_ms = 0  # when it was asked last
        self._second_s = 0.0  # when housekeeping is due, by the loop
        self._tick_ms = 0  # when the tick timer is set for
        self._wall_offset_ms = 0  # as the engine knows it
        self._tick_from_ms = 0  # after a full disk: not before
        self._chores = Chores(engine, self.now_ms, lambda: self._behind, self._arm, self.fail)
        self._ticks_chores = True
        self._disk = disk
        self._timers = disk.timers
        self._log.commitment.on_moved = self._waits.committed
        disk.on_marked = self._arm
        disk.on_failure = self.fail

    # --- Committer -----------------------------------------------------------------------------

    def now_ms(self) -> int:
        now_ms, offset_ms = self._clock.now_ms(), self._clock.wall_offset_ms
        if now_ms - self._looked_ms >= LOOK_MS:
            self._looked_ms = now_ms
            self._standstill.look(now_ms)
        jump_ms = offset_ms - self._wall_offset_ms
        if jump_ms:  # somebody set the clock: what waits for a time of day may be due, or no longer
            log.warning("the wall clock jumped", extra={"ms": jump_ms, "offset_ms": offset_ms})
            self._wall_offset_ms = offset_ms
            self._engine.clock.stepped(offset_ms, now_ms)
            self._arm()
        return now_ms

    def admit(self) -> None:
        if self._behind:
            what = "the disk is behind: too much is written but not synced"
            if self._log.commitment.position < self._log.durable:
                what = "the replicated log is behind: too much is written that no quorum has"
            raise TooManyRequestsError(what)

    @property
    def _behind(self) -> bool:
        """Tell if more is written than the disk, or who else keeps the log, may be behind by."""
        kept = min(self._log.durable, self._log.commitment.position)
        return self._log.end - kept > self._unsynced_bytes_max

    def acknowledged(self, answer: Value) -> Later[Value]:
        return self._wait(Later(answer), committed=self._acknowledges_committed)

    def written(self) -> Later[None]:
        return self._wait(Later(), committed=self._acknowledges_committed)

    def synced(self) -> Later[None]:
        return self._wait(Later(), committed=True)

    def leased(self) -> Later[None]:
        return self._wait(Later(), committed=self._leases_committed)

    def _wait(self, later: Later[Value], *, committed: bool) -> Later[Value]:
        if not self._armed:
            self._arm()
        if committed:
            self._waits.until_committed(later)
        else:
            self._waits.until_written(later)
        return later

    # --- start and stop ------------------------------------------------------------------------

    def start(self, background: Background | None = None) -> None:
        """Write, tick and keep house from now on.

        Args:
            background: gives the engine's chores their turns; None: they are done at ticks.
        """
        if background is not None:
            self._ticks_chores = False
            self._chores.start(background)
        now_ms = self.now_ms()
        self._engine.clock.stepped(self._wall_offset_ms, now_ms)  # another than in the last life?
        self._disk.look_at_disk(now_ms)  # the first send may find none
        self._arm()
        self._wait_a_second()

    def look_again(self) -> None:
        """Have a turn: what is due next may be another thing than it was."""
        self._arm()

    def conclude(self, *, drained: bool) -> Later[None]:
        """Write what is left, and begin nothing more by time; settled when all of it is kept.

        Args:
            drained: all that was answered went out; the log says so, as `Store.close` has it.
        """
        self._timers.stop()
        self._chores.cancel()
        self._syncs_at_once = True
        with suppress(StoreError):
            self._log.mark(self._clock.now_ms(), clean=drained)
        return self.synced()

    async def stop(self) -> None:
        """Write what is left and wait for the threads; then the engine may be closed."""
        await self._chores.stop()
        self._armed = True
        self._turn()
        self._timers.stop()
        await self._disk.join()

    # --- the turn ------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Have a turn: something was appended, or something ready or due may have changed."""
        if not self._armed:
            self._armed = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        if self._waits.failure is not None or not self._armed:
            return
        ready = self._engine.take_ready()
        if ready and self.on_ready is not None:
            try:
                self.on_ready(ready)  # what it leases joins this turn's batch
            except Exception:
                log.exception("waking receives failed")
        self._armed = False
        self._write()
        self._set_tick()
        if self._engine.announced:  # a receive looked at a part only: who waits asks again
            self._arm()

    def _write(self) -> None:
        try:
            written = self._engine.write()
        except Exception as error:
            log.exception("write failed")
            self.fail(error)
            return
        self._waits.written()
        unsynced_bytes = written - self._log.durable
        if self._by_segment:
            wanted = self._log.durable < self._log.segments[-1].base
        else:
            wanted = unsynced_bytes >= self._config.sync_bytes
        if wanted or (self._syncs_at_once and self._waits.for_commit):
            self._disk.sync()
        elif unsynced_bytes and not self._by_segment and "sync" not in self._timers:
            self._timers.after("sync", self._config.sync_interval_ms, self._disk.sync)

    def fail(self, error: BaseException) -> None:
        """Fail all who wait, now and from now on: what they wait for will never be."""
        if self._waits.failure is not None:
            return
        self._timers.stop()
        self._chores.cancel()
        self._waits.fail(error)
        self._on_failure(error)

    # --- time ----------------------------------------------------------------------------------

    def _set_tick(self) -> None:
        """Have `_tick` called at the engine's next deadline, unless it is already."""
        due_ms = self._engine.next_deadline_ms(chores=self._ticks_chores)
        if self._waits.failure is not None or due_ms is None:
            return
        due_ms = max(due_ms, self._tick_from_ms)
        if "tick" in self._timers and self._tick_ms <= due_ms:
            return
        self._tick_ms = due_ms
        wait_ms = due_ms - self.now_ms()
        self._timers.after("tick", min(max(wait_ms, 0), TICK_SLEEP_MS_MAX), self._tick)

    def _tick(self) -> None:
        """Tick the engine: timers of the loop may run a little early; it does only what is due."""
        now_ms = self.now_ms()
        if self._behind:  # what it wrote would wait in memory, without a bound
            self._tick_ms = now_ms + BEHIND_RETRY_MS
            self._timers.after("tick", BEHIND_RETRY_MS, self._tick)
            return
        try:
            self._engine.tick(now_ms, chores=self._ticks_chores)
        except StoreFullError as full:
            if not self._tick_from_ms:
                log.error("what is due waits for the disk", extra={"reason": str(full)})
            self._tick_from_ms = now_ms + FULL_RETRY_MS
        except Exception as error:
            log.exception("tick failed")
            self.fail(error)
            return
        else:
            self._tick_from_ms = 0
        self._arm()

    def _wait_a_second(self) -> None:
        self._second_s = self._loop.time() + self._housekeeping_ms / 1_000
        self._timers.after("housekeeping", self._housekeeping_ms, self._housekeep)

    def _housekeep(self) -> None:
        lag_s = self._loop.time() - self._second_s
        self._engine.figures.loop_lag_ms.observe(max(0.0, lag_s * 1_000))
        self._wait_a_second()
        if self.on_second is not None:
            try:
                self.on_second()
            except Exception:
                log.exception("housekeeping failed")
        now_ms = self.now_ms()  # has a look at the clocks
        wall = self._engine.wall
        self._engine.conditions.look_at_clock(wall.ahead_ms, now_ms)
        self._engine.conditions.look_at_schedules(
            self._engine.schedules.table, wall.at(now_ms), now_ms
        )
        self._write()  # a snapshot is of what the log holds
        if self._waits.failure is None:
            self._disk.housekeep()
