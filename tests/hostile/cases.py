"""Directories and backups that somebody changed, by seed; and everything that reads them.

A case is a copy in memory of a directory that a broker wrote, with some of its bytes changed, as by
a disk, or changed and sealed again, as by somebody who knows the checksums. Then it is verified,
dumped, served and repaired. What a reader raises must be one of the errors that it says.
"""

import json
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from latermq_broker.config.config import Config
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import DeadFilter, Failure, PendingFilter, ReceiveRequest
from latermq_broker.errors import LaterMQError, StoreError
from latermq_broker.offline.mending.closing import Ending
from latermq_broker.offline.mending.refusals import closed_log, planned
from latermq_broker.offline.trial_start import first_unreplayable
from latermq_broker.store.log.segment import SEGMENT_HEADER_BYTES
from latermq_broker.store.offline.inspect import examine_directory, scan_directory
from latermq_broker.store.offline.repair import repair_directory
from latermq_broker.store.records.kind import Names
from latermq_broker.store.records.kinds import check_content, text_of
from latermq_broker.store.records.record import Record, RecordType
from latermq_broker.store.store import Store
from latermq_cli.backup.manifest import MANIFEST_BYTES_MAX, decode_manifest, digest_of
from latermq_cli.terminal.failures import CommandError
from support.engine_rig import EngineRig, short_store
from support.memory_files import MemoryDisk, MemoryFiles
from support.resealing import (
    change_checkpoint,
    changed,
    fitted,
    put_record,
    records_in,
    seal_rest,
    seal_segment,
)

DIRECTORY: Final = EngineRig.DIRECTORY
GOLDEN: Final = Path(__file__).parents[1] / "golden"
HOUR_MS: Final = 3_600_000
DISK_BYTES: Final = 8 << 20
ROUNDS: Final = 3  # of work on a directory that starts
A_SECTION: Final = "a section"
NOW_MS: Final = 1_800_000_000_000


class Outcome(NamedTuple):
    """What a case came to: which change was made, and what its readers said."""

    change: str
    said: tuple[str, ...]


def directories() -> list[MemoryDisk]:
    """What is changed: directories of every kind that there is a golden one of."""
    disks: list[MemoryDisk] = []
    for archive in sorted(GOLDEN.glob("*.tar.xz")):
        disk = MemoryDisk(DISK_BYTES, entropy=Random(1))
        with tarfile.open(archive, "r:xz") as members:
            for member in members:
                file = members.extractfile(member)
                assert file is not None
                if member.name.endswith(".json"):
                    continue
                path = DIRECTORY / member.name
                disk.directories.update((path.parent, *path.parents))
                disk.replace(path, file.read())
        disks.append(disk)
    return disks


def config() -> Config:
    store = short_store(64 << 10)
    object.__setattr__(store, "allow_network_files", True)
    return Config(store=store)


class NothingToChange(Exception):
    """No file or record of the kind is there, any more."""


# --- what is changed -----------------------------------------------------------------------------


def change_bytes(disk: MemoryDisk, chance: Random) -> str:
    """Any file, as a disk would change it."""
    path = chance.choice(sorted(disk.inodes))
    data = bytes(disk.bytes_of(path))
    disk.replace(path, changed(data.rstrip(b"\0"), chance).ljust(len(data), b"\0"))
    return f"bytes of {path.name}"


def change_record(disk: MemoryDisk, chance: Random) -> str:
    """A record's payload, sealed."""
    path, base, record = _any_record(disk, chance)
    payload = bytes(record.payload)
    put_record(disk.bytes_of(path), base, record, fitted(changed(payload, chance), len(payload)))
    return f"payload of {record.type.name} at {record.position}"


def change_head(disk: MemoryDisk, chance: Random) -> str:
    """A record's type, flags, time or epoch, sealed."""
    path, base, record = _any_record(disk, chance)
    fields: dict[str, Any] = chance.choice(
        [
            {"type": chance.choice([kind for kind in RecordType if kind is not RecordType.BLANK])},
            {"flags": chance.randrange(8)},
            {"store_ms": chance.choice((0, 1, 1 << 62, (1 << 64) - 1))},
            {"epoch": chance.choice((0, 1, (1 << 32) - 1))},
            {"durable": chance.choice((0, record.position // 2 & -8))},
        ]
    )
    put_record(disk.bytes_of(path), base, record._replace(**fields), bytes(record.payload))
    return f"{fields} of {record.type.name} at {record.position}"


def swap_records(disk: MemoryDisk, chance: Random) -> str:
    """What one record says, in the place of another of its length."""
    path, base, record = _any_record(disk, chance)
    records = [
        each for each in records_in(disk.bytes_of(path), base) if each.length == record.length
    ]
    other = chance.choice(records)
    put_record(disk.bytes_of(path), base, record._replace(type=other.type), bytes(other.payload))
    return f"{record.type.name} at {record.position} says what {other.type.name} says"


def drop_record(disk: MemoryDisk, chance: Random) -> str:
    """A record given up, and nothing said behind it."""
    path, base, record = _any_record(disk, chance)
    lost = record._replace(type=RecordType.LOST)
    put_record(disk.bytes_of(path), base, lost, bytes(len(record.payload)))
    return f"{record.type.name} at {record.position} is LOST"


def change_segment(disk: MemoryDisk, chance: Random) -> str:
    path = _one_of(disk, chance, ".seg")
    data = disk.bytes_of(path)
    data[:SEGMENT_HEADER_BYTES] = fitted(
        changed(bytes(data[:SEGMENT_HEADER_BYTES]), chance), SEGMENT_HEADER_BYTES
    )
    seal_segment(data)
    return f"header of {path.name}"


def change_a_checkpoint(disk: MemoryDisk, chance: Random) -> str:
    path = _one_of(disk, chance, ".ckpt")
    disk.replace(path, change_checkpoint(bytes(disk.bytes_of(path)), chance))
    return f"{A_SECTION} of {path.name}"


def change_run(disk: MemoryDisk, chance: Random) -> str:
    path = _one_of(disk, chance, ".run", ".idx", ".cq")
    data = bytearray(changed(bytes(disk.bytes_of(path)), chance))
    if path.suffix == ".run" and len(data) > 8:
        seal_rest(data)
    disk.replace(path, data)
    return f"{path.name}, sealed"


def rename_file(disk: MemoryDisk, chance: Random) -> str:
    """A file that is gone, or is called otherwise."""
    path = chance.choice(sorted(disk.inodes))
    inode = disk.inodes.pop(path)
    name = chance.choice(
        ("x", "\x1b[2J.seg", "00000000000000000001.seg", "99999999999999999999.ckpt")
    )
    if chance.random() < 0.5:
        disk.inodes[path.with_name(name)] = inode
    return f"{path.name} is {name!r}, or gone"


def one_change(disk: MemoryDisk, chance: Random) -> str:
    try:
        return chance.choice(CHANGES)(disk, chance)
    except NothingToChange:
        return change_bytes(disk, chance)


CHANGES: Final[tuple[Callable[[MemoryDisk, Random], str], ...]] = (
    change_bytes, change_record, change_record, change_record, change_head, swap_records,
    drop_record, change_segment, change_a_checkpoint, change_a_checkpoint, change_run, rename_file,
)  # fmt: skip


def _one_of(disk: MemoryDisk, chance: Random, *suffixes: str) -> Path:
    paths = sorted(path for path in disk.inodes if path.suffix in suffixes)
    if not paths:
        raise NothingToChange
    return chance.choice(paths)


def _any_record(disk: MemoryDisk, chance: Random) -> tuple[Path, int, Record]:
    path = _one_of(disk, chance, ".seg")
    base = int(path.stem) if path.stem.isdecimal() else 0
    records = records_in(disk.bytes_of(path), base)
    if not records:
        raise NothingToChange
    return path, base, chance.choice(records)


# --- who reads it --------------------------------------------------------------------------------


def verify(disk: MemoryDisk, lies: bool = False) -> str:
    del lies
    files, ending = MemoryFiles(disk), Ending()

    def look(record: Record) -> None:
        check_content(record)
        ending.look(record)

    report = examine_directory(DIRECTORY, files, look).report
    if not report.ok:
        return f"damaged: {report.damages[0].reason}"
    if ending.open:
        return "not closed"
    refusal = first_unreplayable(DIRECTORY, files, NOW_MS)
    return "sound" if refusal is None else f"refused: {refusal}"


def dump(disk: MemoryDisk, lies: bool = False) -> str:
    del lies
    names, wrong = Names(), 0
    for record in scan_directory(DIRECTORY, MemoryFiles(disk)):
        try:
            json.dumps(text_of(record, names))
        except StoreError:
            wrong += 1
    return f"{wrong} records of no sense"


def serve(disk: MemoryDisk, lies: bool = False) -> str:
    """Start on it and work: receive, settle, look at everything, close.

    Args:
        lies: somebody sealed a checkpoint. What it says is believed where it can be; a broker that
            fails at its work by that says so and ends with 3.
    """
    files, setting, now_ms = MemoryFiles(disk), config(), NOW_MS
    store = Store.open(DIRECTORY, setting.store, files, now_ms)
    try:
        engine = Engine.open(store, setting, now_ms)
        try:
            try:
                work(engine, now_ms)
            except LaterMQError:
                raise
            except Exception:
                if not lies:
                    raise
                return "failed at work, from a checkpoint that lies"
            engine.close(now_ms + HOUR_MS)
        finally:
            engine.abandon()
    finally:
        store.abandon()
    return "served"


def work(engine: Engine, now_ms: int) -> None:
    for step in range(ROUNDS):
        now_ms += HOUR_MS // 4
        engine.tick(now_ms)
        engine.write()
        for topic in engine.catalog.topics():
            for group in engine.catalog.groups():
                request = ReceiveRequest(group.name, topic.name, "reader", 16, 60_000)
                try:
                    for message in engine.receive(request, now_ms):
                        if step:
                            engine.ack(group.name, message.handle, now_ms)
                        else:
                            failure = Failure("E", "text", "hash", "stack")
                            engine.change_invisible(
                                group.name, message.handle, 1_000, now_ms, failure=failure
                            )
                except LaterMQError:
                    continue
        engine.write()
    engine.pending.page(PendingFilter(), 1_000, scan_max=1_000)
    for group in engine.catalog.groups():
        engine.dead.scan(group.name, DeadFilter(), count_max=1_000)
    engine.overview()


def repair(disk: MemoryDisk, lies: bool = False) -> str:
    """Give up what is wrong; afterwards a broker starts on the rest."""
    files, ending = MemoryFiles(disk), Ending()

    def look(record: Record) -> None:
        check_content(record)
        ending.look(record)

    done, refused = planned(DIRECTORY, files, look, NOW_MS)
    if not done.losses and not ending.open:
        return "nothing to repair"
    if done.losses:
        repair_directory(DIRECTORY, files, NOW_MS, lambda _: {}, check_content, refused)
    _, passed_over = closed_log(DIRECTORY, files, config(), NOW_MS, lambda _: {})
    disk.kill()
    serve(disk, lies)
    return f"repaired, {len(passed_over)} passed over"


READERS: Final[tuple[Callable[[MemoryDisk, bool], str], ...]] = (verify, dump, serve, repair)


def run_directory(disks: list[MemoryDisk], seed: int) -> Outcome:
    """One case. Raises what no reader should."""
    chance = Random(seed)
    disk = chance.choice(disks).clone()
    change = "; ".join(one_change(disk, chance) for _ in range(chance.choice((1, 1, 1, 2))))
    said: list[str] = []
    for reader in READERS:
        copy = disk.clone()
        copy.entropy = Random(seed)
        try:
            said.append(f"{reader.__name__}: {reader(copy, A_SECTION in change)}")
        except StoreError as error:
            said.append(f"{reader.__name__}: {type(error).__name__}: {error}")
        except Exception as error:
            error.add_note(f"seed {seed}: {reader.__name__} of {change}")
            raise
    return Outcome(change, tuple(said))


# --- manifests -----------------------------------------------------------------------------------


def manifest_fields(chance: Random) -> dict[str, Any]:
    size = 64 << 10
    count = chance.randrange(1, 5)
    segments = [[at * size, size] for at in range(count)]
    return {
        "name": "20261129T000000Z", "taken_at_ms": 1, "version": "1", "broker": "b",
        "log_uuid": "0" * 32, "position": count * size, "newest": [0, 7], "repairs": 0,
        "shard_mark": "", "segments": segments, "format": 1,
        "pieces": [[at * size, size, "f" * 32] for at in range(count)],
    }  # fmt: skip


def run_manifest(seed: int) -> Outcome:
    """A manifest of another content, sealed, or of other bytes."""
    chance = Random(seed)
    fields = manifest_fields(chance)
    inner = json.dumps(fields, sort_keys=True).encode()
    if chance.random() < 0.8:
        inner = changed(inner, chance)
        with suppress(ValueError, RecursionError):
            inner = json.dumps(json.loads(inner), sort_keys=True).encode()
    data = b'{"backup": ' + inner + b', "digest": "' + digest_of(inner).encode() + b'"}'
    if chance.random() < 0.2:
        data = changed(data, chance)
    assert len(data) < MANIFEST_BYTES_MAX
    try:
        manifest = decode_manifest(data, "x")
    except CommandError as error:
        return Outcome("a manifest", (error.message,))
    return Outcome("a manifest", (f"of {len(manifest.pieces)} pieces",))
