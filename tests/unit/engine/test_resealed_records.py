"""Records and checkpoints that match their checksums and say what no broker wrote.

A start refuses such a record by its position and type, `log verify` says the same, and a repair
gives it up and says so. A checkpoint of the kind costs a longer replay.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from hostile.cases import repair, serve, verify
from latermq_broker.engine.state.model import Failure
from latermq_broker.errors import CorruptRecordError, UnreplayableError
from latermq_broker.offline.trial_start import first_unreplayable
from latermq_broker.store.derived.checkpoint import decode_checkpoint, encode_checkpoint
from latermq_broker.store.offline.inspect import verify_directory
from latermq_broker.store.records.kinds import check_content
from latermq_broker.store.records.record import Record, RecordType
from latermq_broker.store.recovery import EPOCH_MAX
from support.engine_rig import EngineRig, short_store
from support.memory_files import MemoryDisk, MemoryFiles
from support.resealing import fitted, put_record, records_in

DIRECTORY: Final = EngineRig.DIRECTORY
FIRST: Final = DIRECTORY / "log" / "00000000000000000000.seg"


@pytest.fixture
def disk() -> MemoryDisk:
    """A life with messages, leases and an attempt, cut off; no checkpoint."""
    rig = EngineRig(store=short_store(64 << 10))
    for number in range(6):
        rig.send(f"m{number}", body=b"body")
    first, second, *_ = rig.receive(count=4)
    rig.ack(first)
    failure = Failure("ValueError", "bad", "hash", "stack")
    rig.engine.change_invisible("billing", second.handle, 1_000, rig.now_ms, failure=failure)
    log = rig.engine.store.log
    rig.engine.write()
    log.synced(log.sync())
    rig.engine.write()
    rig.engine.abandon()
    files: Any = rig.files
    return files.disk.clone()  # type: ignore[no-any-return]


def record_of(disk: MemoryDisk, kind: RecordType) -> Record:
    return next(each for each in records_in(disk.bytes_of(FIRST), 0) if each.type is kind)


def reseal(disk: MemoryDisk, kind: RecordType, change: Callable[[bytes], bytes]) -> Record:
    record = record_of(disk, kind)
    payload = bytes(record.payload)
    put_record(disk.bytes_of(FIRST), 0, record, fitted(change(payload), len(payload)))
    return record


LIES: dict[str, tuple[RecordType, Callable[[bytes], bytes]]] = {
    "a topic without a name": (
        RecordType.CONFIG, lambda payload: payload.replace(b'"name"', b'"nome"')
    ),
    "a topic that is no JSON": (RecordType.CONFIG, lambda payload: payload[:8] + b"\xff" * 200),
    "a lease of a group that is not there": (
        RecordType.LEASE_FRESH, lambda payload: payload[:24] + b"\x99" * 4 + payload[28:]
    ),
    "a lease from an id without an end": (
        RecordType.LEASE_FRESH, lambda payload: b"\xff" * 8 + payload[8:]
    ),
    "a lease of messages that never were": (
        RecordType.LEASE_FRESH, lambda payload: payload[:8] + b"\xff" * 8 + payload[16:]
    ),
    "an acknowledgement of nothing": (RecordType.ACK, lambda _: b"\x77" * 8),
    "an attempt that ended in no way we know": (
        RecordType.ATTEMPT, lambda payload: payload[:30] + b"\xee" + payload[31:]
    ),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_it_is_refused_by_its_place_and_repaired(
    disk: MemoryDisk, lie: tuple[RecordType, Callable[[bytes], bytes]]
) -> None:
    kind, change = lie
    sound = serve(disk.clone())
    record = reseal(disk, kind, change)
    before = disk.snapshot()
    with pytest.raises(CorruptRecordError) as refusal:
        serve(disk.clone())
    said = verify(disk.clone())
    assert said.startswith(("damaged: ", "refused: "))
    if isinstance(refusal.value, UnreplayableError) and refusal.value.position == record.position:
        assert kind.name in str(refusal.value)
        assert f"this {kind.name} record" in said
    assert disk.snapshot() == before
    assert repair(disk).startswith("repaired")
    assert serve(disk) == sound


def test_what_is_given_up_is_kept_in_lost(disk: MemoryDisk) -> None:
    record = reseal(disk, RecordType.ACK, lambda _: b"\x77" * 8)
    repair(disk)
    copies = [path for path in disk.inodes if path.parent.name == "lost"]
    assert f"{record.position:020d}.json" in {path.name for path in copies}
    report = json.loads(bytes(disk.bytes_of(next(p for p in copies if p.suffix == ".json"))))
    assert "ACK" in report["reason"]


@pytest.mark.parametrize("fields", [{"epoch": EPOCH_MAX}, {"store_ms": 1 << 62}])
def test_nobody_goes_on_behind_the_end_of_time(disk: MemoryDisk, fields: dict[str, Any]) -> None:
    last = records_in(disk.bytes_of(FIRST), 0)[-1]
    put_record(disk.bytes_of(FIRST), 0, last._replace(**fields), bytes(last.payload))
    with pytest.raises(UnreplayableError, match="no broker can go on"):
        serve(disk.clone())
    assert verify(disk).startswith("refused: ")


def with_checkpoint(change: Callable[[dict[str, bytes]], object]) -> MemoryDisk:
    """A directory whose one checkpoint has other sections."""
    rig = EngineRig(store=short_store(64 << 10))
    rig.send("m", body=b"body")
    rig.checkpoint()
    rig.engine.write()
    rig.engine.abandon()
    files: Any = rig.files
    disk: MemoryDisk = files.disk.clone()
    for path in [path for path in disk.inodes if path.suffix == ".ckpt"]:
        checkpoint = decode_checkpoint(bytes(disk.bytes_of(path)), path.name)
        assert checkpoint is not None
        sections = dict(checkpoint.sections)
        change(sections)
        disk.replace(path, encode_checkpoint(replace(checkpoint, sections=sections)))
    return disk


SECTIONS: dict[str, Callable[[dict[str, bytes]], object]] = {
    "a catalogue that is no JSON": lambda of: of.update(catalog=b"{"),
    "counters of other types": lambda of: of.update(counters=b'{"next_delivery_id": "7"}'),
    "no queues": lambda of: of.pop("store.queues"),
    "queues cut short": lambda of: of.update({"store.queues": b"123"}),
    "a log that begins behind it": lambda of: of.update({"store.start": b"\xff" * 8}),
    "leases of no layout": lambda of: of.update(leases=b"\x02"),
    "an index of no shape": lambda of: of.update({"store.index": b"[]"}),
    "a run outside of its folder": lambda of: of.update(runs=b'["../../LOCK"]'),
}


@pytest.mark.parametrize("change", SECTIONS.values(), ids=SECTIONS)
def test_a_checkpoint_that_lies_costs_a_replay(
    change: Callable[[dict[str, bytes]], object],
) -> None:
    disk = with_checkpoint(change)
    assert serve(disk.clone()) == "served"
    assert verify(disk) == "sound"


def test_a_checkpoint_that_the_log_contradicts_costs_a_replay() -> None:
    """It says that nothing was ever sent; what follows it in the log speaks of a topic."""
    rig = EngineRig(store=short_store(64 << 10))
    rig.checkpoint()
    rig.send("m", body=b"body")
    rig.engine.write()
    rig.engine.abandon()
    files: Any = rig.files
    disk: MemoryDisk = files.disk.clone()
    [path] = [path for path in disk.inodes if path.suffix == ".ckpt"]
    checkpoint = decode_checkpoint(bytes(disk.bytes_of(path)), path.name)
    assert checkpoint is not None
    catalog = json.loads(checkpoint.sections["catalog"])
    catalog["topics"], catalog["groups"] = [], []
    changed = dict(checkpoint.sections) | {"catalog": json.dumps(catalog).encode()}
    disk.replace(path, encode_checkpoint(replace(checkpoint, sections=changed)))
    assert serve(disk.clone()) == "served"
    assert first_unreplayable(DIRECTORY, _files(disk), 1 << 41) is None


def test_a_record_is_checked_without_a_state(disk: MemoryDisk) -> None:
    """As where a backup is verified, of which no broker is started."""
    record = reseal(disk, RecordType.CONFIG, lambda payload: payload[:8] + b"\xff" * 200)
    [damage] = verify_directory(DIRECTORY, _files(disk), check_content).damages
    assert damage.position == record.position
    assert "CONFIG" in damage.reason


def test_a_wrong_record_is_replayed_alone_to_be_named(disk: MemoryDisk) -> None:
    """Messages are applied many at once; the refusal names the very one."""
    records = records_in(disk.bytes_of(FIRST), 0)
    third = [each for each in records if each.type is RecordType.MESSAGE][2]
    payload = bytes(third.payload)
    put_record(disk.bytes_of(FIRST), 0, third, b"\xff" * 4 + payload[4:])
    refusal = first_unreplayable(DIRECTORY, _files(disk), 1 << 41)
    assert refusal is None or refusal.position == third.position


def _files(disk: MemoryDisk) -> MemoryFiles:
    return MemoryFiles(disk)


def test_a_trial_starts_on_a_sound_directory(disk: MemoryDisk) -> None:
    assert first_unreplayable(DIRECTORY, _files(disk), 1 << 41, whole=True) is None
