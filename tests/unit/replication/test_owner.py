"""An owner: what it ships first, what it notes, and what it does where its disk is not at work."""

import asyncio
import errno
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from latermq_broker.clock import SystemClock, monotonic_ms
from latermq_broker.config.config import Flush, ServerConfig, StoreConfig
from latermq_broker.deferred import Later
from latermq_broker.engine.state.model import Outgoing
from latermq_broker.errors import ConfigError, StoreReadOnlyError
from latermq_broker.observability.replication_figures import STANDBY, Member, MemberSeen, Others
from latermq_broker.replication import owner as owner_module
from latermq_broker.replication.batch import cluster_hash, encode_batch, fence_of, hand_over_of
from latermq_broker.replication.note import Note, read_note
from latermq_broker.replication.owner import Owner
from latermq_broker.replication.reader import Reader
from latermq_broker.replication.replica import Replica, ReplicaPlace
from latermq_broker.replication.shipper import Shipper
from latermq_broker.replication.tenure import PAUSE_MS, Tenure
from latermq_broker.replication.validity import EMPTY, judge
from latermq_broker.runtime import _own
from latermq_broker.services.standard.health import HealthService
from latermq_broker.store.log.commitment import Commitment
from latermq_broker.store.records.record import HEADER_BYTES
from latermq_broker.transport.lean import LeanServer
from support.driven_standby import CLUSTER, DIRECTORY, DrivenStandby, ShippedLog
from support.engine_rig import EngineRig, short_store
from support.log_in_memory import LogInMemory
from support.machine import patient
from support.memory_files import MemoryFiles
from support.torn_files import TornFiles

FENCE = fence_of(1, 0, 1, 7)
BODY = 1_000
SMALL: Any = {"segment_bytes": 1 << 20, "message_body_bytes_max": 8 << 10}


def tenure() -> Tenure:
    """Make that of an owner who claimed an empty log; its fence is the entry 0."""
    _, standing = judge(EMPTY, FENCE, 0)
    return Tenure(FENCE, Reader(1, 0, standing, 1), 0, -10_000)


def a_log() -> Any:
    return SimpleNamespace(durable=0, written=0, syncs=[], commitment=Commitment(Flush.ASYNC))


@pytest.mark.parametrize(
    ("number", "ends"), [(errno.ENOSPC, False), (errno.EDQUOT, False), (errno.EIO, True)]
)
async def test_a_note_for_which_there_is_no_room_is_written_later(
    monkeypatch: pytest.MonkeyPatch, number: int, ends: bool
) -> None:
    """A disk that is full refuses sends; it does not end an owner. One that fails does."""
    monkeypatch.setattr(owner_module, "NOTE_S", 0.0)
    errors = [OSError(number, "no")]
    failures: list[BaseException] = []
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def keep(_: Note) -> None:
        if errors:
            raise errors.pop()
        loop.call_soon_threadsafe(over.set)

    def failed(error: BaseException) -> None:
        failures.append(error)
        over.set()

    owner = Owner(LogInMemory(), tenure(), a_log(), lambda: 0, Note("shop", 0), keep)
    owner.on_failure = failed
    owner._kept = 1  # it has served
    owner._begin_task(owner._keep_notes())
    await over.wait()
    assert bool(failures) is ends
    await owner.stop()


async def test_an_owner_that_cannot_open_its_port_again_goes() -> None:
    """It would beat for ever otherwise, and nobody would serve."""
    failures: list[BaseException] = []
    said: list[bool] = []

    def on_serving(now: bool) -> None:
        said.append(now)
        if now:
            raise ConfigError("server.listen", "cannot listen: Address already in use")

    owner = Owner(LogInMemory(), tenure(), a_log(), lambda: 10, Note("shop", 0), lambda _: None)
    owner.on_serving, owner.on_failure = on_serving, failures.append
    owner._settle()
    assert [str(error) for error in failures] == [
        "server.listen: cannot listen: Address already in use"
    ]
    assert said == [True, False]
    owner._settle()
    assert said == [True, False]
    await owner.stop()


class SlowLog(LogInMemory):
    """Says what became of an append when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.entries.append(encode_batch(FENCE))
        self.unsaid: list[tuple[Later[int], int]] = []

    def append(self, batch: bytes) -> Later[int]:
        self.entries.append(batch)
        later: Later[int] = Later()
        self.unsaid.append((later, len(self.entries) - 1))
        return later

    def say(self) -> None:
        """Say what became of all that there is until nothing is left to be said."""
        while self.unsaid:
            later, offset = self.unsaid.pop(0)
            later.give(offset)


@pytest.mark.parametrize("flush", Flush)
async def test_a_commit_waits_for_a_quorum_and_for_the_disk_if_the_flush_policy_says_so(
    flush: Flush,
) -> None:
    rig = EngineRig(store=StoreConfig(**SMALL, flush=flush))
    log, replicated_log = rig.engine.store.log, SlowLog()
    owner = Owner(replicated_log, tenure(), log, lambda: 0, Note("shop", 0), lambda _: None)
    owner.begin()
    assert log.commitment.position == 0 < log.durable
    replicated_log.say()
    rig.send("one")
    end = log.written
    assert log.durable < end
    if flush.acknowledges_synced:
        log.synced(log.sync())
        assert log.commitment.position < log.durable == end, "no quorum has it"
        replicated_log.say()
    else:
        replicated_log.say()
        assert log.durable < log.commitment.position == end
        log.synced(log.sync())
    assert log.commitment.position == log.durable == end
    rig.send("two")
    replicated_log.say()
    assert (log.commitment.position == log.written) is not flush.acknowledges_synced
    log.synced(log.sync())
    assert log.commitment.position == log.written
    await owner.stop()
    rig.engine.abandon()


async def test_a_pause_is_noticed_before_anybody_is_answered() -> None:
    """What the disk had before it, and is told now, was perhaps decided by an owner before."""
    rig = EngineRig(store=StoreConfig(**SMALL, flush=Flush.SYNC))
    log, replicated_log = rig.engine.store.log, SlowLog()
    now_ms = 0
    owner = Owner(replicated_log, tenure(), log, lambda: now_ms, Note("shop", 0), lambda _: None)
    owner.begin()
    replicated_log.say()
    seen: list[int] = []
    owner.on_pause = lambda: seen.append(log.commitment.position)
    rig.send("one")
    replicated_log.say()
    position = log.sync()
    now_ms += PAUSE_MS - 1
    log.synced(position)
    assert not seen
    assert log.commitment.position == position
    rig.send("two")
    replicated_log.say()
    now_ms += PAUSE_MS + 1
    log.synced(log.sync())
    assert seen == [position]
    assert log.commitment.position == position < log.durable, "nothing proves that it is the owner"
    owner._settle()
    replicated_log.say()
    assert log.commitment.position == log.durable == log.written
    await owner.stop()
    rig.engine.abandon()


@pytest.mark.parametrize("seed", range(20))
async def test_a_directory_that_lost_what_was_not_synced_gets_it_from_the_replicated_log(
    seed: int,
) -> None:
    """An answer promises what a quorum has, so the own disk need not have it."""
    files = TornFiles()
    replicated_log = LogInMemory()
    place = ReplicaPlace(cluster="shop", shard=0, directory=DIRECTORY)
    replica = Replica(place, replicated_log, EngineRig().config, files, monotonic_ms)
    owned = await replica.take_over(SystemClock(), asyncio.Event())
    assert owned is not None
    owned.owner.begin()
    log = owned.engine.store.log
    owned.engine.ensure_topic("t", monotonic_ms())
    owned.engine.send([Outgoing("t", b"kept", b"", "m-1")], monotonic_ms())
    owned.engine.write()
    async with asyncio.timeout(patient(30)):
        while log.commitment.position < log.written:
            await asyncio.sleep(0.001)
    assert log.durable < log.commitment.position
    end = log.written
    await owned.owner.stop()
    await owned.disk.join()
    owned.disk.close()
    owned.engine.abandon()
    files = files.power_loss(seed)
    again = Replica(place, replicated_log, EngineRig().config, files, monotonic_ms)
    owned = await again.take_over(SystemClock(), asyncio.Event())
    assert owned is not None
    assert owned.engine.store.log.end > end
    [found], _ = owned.engine.messages.by_id("m-1")
    assert found.rest == b"kept"
    owned.disk.close()
    owned.engine.abandon()


def fill_but(rig: EngineRig, left: int) -> None:
    """Send until exactly `left` bytes of the log's segment are free."""
    log = rig.engine.store.log

    def room_after(body: int) -> int:
        rig.engine.send([Outgoing("t", bytes(body), b"", "m")], rig.now_ms)
        return log.segments[-1].end - log.end

    before = room_after(0)  # its topic is made first
    room = room_after(0)
    empty = before - room
    while room > left:
        spare = room - left - empty
        room = room_after(BODY if spare > BODY + empty else spare)
    assert room == left
    rig.engine.write()


@pytest.mark.parametrize("left", range(HEADER_BYTES, 2 * HEADER_BYTES, 8))
async def test_the_engine_gets_the_end_of_a_segment_that_a_new_life_has_closed(left: int) -> None:
    """The first record of a life closes the segment if it does not fit: what closes it was written
    before the owner was there, and whoever reads the replicated log has to find it."""
    rig = EngineRig(store=short_store())
    shipped = ShippedLog(rig.engine.store.log)
    fill_but(rig, left)
    successor = DrivenStandby(shipped, rig.config, MemoryFiles(), lambda: rig.now_ms)
    assert successor.engine.store.log.end == rig.engine.store.log.end
    replicated_log = LogInMemory()
    replicated_log.entries = shipped.entries
    fence = fence_of(cluster_hash(CLUSTER), 0, 2, 2)
    replicated_log.entries.append(encode_batch(fence))
    successor.catch_up()
    await successor.standby.begin_life()
    successor.engine.write()  # the record of its life
    copy = successor.standby.copy
    log = copy.store.log
    assert len(log.segments) == 2
    owned = Tenure(fence, copy.reader, 0, -10_000)
    owner = Owner(replicated_log, owned, log, lambda: 0, copy.note, lambda _: None)
    owner.begin()
    async with asyncio.timeout(patient(30)):
        while owned.valid_end < log.end:
            await asyncio.sleep(0)
    await owner.stop()
    anew = DrivenStandby(shipped, rig.config, MemoryFiles(), lambda: rig.now_ms)
    assert anew.engine.store.log.end == log.end
    assert anew.engine.store.log.epoch == log.epoch


async def owning(files: MemoryFiles) -> Owner:
    """Return an owner at work, whose log has a segment and a mark."""
    place = ReplicaPlace(cluster="shop", shard=0, directory=DIRECTORY)
    replica = Replica(place, LogInMemory(), EngineRig().config, files, monotonic_ms)
    owned = await replica.take_over(SystemClock(), asyncio.Event())
    assert owned is not None
    owned[0].begin()
    return owned[0]


def noted(files: MemoryFiles) -> int:
    """Return up to where the directory is known to have the log."""
    note = read_note(files, DIRECTORY)
    assert note is not None
    return 0 if note.standing is None else note.standing.whole_end


async def synced(owner: Owner) -> int:
    """Have the disk, and a quorum, have what was written."""
    log = owner._log
    log.write()
    position = await asyncio.to_thread(log.sync)
    await asyncio.to_thread(owner.until_kept, position)
    log.synced(position)
    return log.durable


async def test_much_that_became_valid_is_noted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start reads again what is not noted."""
    monkeypatch.setattr(owner_module, "NOTE_S", 3_600.0)
    monkeypatch.setattr(owner_module, "NOTE_BYTES", 1)
    files = MemoryFiles()
    owner = await owning(files)
    assert noted(files) == 0
    end = await synced(owner)
    async with asyncio.timeout(patient(30)):
        while noted(files) < end:
            await asyncio.sleep(0.001)
    await owner.stop()


async def test_who_ends_in_order_notes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_module, "NOTE_S", 3_600.0)
    files = MemoryFiles()
    owner = await owning(files)
    end = await synced(owner)
    assert noted(files) == 0
    await owner.stop()
    assert noted(files) == end > 0


async def test_nothing_is_trimmed_that_a_start_on_its_directory_would_read() -> None:
    """Else it would be refused as too old, and an operator would have to empty the directory."""
    replicated_log, owned = LogInMemory(), tenure()
    log = a_log()
    log.end, log.segments = owned.valid_end, [SimpleNamespace(base=4_096)]
    owned.reader.segments |= {0: 1, 4_096: 7}
    owner = Owner(replicated_log, owned, log, lambda: 0, Note("shop", 0, 7), lambda _: None)
    for _ in range(3):
        owner._trim()
        await asyncio.sleep(0)
    assert replicated_log.begin == 0
    assert owner._notable.is_set()
    owner._note = Note("shop", 0, 8)
    owner._trim()
    await asyncio.sleep(0)
    assert replicated_log.begin == 7
    assert owned.reader.segments == {4_096: 7}
    await owner.stop()


@pytest.mark.parametrize("fate", ["kept", "failed", "never kept"])
async def test_an_owner_that_stops_hands_over_what_all_have(fate: str) -> None:
    fence = fence_of(1, 0, 1, 7)
    replicated_log = LogInMemory()
    replicated_log.entries.append(encode_batch(fence))
    _, standing = judge(EMPTY, fence, 0)
    tenure = Tenure(fence, Reader(1, 0, standing, 1), 5_000, 0)
    log = a_log()
    owner = Owner(replicated_log, tenure, log, lambda: 5_000, Note("shop", 0), lambda _: None)
    synced: Later[None] = Later()
    if fate == "kept":
        synced.give(None)
    elif fate == "failed":
        synced.fail(StoreReadOnlyError("no"))
    await owner.hand_over(0 if fate == "never kept" else 60_000, synced)
    await owner.stop()
    last = hand_over_of(fence) if fate == "kept" else fence
    assert replicated_log.entries[-1] == encode_batch(last)
    with pytest.raises(StoreReadOnlyError):
        owner.until_kept(1)


@pytest.mark.parametrize("by", [None, "nobody", "a fence", "an owner"])
async def test_who_handed_over_reads_on_until_another_serves(
    monkeypatch: pytest.MonkeyPatch, by: str | None
) -> None:
    """It is to let its clients go when they find somebody, and soon if they do not.

    Args:
        by: whom the log is taken over by; None: nobody stands by.
    """
    monkeypatch.setattr(owner_module, "OPENS_S", patient(30))
    monkeypatch.setattr(owner_module, "NEXT_S", patient(30) if by == "an owner" else 0.1)
    shop = cluster_hash("shop")
    fence, after = fence_of(shop, 0, 1, 7), fence_of(shop, 0, 3, 9)
    replicated_log = LogInMemory()
    replicated_log.entries.append(encode_batch(fence))
    _, standing = judge(EMPTY, fence, 0)
    owned = Tenure(fence, Reader(shop, 0, standing, 1), 5_000, 0)
    owner = Owner(replicated_log, owned, a_log(), lambda: 5_000, Note("shop", 0), lambda _: None)
    failures: list[BaseException] = []
    owner.on_failure = failures.append
    door = socket.socket()
    door.bind(("127.0.0.1", 0))
    if by is not None:
        address = f"127.0.0.1:{door.getsockname()[1]}"
        standby = MemberSeen("b:/b", Member(address, 0, STANDBY, 1, 0, 0, "1"), 0, silent=False)
        owner.others = lambda: Others((standby,), heard=True)
    synced: Later[None] = Later()
    synced.give(None)
    handing = asyncio.create_task(owner.hand_over(60_000, synced))
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    async with asyncio.timeout(patient(30)):
        while len(replicated_log.entries) < 2:
            await asyncio.sleep(0)
        stale = Shipper(fence, 0).ship(0, beat=True)  # of the old owner: it counts no more
        replicated_log.entries += [each.entry for each in stale]
        if by in ("a fence", "an owner"):
            replicated_log.entries.append(encode_batch(after))
        if by == "an owner":
            await asyncio.sleep(0.1)
            assert not handing.done()
            replicated_log.entries += [each.entry for each in Shipper(after, 0).ship(0, beat=True)]
            await asyncio.sleep(0.1)
            assert not handing.done(), "its port is closed yet"
            door.listen()
        await handing
    door.close()
    waited = loop.time() - began_s >= 0.1
    assert waited is (by is not None)
    assert failures == []
    await owner.stop()


class AbortedConnection:
    """Stands for one that had a reply on its way."""

    def abort(self) -> None: ...


@pytest.mark.parametrize("how", ["paused", "unproven"])
async def test_what_was_leased_is_not_renewed_for_a_reply_that_was_cut_off(how: str) -> None:
    """Its client lives, but need not have got it: another does, a minute later."""
    rig = EngineRig()
    server = LeanServer({}, ServerConfig(listen="127.0.0.1:0"))
    owner: Any = SimpleNamespace()
    services: Any = SimpleNamespace(shards=None, health=HealthService((), rig.engine.conditions))
    owner.begin = lambda: owner.on_serving(True)
    failed: list[BaseException] = []
    await _own(owner, rig.engine.store, services, server, failed.append, asyncio.Event())
    rig.send("one")
    assert rig.receive(push=True, lease_ms=60_000)
    connection: Any = AbortedConnection()
    server._connections.add(connection)
    if how == "paused":
        owner.on_pause()
    else:
        owner.on_serving(False)
    for _ in range(6):
        assert rig.engine.client_seen("client-1", rig.now_ms)
        assert rig.receive(client="other") == []
        rig.advance(10_000)
    rig.advance(60_000)
    assert [again.attempt for again in rig.receive(client="other")] == [2]
