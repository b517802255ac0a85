"""What waits for the disk: syncs, checkpoints, the next segment, the idle mark. The pump's hands.

Everything here runs in a thread and reports back in the loop. At most one sync runs at a time; one
that is wanted meanwhile starts when it ends, so that all who wait share it. An engine has one for
its whole life: a standby that takes over gives its own to the pump, with the work that goes on.
"""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, Protocol

from latermq_broker.callbacks import do_nothing, ignore
from latermq_broker.config.config import StoreConfig
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.conditions import Part
from latermq_broker.errors import (
    DamagedQueueError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreGoneError,
    StoreUnusableError,
)
from latermq_broker.pump.scrub_work import Scrub
from latermq_broker.store.directory import gone_directory, require_held
from latermq_broker.store.files import FINAL_ERRNOS, NO_ROOM_ERRNOS

log = logging.getLogger("latermq.pump")

MARK_IDLE_MS: Final = 100
PREPARE_RETRY_MS: Final = 10_000
SYNC_RETRY_MS: Final = 1_000  # after a sync that had no descriptor
THREADS_MAX: Final = 5  # a sync, a checkpoint, a segment being prepared, a merge, a scrub
MERGE_SECONDS_MAX: Final = 60


class Clock(Protocol):
    """Tells the time, as `clock.SystemClock` does."""

    wall_offset_ms: int

    def now_ms(self) -> int: ...


class Timers:
    """Timers by name; setting one again moves it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._handles: dict[str, asyncio.TimerHandle] = {}
        self._stopped = False

    def __contains__(self, name: str) -> bool:
        return name in self._handles

    def after(self, name: str, delay_ms: int, callback: Callable[[], None]) -> None:
        def run() -> None:
            del self._handles[name]
            callback()

        if self._stopped:
            return
        if (earlier := self._handles.get(name)) is not None:
            earlier.cancel()
        self._handles[name] = self._loop.call_later(delay_ms / 1_000, run)

    def stop(self) -> None:
        """Stop the timers: none fires any more, none can be set."""
        self._stopped = True
        for handle in self._handles.values():
            handle.cancel()


class Jobs:
    """Work in threads by name, one of a name at a time."""

    def __init__(self, threads: Executor) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        self._running: dict[str, asyncio.Future[object]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._running

    def start(
        self, name: str, work: Callable[[], object], done: Callable[[BaseException | None], None]
    ) -> bool:
        """Run `work`, then `done` in the loop with its error; False when one of `name` runs."""
        if name in self._running:
            return False

        def finished(job: asyncio.Future[object]) -> None:
            del self._running[name]
            done(job.exception())

        job: asyncio.Future[object] = self._loop.run_in_executor(self._threads, work)
        self._running[name] = job
        job.add_done_callback(finished)
        return True

    async def join(self) -> None:
        """Wait until nothing runs, what `done` callbacks start included."""
        while self._running:
            await asyncio.wait(self._running.values())
            await asyncio.sleep(0)  # lets the callbacks run


class DiskWork:
    """Made in a running loop. Whose hands it is sets:

        on_marked: a MARK was appended and waits to be written.
        on_failure: a sync failed; the log takes nothing any more.

    Args:
        threads: at least THREADS_MAX of them; ended by `close`.
    """

    def __init__(
        self, engine: Engine, clock: Clock, config: StoreConfig, threads: Executor
    ) -> None:
        self.timers = Timers()
        self.on_marked: Callable[[], None] = do_nothing
        self.on_failure: Callable[[BaseException], None] = ignore
        self._engine = engine
        self._store = engine.store
        self._log = engine.store.log
        self._conditions = engine.conditions
        self._clock = clock
        self._config = config
        self._threads = threads
        self._jobs = Jobs(threads)
        self._sync_again = False
        self._synced_to = 0
        self._loop = asyncio.get_running_loop()
        self._sync_began_s = 0.0
        self._prepare_from_ms = 0
        self._scrub = Scrub(
            engine.store, config, self._jobs.start, lambda error: self.on_failure(error)
        )
        self._logged = False, False  # low, full: as last logged
        self._merged: list[str] = []  # arguments of a merge whose result waits to be taken up

    async def join(self) -> None:
        await self._jobs.join()

    def close(self) -> None:
        """Let the threads go; nothing is begun any more."""
        self._threads.shutdown()

    def sync(self) -> None:
        """Start a sync of what is written, or have one follow the running one."""
        self._sync_again = not self._jobs.start("sync", self._sync_in_thread, self._synced)
        if not self._sync_again:
            self._sync_began_s = self._loop.time()

    def _sync_in_thread(self) -> None:
        self._synced_to = self._log.sync()

    def _synced(self, error: BaseException | None) -> None:
        if isinstance(error, StoreBusyError):
            log.warning("sync waits", extra={"reason": str(error)})
            self.timers.after("sync", SYNC_RETRY_MS, self.sync)
            return
        if error is not None:
            log.error("sync failed", extra={"reason": str(error)})
            self.on_failure(error)
            return
        took_s = self._loop.time() - self._sync_began_s
        self._engine.figures.sync_ms.observe(took_s * 1_000)
        self._log.synced(self._synced_to)
        if self._sync_again:
            self.sync()
        elif self._log.durable == self._log.end:
            self.timers.after("mark", MARK_IDLE_MS, self._mark)

    def _mark(self) -> None:
        try:
            self._log.mark(self._clock.now_ms())
        except StoreError:
            return  # full or failed: the next append says so to someone who asked
        self.on_marked()

    def housekeep(self) -> None:
        """Begin what is due; called once a second. The log must be written."""
        now_ms = self._clock.now_ms()
        if not self._look_at_directory(now_ms):
            return
        self.look_at_disk(now_ms)
        self.shorten(now_ms)
        if now_ms >= self._prepare_from_ms and not self._log.failed:
            self._prepare(now_ms)
        self._scrub.look(now_ms)

    def shorten(self, now_ms: int) -> None:
        """Begin what keeps the next start short, and the runs few, if it is due."""
        if self._merged and "checkpoint" not in self._jobs:
            self._adopt_merge()
        damaged = self._store.queue_files.damaged
        if damaged is not None:  # it is made anew by a start, from the log
            self._without_checkpoint("no checkpoint", DamagedQueueError(damaged))
        elif self._store.checkpoint_due(now_ms):
            self._checkpoint(now_ms)
        if not self._merged and (arguments := self._engine.checkpoints.merge_arguments()):
            self._merge(arguments)

    def _look_at_directory(self, now_ms: int) -> bool:
        """Tell whether a start would find what is written; if not, the broker fails."""
        store, reason = self._store, None
        try:
            require_held(store.files, store.directory, store.lock, store.log.segments)
        except OSError as error:
            reason = f"{store.directory} cannot be looked at: {error.strerror or error}"
        except StoreGoneError as error:
            self._be_gone(error, now_ms)
            return False
        if self._conditions.set(Part.DIRECTORY, reason, now_ms) and reason is not None:
            log.error("the data directory is out of reach", extra={"reason": reason})
        return True

    def _be_gone(self, error: BaseException, now_ms: int) -> None:
        """Fail, as what is written from now on would be found by no start."""
        self._conditions.set(Part.DIRECTORY, str(error), now_ms)
        self.on_failure(error)

    def look_at_disk(self, now_ms: int) -> None:
        """Look how much is free; log what that changes."""
        disk = self._store.disk
        low, full = self._logged
        try:
            self._store.look_at_disk()
        except OSError as error:
            reason = f"free space unknown: {error.strerror or error}"
            if self._conditions.set(Part.DISK, reason, now_ms):
                log.warning("free space unknown", extra={"reason": error.strerror})
            return
        self._conditions.set(Part.DISK, disk.why or None, now_ms)
        fields: dict[str, object] = {
            "free_bytes": disk.space.free, "needed_bytes": disk.needed_bytes
        }  # fmt: skip
        if disk.full:
            fields["why"] = disk.why
        if disk.full and not full:
            log.error("disk full: sends are refused", extra=fields)
        elif full and not disk.full:
            log.warning("disk has room again: sends are taken", extra=fields)
        elif disk.low and not low:
            log.warning("disk nearly full: old messages go early", extra=fields)
        self._logged = disk.low, disk.full

    def _prepare(self, now_ms: int) -> None:
        """Prepare the next segment once this is half used, else the spare while there is room."""
        disk = self._store.disk
        in_segment_bytes = self._log.end - self._log.segments[-1].base
        half_used = in_segment_bytes > self._config.segment_bytes // 2
        if self._log.next_wanted and (half_used or disk.starved):
            self._prepare_from_ms = now_ms + PREPARE_RETRY_MS
            self._jobs.start("prepare", self._log.prepare_next, self._prepared)
        elif disk.starved:  # one is prepared, and could not be put to use
            self._prepare_from_ms = now_ms + PREPARE_RETRY_MS
            disk.room()
        elif self._log.row.spare_wanted and not disk.full:
            self._prepare_from_ms = now_ms + PREPARE_RETRY_MS
            self._jobs.start("prepare", self._log.row.prepare_spare, self._spared)

    def _checkpoint(self, now_ms: int) -> None:
        store = self._store
        try:
            require_held(store.files, store.directory, store.lock, store.log.segments)
            job = self._engine.checkpoints.begin(now_ms)
        except StoreGoneError as error:
            self._be_gone(error, now_ms)
            return
        except (StoreError, OSError) as refusal:
            self._without_checkpoint("no checkpoint", refusal)
            return

        def done(error: BaseException | None) -> None:
            try:
                self._engine.checkpoints.finish(job)
            except OSError as unread:  # it is done; its run stays in memory
                error = error or unread
            if error is None:
                self._conditions.set(Part.CHECKPOINTS, None, self._clock.now_ms())
                log.debug("checkpoint done", extra={"position": job.position})
            elif isinstance(error, OSError) and error.errno in FINAL_ERRNOS and not job.done:
                self._be_gone(gone_directory(store.directory, error), self._clock.now_ms())
            elif isinstance(error, OSError | StoreFullError):
                self._without_checkpoint("checkpoint failed", error)
                self._make_room(error)
            else:
                log.error("checkpoint failed", exc_info=error)
                self.on_failure(error)

        started = self._jobs.start("checkpoint", job.run, done)
        assert started, "the store begins one checkpoint at a time"

    def _without_checkpoint(self, what: str, error: BaseException) -> None:
        """Go on with the checkpoint there is; the next is tried after the interval."""
        why = f"{what}: {error}"
        troubles = self._conditions.troubles
        if Part.CHECKPOINTS not in troubles or troubles[Part.CHECKPOINTS].reason != why:
            log.error(what, extra={"reason": str(error)})
        self._conditions.set(Part.CHECKPOINTS, why, self._clock.now_ms())

    def _make_room(self, error: BaseException) -> None:
        """Give a checkpoint the spare's room: it has the better claim; old segments go after it."""
        if isinstance(error, OSError) and error.errno in NO_ROOM_ERRNOS:
            self._log.row.release_spare()
            self._prepare_from_ms = self._clock.now_ms() + PREPARE_RETRY_MS

    def _prepared(self, error: BaseException | None) -> None:
        if error is None:
            self._store.disk.room()
            self._prepare_from_ms = 0
            return
        log.warning("no segment prepared ahead", extra={"reason": str(error)})
        if isinstance(error, StoreFullError):
            self._store.disk.no_room(error)
        elif isinstance(error, StoreUnusableError):
            self._be_gone(error, self._clock.now_ms())

    def _spared(self, error: BaseException | None) -> None:
        if error is None:
            self._prepare_from_ms = 0
        else:
            log.warning("no spare room kept for a full disk", extra={"reason": str(error)})

    def _merge(self, arguments: list[str]) -> None:
        """Merge many timer runs into one, in a process of its own: it would hold the GIL."""

        def work() -> None:
            module = "latermq_broker.schedule.run_merge"
            subprocess.run(
                [sys.executable, "-m", module, *arguments],
                check=True,
                timeout=MERGE_SECONDS_MAX,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )

        def done(error: BaseException | None) -> None:
            if error is None:
                self._merged = arguments
            else:
                log.warning("timer runs not merged", extra={"reason": str(error)})

        self._jobs.start("merge", work, done)

    def _adopt_merge(self) -> None:
        arguments, self._merged = self._merged, []
        try:
            self._engine.checkpoints.adopt_merge(arguments)
        except (OSError, StoreError) as error:
            log.warning("merged timer runs not taken up", extra={"reason": str(error)})


def disk_threads() -> Executor:
    """Make the threads of a DiskWork."""
    return ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="latermq-disk")
