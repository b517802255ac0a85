"""The store: one data directory with its log, its consume queues and its checkpoints.

Life: `open` takes the lock and checks the files → `recover` replays, exactly once → the engine
appends and reads, the pump writes, syncs and checkpoints → `close`. Stopping without `close` is
always allowed: there is one way back, and it is recovery. The store knows record types, not
payloads: what the engine keeps in a checkpoint are named sections of bytes.
"""

import errno
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from latermq_broker.config.config import StoreConfig
from latermq_broker.errors import (
    DamagedQueueError,
    HalfRestoredError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnusableError,
    UnusableCheckpointError,
)
from latermq_broker.store.checkpoint_choice import CheckpointChoice, restored_queues
from latermq_broker.store.checkpoint_job import CheckpointJob, QueueWrite, RunWrite
from latermq_broker.store.cut_offs import CutOffs
from latermq_broker.store.derived.checkpoint import (
    Checkpoint,
    delete_checkpoints,
    queue_sections,
)
from latermq_broker.store.derived.consume_queue import (
    FILE_ENTRIES,
    ConsumeQueue,
    QueueFiles,
    write_entries,
)
from latermq_broker.store.derived.message_index import MessageIndex
from latermq_broker.store.directory import (
    CHECKPOINTS_NAME,
    INDEX_NAME,
    LOCK_NAME,
    LOG_NAME,
    OUR_DIRECTORIES,
    QUEUES_NAME,
    RUNS_NAME,
    find_log,
    first_segment,
    remove_unfinished,
    require_held,
    require_local,
    require_ours,
    take_lock,
    unusable,
)
from latermq_broker.store.disk_pressure import DiskPressure
from latermq_broker.store.dropped import CHECKPOINT_SOON_MS, Dropped
from latermq_broker.store.files import Files
from latermq_broker.store.log.commit_log import CommitLog
from latermq_broker.store.offline.scrub import ScrubCounts
from latermq_broker.store.records.record import Record
from latermq_broker.store.recovery import (
    LogScan,
    RecoveryReport,
    drop_caches,
    require_a_future,
    require_torn,
    seal_tail,
    unreadable,
    whole_tail,
)

STORE_SECTIONS: Final = "store."  # prefix of the section names the store keeps for itself
SPILL_RECORDS: Final = 500_000  # a full replay writes queue entries out this often


class Store:
    """See the module."""

    def __init__(
        self, directory: Path, config: StoreConfig, files: Files, log: CommitLog, lock_fd: int
    ) -> None:
        self.directory, self.log = directory, log
        self.runs_directory = directory / RUNS_NAME
        self._config, self.files = config, files
        self._lock_fd: int | None = lock_fd
        self.lock = files.free_bytes(directory / LOCK_NAME).identity
        self.queue_files = QueueFiles(files, directory / QUEUES_NAME)
        self._queues: dict[tuple[int, int], ConsumeQueue] = {}
        # A queue file was found damaged in use: the next start replays the whole log.
        self._distrust = partial(delete_checkpoints, files, directory / CHECKPOINTS_NAME)
        self._spilled: set[Path] = set()  # queue files written but not synced
        self._deleted: set[int] = set()  # topics deleted since the newest checkpoint
        self._doomed: frozenset[int] = frozenset()  # before it: the next one deletes their files
        self._floors: dict[tuple[int, int], int] = {}  # queue: first file the newest one needs
        self._next_floors: dict[tuple[int, int], int] = {}  # of the one that is being written
        self._deleting: frozenset[int] = frozenset()  # that the one being written no longer names
        self._cleaned: dict[tuple[int, int], int] = {}  # floors below which files are deleted
        self.index = MessageIndex(
            files, directory / INDEX_NAME, lambda: log.start, config.bounds.index_block_entries_max
        )
        self.dropped = Dropped(log)
        self.cut_offs = CutOffs()
        self.disk = DiskPressure(config)
        self.scrubbed = ScrubCounts()
        self.checkpointed = 0  # position of the newest checkpoint
        self._job: CheckpointJob | None = None
        self.choice = CheckpointChoice()
        self.named_runs: frozenset[str] = frozenset()  # by the newest checkpoint; restoring sets it
        self._naming_runs: frozenset[str] = frozenset()  # by the one that is being written
        self._checkpoint_end = self._checkpoint_appended = 0  # of the log, at the last checkpoint
        self._captured = (0, 0)  # the same for the running one
        self._checkpoint_ms = 0  # when the last one began
        self._retry_later = False  # it failed: not at once
        log.after_roll = self.look_at_disk

    # --- start ---------------------------------------------------------------------------------

    @classmethod
    def open(cls, directory: Path, config: StoreConfig, files: Files, now_ms: int) -> "Store":
        """Lock the directory, creating it if need be, and check its files. Then call `recover`.

        Raises:
            StoreLockedError: another broker has it.
            StoreUnusableError: the file system refuses, or the disk is full.
            UnsupportedFormatError: not ours, or written by a newer version.
            CorruptRecordError: a damaged segment header or a missing segment.
        """
        try:
            require_ours(files, directory)
            require_local(files, directory, config)
            files.make_directory(directory)
            lock_fd = take_lock(files, directory)
        except OSError as error:
            raise unusable(directory, error) from error
        try:
            return cls._open_locked(directory, config, files, lock_fd, now_ms)
        except OSError as error:
            files.close(lock_fd)
            raise unusable(directory, error) from error
        except StoreError as refusal:
            files.close(lock_fd)
            if isinstance(refusal, StoreFullError):
                raise StoreUnusableError(str(refusal)) from refusal
            raise

    @classmethod
    def _open_locked(
        cls, directory: Path, config: StoreConfig, files: Files, lock_fd: int, now_ms: int
    ) -> "Store":
        files_of_log = find_log(files, directory)
        for name in OUR_DIRECTORIES:
            files.make_directory(directory / name)
        uuid = files_of_log.uuid or files.random_bytes(16)
        segments = files_of_log.segments or [first_segment(files, directory, config, uuid, now_ms)]
        log = CommitLog(files, directory / LOG_NAME, config, uuid)
        log.adopt(segments)
        return cls(directory, config, files, log, lock_fd)

    def recover(
        self,
        restore: Callable[[Mapping[str, bytes]], None],
        apply: Callable[[Sequence[Record]], None],
        now_ms: int,
        until: int = 0,
    ) -> RecoveryReport:
        """Bring the state back: newest usable checkpoint, then every whole group after it.

        If it raises, `abandon` the store: what was applied so far is half a state. Or call it for
        a fresh state again: after a GivenUpError, once `dropped.behind` knows where, or a
        HalfRestoredError, or an UnreplayableError, once `choice` has been told.
        Args:
            restore: gets the engine's sections; not called when there is no usable checkpoint. It
                may raise UnusableCheckpointError before it changes anything: then an older one,
                or none, is taken.
            apply: gets every record but the store's own, some at a time, never part of an atomic
                group; payloads are views, copy what is kept. It may read the log and append to
                queues. LOST stands where records are missing.
            until: the log is another's copy that ends here; then `follow` it, or `begin_life`.
        Raises:
            CorruptRecordError: damage to what was durable; nothing on disk was changed.
            HalfRestoredError: the checkpoint that was taken says what cannot be.
            UnsupportedFormatError: a newer version wrote part of it.
            StoreUnusableError: the file system refuses.
        """
        try:
            return self._recover(restore, apply, now_ms, until)
        except OSError as error:
            raise unusable(self.directory, error) from error
        except (StoreFullError, StoreReadOnlyError) as refusal:
            raise StoreUnusableError(str(refusal)) from refusal

    def _recover(
        self,
        restore: Callable[[Mapping[str, bytes]], None],
        apply: Callable[[Sequence[Record]], None],
        now_ms: int,
        until: int,
    ) -> RecoveryReport:
        segments = self.log.segments
        behind = self.dropped.behind
        checkpoint = self._usable_checkpoint(restore, any_one=not behind)
        start = checkpoint.position if checkpoint else self.log.start
        self.dropped.headless = checkpoint is None and (segments[0].base > 0 or behind > 0)
        self.checkpointed = checkpoint.position if checkpoint else 0
        drop_caches(self.files, segments, start)
        scan = LogScan(segments, start, checkpoint.epoch if checkpoint else 0, until=until)
        try:
            records, end = self._replay(scan, apply), scan.whole_end
            self.dropped.require_accounted(segments)
            last = scan.last
            clean = scan.untouched and last is not None and last.is_clean_mark
            # An orderly stop leaves nothing behind its mark: no need to search the rest.
            tail = require_torn(segments, scan) if not (clean or until) else whole_tail(scan, until)
        except OSError as error:
            if error.errno == errno.EIO:
                raise unreadable(scan, error) from error
            raise
        seal_tail(self.files, segments, scan.durable, end, max(tail.end, scan.position))
        topics = {topic_id for topic_id, _ in self._queues} | self._deleted | self._doomed
        remove_unfinished(self.files, self.directory, topics)
        self.log.adopt(segments)
        self.log.last_store_ms = checkpoint.last_store_ms if checkpoint else 0
        self._reach(scan, tail.epoch)
        if not until:
            self.begin_life(now_ms)
        self.dropped.recovered()
        self.queue_files.on_damage = self._distrust
        self._checkpoint_end, self._checkpoint_appended = start, self.log.appended - records
        self._checkpoint_ms = now_ms
        return RecoveryReport(
            start=start,
            end=end,
            records=records,
            torn_bytes=max(tail.end, scan.position) - end,
            clean=clean,
            rebuilt=checkpoint is None,
            passed_over=tuple(self.choice.passed_over),
            epoch=self.log.epoch,
        )

    def replay_up_to(self, end: int, apply: Callable[[Sequence[Record]], None]) -> None:
        """Apply the groups that another wrote into the log's files; raises as `recover`."""
        scan = LogScan(list(self.log.segments), self.log.end, self.log.epoch, until=end)
        try:
            self.log.appended += self._replay(scan, apply)
        except OSError as error:
            raise unusable(self.directory, error) from error
        whole_tail(scan, end)
        self._reach(scan, scan.epoch)

    def begin_life(self, now_ms: int) -> None:
        """Write the log from here on: all of it is on the medium. Raises as `CommitLog.resume`."""
        log = self.log
        log.resume(log.end, log.epoch + 1, log.last_store_ms or now_ms)
        self.cut_offs.begin_life(log.epoch, log.last_store_ms)
        self._checkpoint_ms = min(self._checkpoint_ms, now_ms)  # a standby's was ahead

    def _reach(self, scan: LogScan, epoch: int) -> None:
        """Know the log as far as `scan` went. Raises UnreplayableError: no life can follow it."""
        log = self.log
        require_a_future(scan, epoch)
        log.end = log.written = log.durable = scan.whole_end
        log.epoch = max(epoch, scan.epoch)
        log.last_store_ms = max(log.last_store_ms, scan.store_ms)
        if scan.last is not None:
            log.last_position = scan.last.position

    def _replay(self, scan: LogScan, apply: Callable[[Sequence[Record]], None]) -> int:
        """Apply every whole group; how many records."""
        records = 0
        spill_at = SPILL_RECORDS
        for whole in scan.groups(self.cut_offs.see):
            apply(whole)
            records += len(whole)
            if records >= spill_at:
                spill_at = records + SPILL_RECORDS
                self._spill()
        return records

    def _spill(self) -> None:
        """Move queue entries from memory into their files, to be synced by the next checkpoint."""
        for queue in self._queues.values():
            if queue.dirty_count:
                state, data = queue.capture()
                first = state.next - queue.dirty_count
                self._spilled.update(
                    write_entries(self.queue_files, state.topic_id, state.queue_id, first, data)
                )
                queue.release(state.next)
        self.index.spill()

    def _usable_checkpoint(
        self, restore: Callable[[Mapping[str, bytes]], None], *, any_one: bool
    ) -> Checkpoint | None:
        """Load the newest checkpoint that verifies together with its files; None: none does."""
        choice, directory = self.choice, self.directory / CHECKPOINTS_NAME
        for name, checkpoint in choice.candidates(self.files, directory, self.log, any_one=any_one):
            try:
                sections = checkpoint.sections
                self._queues = restored_queues(self.queue_files, sections)
                self.dropped.restore(sections, checkpoint.position)
                self.cut_offs.restore(sections, checkpoint.epoch, checkpoint.last_store_ms)
                self.index.restore(sections, self.log.start, checkpoint.position)
                restore({n: d for n, d in sections.items() if not n.startswith(STORE_SECTIONS)})
            except (DamagedQueueError, UnusableCheckpointError) as error:
                choice.pass_over(name, str(error))
                self.queue_files.forget()
                self.queue_files.damaged = None
                continue
            except (StoreError, OSError):
                raise
            except Exception as cause:
                choice.distrust(cause)
                raise HalfRestoredError(f"checkpoint {name} says what cannot be") from cause
            return checkpoint
        self._queues = {}
        self.queue_files.forget()
        self.dropped.restore({}, 0)
        self.cut_offs.begin(whole=self.log.segments[0].base == 0)
        self.index.clear()
        return None

    # --- queues --------------------------------------------------------------------------------

    def queue(self, topic_id: int, queue_id: int) -> ConsumeQueue:
        """Return the queue, made empty if there is none yet."""
        key = (topic_id, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = ConsumeQueue(self.queue_files, topic_id, queue_id)
        return queue

    def queue_keys(self) -> list[tuple[int, int]]:
        """List (topic id, queue id) of all queues."""
        return list(self._queues)

    def drop_topic(self, topic_id: int) -> None:
        """Forget a topic's queues; the next checkpoint deletes their files."""
        dropped = [key for key in self._queues if key[0] == topic_id]
        for key in dropped:
            del self._queues[key]
        if dropped:
            self.queue_files.forget(topic_id)
            self._deleted.add(topic_id)

    # --- checkpoints ---------------------------------------------------------------------------

    def checkpoint_due(self, now_ms: int) -> bool:
        """Tell whether time, records or bytes since the last want a checkpoint, and none runs."""
        log, config = self.log, self._config
        records = log.appended - self._checkpoint_appended
        if self._job is not None or not records or self.queue_files.damaged or log.failed:
            return False
        if now_ms - self._checkpoint_ms >= config.checkpoint_interval_ms:
            return True
        return not self._retry_later and (
            records >= config.checkpoint_records
            or log.end - self._checkpoint_end >= config.checkpoint_bytes
            or (bool(self.dropped.waiting) and now_ms - self._checkpoint_ms >= CHECKPOINT_SOON_MS)
        )

    def begin_checkpoint(
        self,
        sections: Mapping[str, bytes],
        now_ms: int,
        *,
        new_run: RunWrite | None = None,
        runs: Sequence[str] = (),
    ) -> CheckpointJob:
        """Capture the state as of the end of the log, batch included, which is written now.

        Then `job.run()`, in a thread if wanted, and `finish_checkpoint(job)` whether it failed or
        not. One at a time. `runs` are the run files that the sections name, `new_run` among them.
        Raises:
            StoreReadOnlyError: the log failed.
            DamagedQueueError: a queue file is damaged; only a restart rebuilds it.
        """
        assert self._job is None, "one checkpoint at a time"
        if self.queue_files.damaged is not None:
            raise DamagedQueueError(self.queue_files.damaged)
        position = self.log.write()
        states, writes = [], []
        for queue in self._queues.values():
            first = queue.next - queue.dirty_count
            state, data = queue.capture()
            states.append(state)
            if data:
                writes.append(QueueWrite(queue, first, state.next, data))
        checkpoint = Checkpoint(
            position,
            self.log.last_position,
            self.log.epoch,
            self.log.last_store_ms,
            self.log.uuid,
            {
                **sections,
                **self.dropped.snapshot(),
                **self.cut_offs.snapshot(),
                **self.index.sections(),
                **queue_sections(states),
            },
        )
        self._job = CheckpointJob(
            files=self.files,
            log=self.log,
            queue_files=self.queue_files,
            directory=self.directory / CHECKPOINTS_NAME,
            checkpoint=checkpoint,
            writes=writes,
            unsynced=frozenset(self._spilled),
            deleted=self._doomed,
            floors={
                key: floor for key, floor in self._floors.items() if self._cleaned.get(key) != floor
            },
            waiting=self.dropped.waiting,
            runs_directory=self.runs_directory,
            new_run=new_run,
            kept_runs=frozenset(runs) | self.named_runs,
            index=self.index.begin_write(),
        )
        self._deleting = frozenset(self._deleted)
        self._next_floors = {
            (state.topic_id, state.queue_id): state.first // FILE_ENTRIES
            for state in states
            if state.first >= FILE_ENTRIES
        }
        self._naming_runs = frozenset(runs)
        self._captured = position, self.log.appended
        self._checkpoint_ms = now_ms
        return self._job

    def finish_checkpoint(self, job: CheckpointJob) -> None:
        """Take note in the loop of what the job achieved."""
        assert job is self._job
        self._job = None
        self.log.synced(job.durable)
        self._retry_later = not job.done
        if not job.done:
            return  # memory keeps the entries; the next checkpoint writes them again
        self.named_runs = self._naming_runs
        self._checkpoint_end, self._checkpoint_appended = self._captured
        for write in job.writes:
            write.queue.release(write.end)
        self._spilled -= job.unsynced
        self._doomed = self._deleting
        self._deleted -= self._deleting
        self._floors = self._next_floors
        self.checkpointed = job.position
        self._cleaned.update(job.floors)
        self.dropped.unlinked(job.unlinked)
        self.index.finish_write(job.index)
        if self.queue_files.damaged is not None:  # found while the job was running
            self._distrust()

    def look_at_disk(self) -> None:
        """Have `disk` know how much is free. Raises OSError."""
        self.disk.look(self.files.free_bytes(self.directory))

    # --- stop ----------------------------------------------------------------------------------

    def close(self, checkpoint: Callable[[], object], now_ms: int, *, drained: bool = True) -> None:
        """Write, sync, `checkpoint`, mark the stop, unlock.

        Args:
            checkpoint: begins, runs and finishes one; without it the next start replays more.
            drained: all that was answered went out, so the mark is CLEAN; see `cut_offs`.

        Raises StoreReadOnlyError, StoreFullError, StoreGoneError, OSError; it is unlocked anyway.
        """
        try:
            with suppress(OSError):  # it cannot be looked at: no proof that it is gone
                require_held(self.files, self.directory, self.lock, self.log.segments)
            self.log.write()
            self.log.synced(self.log.sync())
            if self.queue_files.damaged is None:
                with suppress(OSError):
                    checkpoint()
            self.log.mark(now_ms, clean=drained)
            self.log.write()
            self.log.synced(self.log.sync())
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the directory without writing anything; again is harmless."""
        self.log.close()
        self.queue_files.forget()
        if self._lock_fd is not None:
            self.files.close(self._lock_fd)
            self._lock_fd = None
