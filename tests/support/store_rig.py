"""A smallest engine on a real store: facts into the log, entries into queues, a model beside.

The state it keeps in checkpoints is the list of all facts, so that every restart can compare
checkpoint and replay with what was ever appended.
"""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from latermq_broker.config.config import Flush, StoreConfig
from latermq_broker.store.checkpoint_job import CheckpointJob, RunWrite
from latermq_broker.store.derived.consume_queue import Entry
from latermq_broker.store.files import Files, OpenMode
from latermq_broker.store.records.record import Record, RecordType
from latermq_broker.store.recovery import RecoveryReport
from latermq_broker.store.store import Store
from support.log_model import Fact, LogModel
from support.memory_files import MemoryFiles

ROOT: Final = Path("/data/broker")
SMALL_SEGMENT_BYTES: Final = 16 << 10
FACT: Final = struct.Struct("<IHQ")  # topic, queue, number; filler follows
DROPPED: Final = 0xFFFF  # as the queue: the topic was deleted
SECTION_FACT: Final = struct.Struct("<QI")
FIRST_POSITION: Final = 104  # of a new log: header of 64 bytes, the MARK of its first start
START_MS: Final = 1_700_000_000_000


def small_config(
    segment_bytes: int = SMALL_SEGMENT_BYTES, flush: Flush = Flush.ASYNC
) -> StoreConfig:
    """A configuration with segments smaller than any user may ask for."""
    config = StoreConfig(flush=flush)
    object.__setattr__(config, "segment_bytes", segment_bytes)
    return config


class StoreRig:
    """See the module. `restart` after a crash; it checks everything against the model."""

    def __init__(self, files: Files, config: StoreConfig | None = None) -> None:
        self.files = files
        self.config = config or small_config()
        self.model = LogModel()
        self.facts: list[Fact] = []
        self.queued: dict[tuple[int, int], list[int]] = {}  # queue: positions
        self.now_ms = START_MS
        self.number = 0
        self.report: RecoveryReport | None = None
        self.store: Store

    def start(self) -> RecoveryReport:
        """Open the directory and recover."""
        self.facts = []
        self.queued = {}
        self.store = Store.open(ROOT, self.config, self.files, self.now_ms)
        try:
            self.report = self.store.recover(self._restore, self._apply, self.now_ms)
        except BaseException:
            self.store.abandon()
            raise
        return self.report

    def restart(self, *, power_lost: bool = False) -> RecoveryReport:
        """`start` after a crash; what came back must be what the model allows."""
        report = self.start()
        self.model.check(self.facts, power_lost=power_lost)
        self.model.truncate(self.facts)
        self.check_queues()
        return report

    def check_queues(self) -> None:
        """Every queue holds its facts in log order, and each entry leads to its record."""
        for (topic_id, queue_id), positions in self.queued.items():
            queue = self.store.queue(topic_id, queue_id)
            entries = queue.scan(queue.first, len(positions) + 1)
            assert [entry.position for entry in entries] == positions
            for entry in entries[-3:]:
                record = self.store.log.read(entry.position)
                assert (record.position, bytes(record.payload)) in self.facts[-500:]

    def append(self, *sizes: int, topic_id: int = 1, queue_id: int = 0) -> None:
        """One atomic group of facts with so many bytes of filler each."""
        log = self.store.log
        payloads = []
        for size in sizes:
            self.number += 1
            filler = bytes((self.number * 7 + index) % 251 for index in range(size))
            payloads.append(FACT.pack(topic_id, queue_id, self.number) + filler)
        if len(payloads) > 1:
            log.reserve([len(payload) for payload in payloads])
        group: list[Fact] = []
        for index, payload in enumerate(payloads):
            more = index < len(payloads) - 1
            self.now_ms += 1
            position = log.append(RecordType.MESSAGE, (payload,), self.now_ms, more=more)
            group.append((position, payload))
        self.model.appended(group)
        for fact in group:
            self._take(*fact)

    def drop(self, topic_id: int) -> None:
        """Delete a topic; its number must not be used again."""
        self.number += 1
        payload = FACT.pack(topic_id, DROPPED, self.number)
        position = self.store.log.append(RecordType.CONFIG, (payload,), self.now_ms)
        self.model.appended([(position, payload)])
        self._take(position, payload)

    def write(self) -> None:
        self.store.log.write()
        self.model.wrote()

    def sync(self) -> None:
        log = self.store.log
        position = log.sync()
        log.synced(position)
        self.model.synced(position)

    def begin_checkpoint(self) -> CheckpointJob:
        """A checkpoint with a run of its own, as the engine writes for its far timers."""
        name = f"{self.store.log.end:020d}.run"
        run = RunWrite(name, iter((name.encode(), b" says so")))
        sections = self.sections() | {"rig.run": name.encode()}
        return self.store.begin_checkpoint(sections, self.now_ms, new_run=run, runs=[name])

    def checkpoint(self) -> None:
        job = self.begin_checkpoint()
        self.model.wrote()
        try:
            job.run()
        finally:
            self.store.finish_checkpoint(job)
            self.model.synced(job.durable)

    def close(self) -> None:
        self.store.close(self.checkpoint, self.now_ms)
        self.model.wrote()
        self.model.synced(self.store.log.durable)

    def sections(self) -> dict[str, bytes]:
        parts = []
        for position, payload in self.facts:
            parts += [SECTION_FACT.pack(position, len(payload)), payload]
        return {"rig.facts": b"".join(parts)}

    def _restore(self, sections: Mapping[str, bytes]) -> None:
        name = sections["rig.run"].decode()
        fd = self.files.open(self.store.runs_directory / name, OpenMode.READ)
        assert self.files.pread(fd, 100, 0).decode() == f"{name} says so"
        self.files.close(fd)
        data = sections["rig.facts"]
        at = 0
        while at < len(data):
            position, size = SECTION_FACT.unpack_from(data, at)
            at += SECTION_FACT.size
            payload = data[at : at + size]
            at += size
            self.facts.append((position, payload))
            self._note(position, payload)

    def _apply(self, records: Sequence[Record]) -> None:
        assert not records[-1].more
        for record in records:
            assert record.type in (RecordType.MESSAGE, RecordType.CONFIG)
            assert self.store.log.read(record.position).payload == record.payload
            self._take(record.position, bytes(record.payload))

    def _take(self, position: int, payload: bytes) -> None:
        topic_id, queue_id, number = FACT.unpack_from(payload)
        self.number = max(self.number, number)
        self.facts.append((position, payload))
        self._note(position, payload)
        if queue_id == DROPPED:
            self.store.drop_topic(topic_id)
        else:
            entry = Entry(position, len(payload), 0, 1, number, self.now_ms)
            self.store.queue(topic_id, queue_id).append(entry)

    def _note(self, position: int, payload: bytes) -> None:
        topic_id, queue_id, _ = FACT.unpack_from(payload)
        if queue_id == DROPPED:
            self.queued = {key: found for key, found in self.queued.items() if key[0] != topic_id}
        else:
            self.queued.setdefault((topic_id, queue_id), []).append(position)


def started(files: MemoryFiles) -> StoreRig:
    rig = StoreRig(files)
    rig.start()
    return rig


def used(files: MemoryFiles, *, rounds: int = 8) -> StoreRig:
    """A directory with two segments, two checkpoints and records behind them, not closed."""
    rig = started(files)
    for number in range(rounds):
        rig.append(2000, topic_id=1 + number % 2)
        rig.append(100, 200)
        rig.write()
        if number in (3, rounds - 2):
            rig.checkpoint()
    rig.sync()
    files.disk.kill()
    return rig


def names(files: MemoryFiles, directory: Path) -> list[str]:
    return sorted(path.name for path in files.inodes if path.parent == directory)
