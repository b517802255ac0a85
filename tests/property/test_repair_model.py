"""Any life of the engine, any damage, then repair: it starts, and what can be read is there.

The model says what clients were told. The log is damaged where it was durable, with and without
checkpoints beside it; `repair_directory` gives up what cannot be read, and nothing else: every
message outside the damage reaches a group that reads from the begin, and every one that a group was
not done with reaches that group again. The state is sound: replays agree, counters are a recount.
"""

import json
from random import Random
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from latermq_broker.config.config import Config
from latermq_broker.engine.catalog.topics import TopicAdmin
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.retention.retention import STEP_COST
from latermq_broker.engine.state.model import ReceiveRequest
from latermq_broker.errors import UnsupportedFormatError
from latermq_broker.offline.mending.closing import Ending, close_log, replayed
from latermq_broker.store.log.segment import SEGMENT_MAGIC
from latermq_broker.store.offline.inspect import scan_directory, verify_directory
from latermq_broker.store.offline.repair import Repaired as Done
from latermq_broker.store.offline.repair import plan_repair, repair_directory
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.store import Store
from property.test_engine_model import EngineMachine
from support.engine_bench import DIRECTORY, TOPIC, body, config
from support.engine_facts import facts
from support.engine_rig import do_due
from support.group_model import Where
from support.memory_files import MemoryFiles, lose_checkpoints
from support.recount import recount_lossy

SECTOR_BYTES: Final = 512
END: Final = 1 << 60
NOT_DONE: Final = ("fresh", "leased", "backoff", "ready")
LEASE_MS: Final = 1_000


class Repaired:
    """A machine's log after damage and repair, brought back in every way there is."""

    def __init__(self, config: Config, files: MemoryFiles, now_ms: int) -> None:
        self.config = config
        self.files = files
        self.now_ms = now_ms
        self.lost: list[tuple[int, int]] = []

    def damage(self, engine: Engine, seed: int) -> None:
        """Everything the engine did is durable; then its log is spoiled, and repaired."""
        files = self.files
        log = engine.store.log
        engine.write()
        log.synced(log.sync())
        log.mark(self.now_ms)
        engine.write()
        engine.abandon()
        spoil(files, Random(seed))
        spoiled = self.clone()
        self.lost = [(begin, end) for begin, end in self.lost if end != END]
        try:
            done = repair(files, self.now_ms)
        except UnsupportedFormatError:
            assert not whole_names(files), "the one segment there is, spoiled beyond use"
            self.lost = [(0, END)]
            files.disk.inodes.clear()
            return
        check_copies(spoiled, files, done)
        self.lost += [(loss.position, loss.end) for loss in done.losses]
        # Damage to the last batch looks like a torn write: what was not proved durable is cut off.
        self.lost.append((verify_directory(DIRECTORY, files).end, END))
        self.close_log()

    def close_log(self) -> None:
        """Close the log: from then on strict replays bring what the lenient one brought, however
        often and from whatever there is."""
        mended = self.readable(lenient_start(self.config, self.clone(), self.now_ms))
        close_log(DIRECTORY, self.files, self.config, self.now_ms)
        assert closed(self.files)
        for take_away in (keep_checkpoints, lose_newest_checkpoint, lose_checkpoints):
            files = self.clone()
            take_away(files)
            for start in ("first", "second"):
                engine = strict_start(self.config, files, self.now_ms)
                assert self.readable(engine) == mended, (take_away.__name__, start)
                assert engine._state.uses.facts() == recount_lossy(engine)
                engine.abandon()

    def check_log(self, engine: Engine) -> None:
        """The log alone brings what the engine knows."""
        engine.write()
        self.lost = [(begin, end) for begin, end in self.lost if end != END]
        files = self.clone()
        lose_checkpoints(files)
        again = strict_start(self.config, files, self.now_ms)
        again.retention.step_cost = 0
        do_due(again, self.now_ms)  # the end of a backoff is not written
        assert self.readable(again) == self.readable(engine)
        assert again._state.uses.facts() == recount_lossy(again)
        again.abandon()

    def clone(self) -> MemoryFiles:
        return MemoryFiles(self.files.disk.clone())

    def readable(self, engine: Engine) -> dict[str, object]:
        """All facts, queue entries too; of the index what can be read."""
        known = facts(engine)
        del known["lags"]  # the time of an entry that is lost is not known
        index = known["index"]
        assert isinstance(index, set)
        known["index"] = {(hash, position) for hash, position in index if self.intact(position)}
        known["entries"] = {
            (*key, queue.first + at): entry
            for key in engine.store.queue_keys()
            for queue in [engine.store.queue(*key)]
            for at, entry in enumerate(queue.scan(queue.first, queue.next - queue.first))
        }
        return known

    def intact(self, position: int) -> bool:
        return not any(begin <= position < end for begin, end in self.lost)

    def open(self) -> Engine:
        store = Store.open(DIRECTORY, self.config.store, self.files, self.now_ms)
        engine = Engine.open(store, self.config, self.now_ms)
        assert engine._state.uses.facts() == recount_lossy(engine)
        engine.retention.step_cost = 0  # it goes on where time goes on
        do_due(engine, self.now_ms)
        return engine

    def engine(self) -> Engine:
        """Whichever way the state comes back, it is the same and sound."""
        engine = self.open()
        for how in ("replay", "checkpoint"):
            if how == "checkpoint":
                engine.checkpoints.take(self.now_ms)
            before = facts(engine)
            engine.abandon()
            engine = self.open()
            assert facts(engine) == before, how
        return engine

    def live_on(self, engine: Engine) -> None:
        """Time passes, segments go: nothing trips over what is missing."""
        engine.retention.step_cost = STEP_COST
        for _ in range(20):
            self.now_ms += 2_000
            do_due(engine, self.now_ms)
            engine.checkpoints.take(self.now_ms)
        assert engine._state.uses.facts() == recount_lossy(engine)
        self.check_log(engine)


class RepairMachine(EngineMachine):
    def __init__(self) -> None:
        super().__init__()
        self.seed = 0

    @rule(seed=st.integers(0, 1 << 30))
    def draw_damage(self, seed: int) -> None:
        self.seed = seed

    def teardown(self) -> None:
        self.engine.write()
        whole = records(self.files)
        settings = config(self.retention_ms)
        repaired = Repaired(settings, self.files, self.now_ms)
        repaired.damage(self.engine, self.seed)
        spoiled = {name for name, position in whole if not repaired.intact(position)}
        self.engine = repaired.engine()
        if self.expiring:  # no more is asked than a sound state
            repaired.live_on(self.engine)
        else:
            self.check({name for name, _ in whole} - spoiled)
            repaired.now_ms = self.now_ms
            repaired.check_log(self.engine)
        repaired.damage(self.engine, self.seed + 1)  # a second time, before or behind the first
        engine = repaired.engine()
        repaired.live_on(engine)
        engine.abandon()
        assert self.files.open_count == 0

    def check(self, readable: set[str]) -> None:
        engine = self.engine
        for _ in range(10):  # all that waits or is held becomes receivable
            self.now_ms += 100_000
            do_due(engine, self.now_ms)
        if engine.catalog.topic(TOPIC) is None:
            return  # the record that made it is lost: its messages have another name now
        ended = {half.message.name for half in self.model.halves.values()}
        due = {
            message.name
            for message in self.model.at(Where.WAITS, Where.QUEUE)
            if message.name in readable - ended and message.due_ms <= self.now_ms
        }
        everything = self.drained("new")
        assert due <= set(everything)
        assert set(everything) <= set(self.model.messages)
        for group in self.model.groups.values():
            if group.on_dead is not None or engine.catalog.group(group.name) is None:
                continue  # what keeps the order may stand still
            waiting = {n.name for n in self.model.at(Where.WAITS)}
            undone = {held.message.name for held in group.in_state(*NOT_DONE) if group.wants(held)}
            found = set(self.drained(group.name)) | set(self.dead(group.name))
            assert due & (undone - waiting) <= found

    def drained(self, group: str) -> list[str]:
        names: list[str] = []
        request = ReceiveRequest(
            group=group, topic=TOPIC, client_id="c", count_max=32, invisible_ms=LEASE_MS
        )
        while True:
            end = self.engine.store.log.end
            delivered = self.engine.receive(request, self.now_ms)
            for one in delivered:
                name = one.sys.decode()
                assert one.rest == body(name)
                names.append(name)
            self.engine.write()
            if self.engine.store.log.end == end:  # nothing was given up either
                return names


def lenient_start(config: Config, files: MemoryFiles, now_ms: int) -> Engine:
    """An engine with the state that a repair makes of the log."""
    store = Store.open(DIRECTORY, config.store, files, now_ms)
    engine = Engine(store, config)
    engine._state = replayed(store, config, now_ms)
    engine.topics = TopicAdmin(engine._state, Journal(engine._state))
    store.abandon()
    return engine


def strict_start(config: Config, files: MemoryFiles, now_ms: int) -> Engine:
    store = Store.open(DIRECTORY, config.store, files, now_ms)
    return Engine.open(store, config, now_ms)


def closed(files: MemoryFiles) -> bool:
    ending = Ending()
    for record in scan_directory(DIRECTORY, files):
        ending.look(record)
    return not ending.open


def keep_checkpoints(files: MemoryFiles) -> None:
    """All is there."""


def lose_newest_checkpoint(files: MemoryFiles) -> None:
    """An older one, which knows nothing of the repair, may be left."""
    newest = max(path for path in files.inodes if path.suffix == ".ckpt")
    files.unlink(newest)


def records(files: MemoryFiles) -> list[tuple[str, int]]:
    """(message, position) of every record that holds one's bytes."""
    found: list[tuple[str, int]] = []
    for record in scan_directory(DIRECTORY, files):
        if record.type in (RecordType.MESSAGE, RecordType.DEAD, RecordType.MOVE):
            sys = bytes(record.payload).rsplit(b"m", 1)
            if len(sys) == 2 and sys[1].isdigit():
                found.append((f"m{sys[1].decode()}", record.position))
    return found


def whole_names(files: MemoryFiles) -> list[bytes]:
    """Headers of segments that are still ours."""
    segments = [path for path in files.inodes if path.suffix == ".seg"]
    return [
        head for path in segments if (head := bytes(files.inodes[path].data[:8])) == SEGMENT_MAGIC
    ]


def spoil(files: MemoryFiles, random: Random) -> None:
    """Damage up to three places of the log, and sometimes take the checkpoints away."""
    if random.random() < 0.6:
        lose_checkpoints(files)
    for _ in range(random.randrange(1, 4)):
        segments = sorted(path for path in files.inodes if path.suffix == ".seg")
        path = random.choice(segments)
        data = files.disk.bytes_of(path)
        used = max(len(bytes(data).rstrip(b"\0")), 65)
        match random.randrange(8):
            case 0 if len(segments) > 1 and path != segments[-1]:
                files.unlink(path)
            case 1 if path != segments[-1]:
                files.disk.replace(path, data[: random.randrange(used)])
            case 2:
                data[random.randrange(64)] ^= 1 << random.randrange(8)
            case 3:
                begin = random.randrange(used) // SECTOR_BYTES * SECTOR_BYTES
                data[begin : begin + SECTOR_BYTES] = bytes(len(data[begin : begin + SECTOR_BYTES]))
            case 4:
                begin = random.randrange(used)
                end = min(len(data), begin + random.randrange(1, 5_000))
                data[begin:end] = random.randbytes(end - begin)
            case _:
                data[random.randrange(64, used)] ^= 1 << random.randrange(8)


def repair(files: MemoryFiles, now_ms: int) -> Done:
    before = files.disk.snapshot()
    planned = plan_repair(DIRECTORY, files)
    assert files.disk.snapshot() == before
    repaired = repair_directory(DIRECTORY, files, now_ms, lambda record: {"at": record.position})
    assert files.open_count == 0
    assert repaired.losses[: len(planned.losses)] == planned.losses
    report = verify_directory(DIRECTORY, files)
    assert report.ok
    for path, data in before.items():
        assert path in files.inodes, "nothing is deleted"
        assert len(files.inodes[path].data) >= len(data), "nothing gets shorter"
    assert plan_repair(DIRECTORY, files).losses == ()
    return repaired


def check_copies(spoiled: MemoryFiles, files: MemoryFiles, repaired: Done) -> None:
    """What was overwritten is kept, byte for byte."""
    for path in repaired.reports:
        report = json.loads(bytes(files.disk.bytes_of(path)))
        for copy in report["copies"]:
            segment = DIRECTORY / "log" / copy["from"]
            if segment not in spoiled.inodes:
                continue  # made anew by the first round of this repair
            offset = copy["position"] - int(segment.stem)
            expected = spoiled.disk.bytes_of(segment)[offset : offset + copy["bytes"]]
            assert files.disk.bytes_of(path.parent / copy["file"])[: len(expected)] == expected


TestRepair = RepairMachine.TestCase
TestRepair.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
