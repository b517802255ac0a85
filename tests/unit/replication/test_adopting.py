"""The log of a broker that was alone becomes a replicated one, or all stays as it was."""

import asyncio
import errno
from collections.abc import AsyncGenerator
from typing import Final

import pytest

from golden.make import SCENARIOS, View, view
from latermq_broker.clock import SystemClock
from latermq_broker.deferred import Later
from latermq_broker.errors import (
    CorruptRecordError,
    FencedError,
    LogUnavailableError,
    StoreUnusableError,
)
from latermq_broker.offline import adopting as adopting_module
from latermq_broker.offline.adopting import Adopting, OwnLog, keep_note
from latermq_broker.replication import replica as replica_module
from latermq_broker.replication.batch import cluster_hash, decode_batch, encode_batch, fence_of
from latermq_broker.replication.entry import Entry
from latermq_broker.replication.note import Note, read_note
from latermq_broker.replication.replica import Replica, ReplicaPlace
from latermq_broker.store.directory import LOG_NAME, REPLICA_NAME
from latermq_broker.store.log.segment import segment_name
from support.driven_standby import CLUSTER, DIRECTORY, DrivenStandby
from support.engine_rig import EngineRig, short_store
from support.log_in_memory import LogInMemory
from support.memory_files import MemoryFiles

GROUP_BYTES: Final = 2_048
NEW: Final = Note(CLUSTER, 0)
SEGMENT: Final = EngineRig.DIRECTORY / LOG_NAME / segment_name(0)


class Alone:
    """A broker that was alone, and is stopped."""

    def __init__(self, scenario: str = "") -> None:
        self.rig = EngineRig(store=short_store(64 << 10 if scenario else 16 << 10))
        assert isinstance(self.rig.files, MemoryFiles)
        self.files = self.rig.files
        if scenario:
            SCENARIOS[scenario](self.rig)
        else:
            for number in range(60):
                self.rig.send(f"m-{number}", body=b"x" * 1_000)
        self.stop()

    def stop(self) -> None:
        """Kill it: what it wrote is there, no mark that it ended in order."""
        self.rig.engine.abandon()
        self.files.disk.kill()

    def view(self) -> View:
        """What a start would find, on a copy of the directory."""
        files = MemoryFiles(self.files.disk.clone())
        rig = EngineRig(files=files, store=self.rig.config.store, now_ms=self.rig.now_ms)
        return view(rig.engine, rig.now_ms)

    async def adopt(self, replicated_log: LogInMemory) -> Note:
        """Do what the command does. Nothing is changed if it fails."""
        before, told = self.files.disk.snapshot(), list[int]()
        try:
            own = OwnLog(EngineRig.DIRECTORY, self.files, GROUP_BYTES)
            note = await Adopting(own, NEW, replicated_log, told.append).run()
        finally:
            assert self.files.disk.snapshot() == before
        assert told == sorted(told)
        keep_note(EngineRig.DIRECTORY, self.files, own, note)
        assert read_note(self.files, EngineRig.DIRECTORY) == note
        return note

    async def owned_view(self, replicated_log: LogInMemory) -> View:
        """Start its broker as one of the replicated log; what it finds when it owns that."""
        place = ReplicaPlace(cluster=CLUSTER, shard=0, directory=EngineRig.DIRECTORY)
        replica = Replica(place, replicated_log, self.rig.config, self.files, lambda: 1_000)
        owned = await replica.take_over(SystemClock(), asyncio.Event())
        assert owned is not None
        found = view(owned.engine, self.rig.now_ms)
        owned.disk.close()
        owned.engine.abandon()
        return found

    async def standby_view(self, replicated_log: LogInMemory) -> View:
        """Fill an empty directory from the replicated log; what an engine finds there."""
        files, now_ms = MemoryFiles(), self.rig.now_ms
        driven = DrivenStandby(replicated_log, self.rig.config, files, lambda: now_ms)
        found = view(driven.engine, now_ms)
        for path, data in files.disk.snapshot().items():
            if path.parent == DIRECTORY / LOG_NAME:
                assert self.files.disk.bytes_of(EngineRig.DIRECTORY / LOG_NAME / path.name) == data
        await driven.standby.close()
        return found


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "LOOK_S", 0.0)


@pytest.mark.parametrize("scenario", ["", *SCENARIOS])
async def test_all_is_there_at_its_broker_and_at_one_from_nothing(scenario: str) -> None:
    """Also where retention let the front of the log go: the log carries its own beginning."""
    alone, replicated_log = Alone(scenario), LogInMemory()
    before = alone.view()
    note = await alone.adopt(replicated_log)
    assert note.offset == len(replicated_log.entries)
    assert await alone.standby_view(replicated_log) == before
    assert await alone.owned_view(replicated_log) == before
    fences = [each for each in map(decode_batch, replicated_log.entries, range(999)) if each.fence]
    assert [each.epoch for each in fences] == [1, 2]  # nobody's silence was waited for


@pytest.mark.parametrize("scenario", ["", "transactions", "message-groups"])
async def test_a_standby_may_follow_with_an_engine_all_along(scenario: str) -> None:
    """Each group that it takes ends where records do that belong together."""
    alone, replicated_log, files = Alone(scenario), LogInMemory(), MemoryFiles()
    before, now_ms = alone.view(), alone.rig.now_ms
    await alone.adopt(replicated_log)
    driven = DrivenStandby(replicated_log, alone.rig.config, files, lambda: now_ms)
    for offset, data in enumerate(replicated_log.entries):
        driven.standby.take(Entry(offset, data))
        if driven.standby.cold:
            driven.standby.warm_up()
    assert view(driven.engine, now_ms) == before
    await driven.standby.close()


async def test_the_front_that_was_dropped_is_not_missed() -> None:
    alone, replicated_log = Alone("retention"), LogInMemory()
    note = await alone.adopt(replicated_log)
    base, offset = note.segments[0]
    assert base > 0
    assert offset == 1
    assert decode_batch(replicated_log.entries[offset], offset).position == base


async def test_what_a_crash_tore_off_stays_behind() -> None:
    alone, replicated_log = Alone(), LogInMemory()
    before, end = alone.view(), alone.rig.engine.store.log.end
    last = alone.rig.segments()[-1]
    torn = alone.files.disk.bytes_of(SEGMENT.with_name(segment_name(last)))
    torn[end - last : end - last + 9] = b"half of it"[:9]
    note = await alone.adopt(replicated_log)
    assert note.standing is not None
    assert note.standing.whole_end == end
    assert await alone.owned_view(replicated_log) == before


class Flaky(LogInMemory):
    """Says at one append that it does not know what became of it."""

    def __init__(self, number: int, *, lands: bool) -> None:
        super().__init__()
        self._number = number
        self._lands = lands

    def append(self, batch: bytes) -> Later[int]:
        self._number -= 1
        if self._number:
            return super().append(batch)
        if self._lands:
            self.entries.append(batch)
        later: Later[int] = Later()
        later.fail(LogUnavailableError("no quorum"))
        return later


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("number", [1, 2, 7, 20])
async def test_what_was_interrupted_goes_on(number: int, lands: bool) -> None:
    alone, replicated_log = Alone(), Flaky(number, lands=lands)
    before = alone.view()
    with pytest.raises(LogUnavailableError):
        await alone.adopt(replicated_log)
    shipped = len(replicated_log.entries)
    await alone.adopt(replicated_log)
    batches = [decode_batch(entry, 0) for entry in replicated_log.entries]
    assert batches[shipped].fence
    assert batches[shipped].epoch == 2
    assert len({each.position for each in batches if each.data}) == len(batches) - 2
    assert await alone.standby_view(replicated_log) == before
    assert await alone.owned_view(replicated_log) == before


async def test_its_broker_may_have_served_in_between() -> None:
    alone, replicated_log = Alone(), Flaky(9, lands=True)
    with pytest.raises(LogUnavailableError):
        await alone.adopt(replicated_log)
    alone.rig.engine = alone.rig.reopened()
    alone.rig.send("later", body=b"y" * 1_000)
    alone.stop()
    before = alone.view()
    await alone.adopt(replicated_log)
    assert await alone.owned_view(replicated_log) == before


async def test_what_left_a_replicated_log_goes_back_into_it() -> None:
    alone, replicated_log = Alone(), LogInMemory()
    await alone.adopt(replicated_log)
    del alone.files.inodes[EngineRig.DIRECTORY / REPLICA_NAME]
    alone.rig.engine = alone.rig.reopened()
    alone.rig.send("later", body=b"y" * 1_000)
    alone.stop()
    before = alone.view()
    await alone.adopt(replicated_log)
    assert await alone.standby_view(replicated_log) == before
    assert await alone.owned_view(replicated_log) == before


async def test_once_all_is_there_nothing_is_shipped_again() -> None:
    """Begin again where the note is all that is missing."""
    alone, replicated_log = Alone(), LogInMemory()
    own = OwnLog(EngineRig.DIRECTORY, alone.files)
    await Adopting(own, NEW, replicated_log, lambda _: None).run()
    shipped = len(replicated_log.entries)
    await alone.adopt(replicated_log)
    assert len(replicated_log.entries) == shipped + 1


def alien(kind: str, log: LogInMemory) -> None:
    """Put something into a log that has a whole one."""
    if kind == "no batch":
        log.entries.append(b"somebody else's")
    elif kind == "another shard's":
        log.entries.append(encode_batch(fence_of(cluster_hash(CLUSTER), 1, 1, 1)))
    elif kind == "trimmed":
        log.begin = next(
            offset
            for offset, entry in enumerate(log.entries)
            if (batch := decode_batch(entry, offset)).segment and batch.position
        )
    else:
        last = decode_batch(log.entries[-1], 0)
        end = last.position + len(last.data)
        more = last._replace(sequence=last.sequence + 1, position=end, data=b"more", segment=0)
        log.entries.append(encode_batch(more))


@pytest.mark.parametrize("kind", ["no batch", "another shard's", "trimmed", "its owner's"])
async def test_what_has_something_else_is_refused(kind: str) -> None:
    alone, replicated_log = Alone(), LogInMemory()
    own = OwnLog(EngineRig.DIRECTORY, alone.files)
    await Adopting(own, NEW, replicated_log, lambda _: None).run()
    alien(kind, replicated_log)
    entries = list(replicated_log.entries)
    with pytest.raises(StoreUnusableError, match="not of this log"):
        await alone.adopt(replicated_log)
    assert replicated_log.entries == entries


async def test_the_log_of_another_broker_is_refused() -> None:
    replicated_log = LogInMemory()
    await Alone().adopt(replicated_log)
    with pytest.raises(StoreUnusableError, match="entry 1 is not of this log"):
        await Alone().adopt(replicated_log)


class Raced(LogInMemory):
    """Another broker claims it in the middle."""

    def append(self, batch: bytes) -> Later[int]:
        if len(self.entries) == 3:
            self.entries.append(encode_batch(fence_of(cluster_hash(CLUSTER), 0, 9, 9)))
        return super().append(batch)


async def test_who_is_overtaken_says_so() -> None:
    with pytest.raises(FencedError, match="another broker's fence"):
        await Alone().adopt(Raced())


class Mute(LogInMemory):
    """Its entries were deleted, and it tells how many there were."""

    async def end(self) -> int:
        return 3

    async def tail(self, offset: int) -> AsyncGenerator[Entry, None]:
        await asyncio.Event().wait()
        yield Entry(offset, b"never")


async def test_entries_that_never_come_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adopting_module, "SILENCE_S", 0.01)
    with pytest.raises(LogUnavailableError, match="has 3 entries, and gives none behind 0"):
        await Alone().adopt(Mute())


async def test_a_damaged_log_is_not_spread() -> None:
    alone, replicated_log = Alone("clean-stop"), LogInMemory()
    alone.files.disk.bytes_of(SEGMENT)[500] ^= 1
    with pytest.raises(CorruptRecordError, match="not sound"):
        await alone.adopt(replicated_log)
    assert not replicated_log.entries


async def test_what_the_medium_refuses_since_it_was_examined_is_not_shipped_as_zeros(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    alone, replicated_log = Alone(), LogInMemory()
    own = OwnLog(EngineRig.DIRECTORY, alone.files, GROUP_BYTES)
    monkeypatch.setattr(alone.files, "pread", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        await Adopting(own, NEW, replicated_log, lambda _: None).run()
    assert len(replicated_log.entries) == 1  # the fence


def test_it_is_cut_into_groups_without_a_gap() -> None:
    alone = Alone()
    own = OwnLog(EngineRig.DIRECTORY, alone.files, GROUP_BYTES)
    pieces = list(own.pieces(0))
    ends = [piece.position + len(piece.data) for piece, last in pieces if last]
    assert ends[-1] == own.end
    assert [piece.position for piece, _ in pieces[1:]] == [
        piece.position + len(piece.data) for piece, _ in pieces[:-1]
    ]
    assert [piece.position for piece, _ in pieces if piece.segment] == alone.rig.segments()
    assert max(len(piece.data) for piece, _ in pieces) < 3 * GROUP_BYTES
