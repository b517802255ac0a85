"""The end of the log, cut at every byte in every way: what was whole stays, the rest is gone."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest

from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.records.record import (
    HEADER_BYTES,
    RecordType,
    encode_record,
    record_bytes,
)
from support.log_model import Fact
from support.memory_files import MemoryFiles
from support.store_rig import ROOT, SMALL_SEGMENT_BYTES, StoreRig

FIRST: Final = ROOT / "log" / f"{0:020d}.seg"
SECOND: Final = ROOT / "log" / f"{SMALL_SEGMENT_BYTES:020d}.seg"
NOISE: Final = Random(7).randbytes(SMALL_SEGMENT_BYTES)

Cut = Callable[[MemoryFiles, Path, int], None]


def zero(files: MemoryFiles, path: Path, at: int) -> None:
    data = files.disk.bytes_of(path)
    data[at:] = bytes(len(data) - at)


def garbage(files: MemoryFiles, path: Path, at: int) -> None:
    data = files.disk.bytes_of(path)
    end = min(at + 2000, len(data))
    data[at:end] = NOISE[: end - at]


def shorten(files: MemoryFiles, path: Path, at: int) -> None:
    files.disk.replace(path, bytes(files.disk.bytes_of(path)[:at]))


CUTS: Final = pytest.mark.parametrize("cut", [zero, garbage, shorten])


def first_change(old: MemoryFiles, new: MemoryFiles, path: Path) -> int:
    """Offset of the first byte that a cut really changed: it may have found zeros already."""
    before, after = old.disk.bytes_of(path), new.disk.bytes_of(path)
    same = (at for at, byte in enumerate(before) if at >= len(after) or byte != after[at])
    return next(same, len(before))


def end_of(fact: Fact) -> int:
    return fact[0] + record_bytes(len(fact[1]))


def whole_before(rig: StoreRig, position: int) -> list[Fact]:
    """The groups that lie wholly below a position."""
    kept = [group for group in rig.model.groups if end_of(group[-1]) <= position]
    return [fact for group in kept for fact in group]


def recovered(files: MemoryFiles, rig: StoreRig) -> StoreRig:
    """A restart on `files`, some writing, and another restart."""
    again = StoreRig(files)
    again.model.groups = list(rig.model.groups)
    again.restart()
    facts = list(again.facts)
    again.append(30, 30)
    again.write()
    again.check_queues()
    assert len(files.disk.bytes_of(again.store.log.segments[-1].path)) == SMALL_SEGMENT_BYTES
    files.disk.kill()
    again.restart()
    assert again.facts[: len(facts)] == facts
    assert len(again.facts) == len(facts) + 2
    again.facts = facts
    return again


def one_segment() -> tuple[MemoryFiles, StoreRig]:
    """A synced beginning, then single records and groups that were only written."""
    files = MemoryFiles()
    rig = StoreRig(files)
    rig.start()
    rig.append(40)
    rig.write()
    rig.sync()
    rig.append(0)
    rig.append(33, 1, 62)
    rig.append(200)
    rig.write()
    rig.append(90, 90)
    rig.append(5)
    rig.write()
    files.disk.kill()
    return files, rig


@CUTS
def test_cut_at_every_byte(cut: Cut) -> None:
    files, rig = one_segment()
    for at in range(rig.store.log.durable, rig.store.log.end + 1):
        image = MemoryFiles(files.disk.clone())
        cut(image, FIRST, at)
        position = first_change(files, image, FIRST)
        assert recovered(image, rig).facts == whole_before(rig, position), at


def two_segments(sync: bool) -> tuple[MemoryFiles, StoreRig]:
    """A log that rolled; with `sync` everything is durable and the log says so."""
    files = MemoryFiles()
    rig = StoreRig(files)
    rig.start()
    for _ in range(3):
        rig.append(3900)
        rig.write()
    rig.sync()
    rig.append(900, 900)
    rig.append(1900)  # leaves room for BLANK and little more
    rig.append(500)
    rig.append(70, 80)
    rig.write()
    assert rig.store.log.end > SMALL_SEGMENT_BYTES
    if sync:
        rig.sync()
        rig.store.log.mark(rig.now_ms)
        rig.write()
    files.disk.kill()
    return files, rig


def blank_of(rig: StoreRig) -> int:
    """Where the first segment's BLANK begins."""
    return max(end_of(fact) for fact in rig.facts if fact[0] < SMALL_SEGMENT_BYTES)


@CUTS
def test_cut_in_the_second_segment_and_its_header(cut: Cut) -> None:
    files, rig = two_segments(sync=False)
    for at in range(0, rig.store.log.end - SMALL_SEGMENT_BYTES + 1):
        image = MemoryFiles(files.disk.clone())
        cut(image, SECOND, at)
        position = SMALL_SEGMENT_BYTES + first_change(files, image, SECOND)
        assert recovered(image, rig).facts == whole_before(rig, position), at


@pytest.mark.parametrize("cut", [zero, garbage])
def test_cut_before_the_boundary_takes_the_second_segment_along(cut: Cut) -> None:
    files, rig = two_segments(sync=False)
    blank = blank_of(rig)
    for at in [*range(blank - 1000, blank - 900), *range(blank - 30, blank + HEADER_BYTES)]:
        image = MemoryFiles(files.disk.clone())
        cut(image, FIRST, at)
        position = first_change(files, image, FIRST)
        if position < blank + HEADER_BYTES:
            assert recovered(image, rig).facts == whole_before(rig, position), at


def test_filler_behind_blank_is_harmless() -> None:
    files, rig = two_segments(sync=True)
    garbage(files, FIRST, blank_of(rig) + HEADER_BYTES)
    assert recovered(files, rig).facts == rig.facts


def test_a_short_segment_that_is_not_the_last_is_refused() -> None:
    files, rig = two_segments(sync=False)
    shorten(files, FIRST, 9000)
    refused(files, rig, 9000)


def refused(files: MemoryFiles, rig: StoreRig, position: int) -> None:
    """Damage at `position`: named in the error, and not a byte is touched."""
    before = files.disk.snapshot()
    again = StoreRig(files)
    with pytest.raises(CorruptRecordError) as raised:
        again.start()
    assert raised.value.position == position
    assert files.disk.snapshot() == before
    files.disk.kill()


def durable_starts(rig: StoreRig) -> Iterator[int]:
    yield from (position for position, _ in rig.facts)
    yield blank_of(rig)


@pytest.mark.parametrize("damage", [zero, garbage, "byte"])
def test_damage_to_what_was_durable_is_refused(damage: Cut | str) -> None:
    files, rig = two_segments(sync=True)
    for position in durable_starts(rig):
        for inside in (0, 13, 20, 39):
            image = MemoryFiles(files.disk.clone())
            path = FIRST if position < SMALL_SEGMENT_BYTES else SECOND
            at = (position + inside) % SMALL_SEGMENT_BYTES
            if isinstance(damage, str):
                image.disk.bytes_of(path)[at] ^= 0xFF
            elif position < SMALL_SEGMENT_BYTES:
                damage(image, path, at)  # the MARK in the second segment is the proof
            else:
                image.disk.bytes_of(path)[at : at + 16] = NOISE[:16]
            if image.disk.bytes_of(path) != files.disk.bytes_of(path):
                refused(image, rig, position)


def test_damaged_header_of_the_last_segment_is_refused_when_its_records_prove_it() -> None:
    files, rig = two_segments(sync=True)
    for at in range(64):
        image = MemoryFiles(files.disk.clone())
        image.disk.bytes_of(SECOND)[at] ^= 0x10
        refused(image, rig, SMALL_SEGMENT_BYTES)


def third_epoch() -> tuple[MemoryFiles, StoreRig]:
    files = MemoryFiles()
    rig = StoreRig(files)
    for _ in range(3):
        rig.start()
        rig.append(100)
        rig.write()
        files.disk.kill()
    rig.model.wrote()
    return files, rig


def plant(files: MemoryFiles, position: int, *, epoch: int) -> None:
    """A valid record that claims everything below it durable, as a stale block may hold one."""
    record = encode_record(
        position, RecordType.MESSAGE, [b"stale"], store_ms=1, epoch=epoch, durable=position
    )
    files.disk.bytes_of(FIRST)[position : position + len(record)] = record


def test_a_record_of_an_older_epoch_ends_the_log_and_proves_nothing() -> None:
    for distance in (0, 48, 4000):
        files, rig = third_epoch()
        end = rig.store.log.end
        plant(files, end + distance, epoch=2)
        again = recovered(files, rig)
        assert again.facts == rig.facts
        assert not any(files.disk.bytes_of(FIRST)[again.store.log.end :])


def test_a_record_of_this_epoch_proves_damage() -> None:
    for distance in (48, 4000, 8192):
        files, rig = third_epoch()
        end = rig.store.log.end
        plant(files, end + distance, epoch=3)
        refused(files, rig, end)
