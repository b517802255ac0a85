"""A directory's log beside the replicated one: what differs is told, and put back from there."""

import asyncio
from pathlib import Path

import pytest

from latermq_broker.config.config import StoreConfig
from latermq_broker.errors import StoreUnusableError
from latermq_broker.replication.batch import encode_batch
from latermq_broker.replication.entry import Entry
from latermq_broker.replication.local_copy import LocalCopy
from latermq_broker.replication.note import Note
from latermq_broker.replication.verifying import Difference, Verified, Verifying
from latermq_broker.store.directory import LOG_NAME
from latermq_broker.store.files import OpenMode, RealFiles
from latermq_broker.store.log.segment import segment_name
from support.log_in_memory import LogInMemory
from support.two_segments import SIZE, two_segments


def shop_log(begin: int = 0) -> LogInMemory:
    """Return a log of two segments, of which what is before `begin` was trimmed."""
    batches = two_segments()
    batches.append(
        batches[-1]._replace(sequence=4, position=SIZE + 64, data=bytes(range(99)), segment=0)
    )
    replicated_log = LogInMemory()
    replicated_log.entries = [encode_batch(batch) for batch in batches]
    replicated_log.begin = begin
    return replicated_log


@pytest.fixture
def note(tmp_path: Path) -> Note:
    """What says of `tmp_path` that it has all of it."""
    copy = LocalCopy(tmp_path, StoreConfig(), RealFiles(), Note("shop", 3))
    copy.cut()
    for offset, entry in enumerate(shop_log().entries):
        copy.write(copy.reader.read(Entry(offset, entry))[1])
    asyncio.run(copy.keep())
    copy.close()
    return copy.note


def spoil(directory: Path, position: int) -> None:
    base = position // SIZE * SIZE
    path = directory / LOG_NAME / segment_name(base)
    content = bytearray(path.read_bytes())
    content[position - base] ^= 1
    path.write_bytes(content)


async def verified(
    directory: Path,
    note: Note,
    replicated_log: LogInMemory | None = None,
    *,
    repair: bool = False,
) -> Verified:
    verifying = Verifying(directory, RealFiles(), note, repair=repair)
    return await verifying.run(replicated_log or shop_log())


async def test_a_sound_copy_is_as_the_log_has_it(tmp_path: Path, note: Note) -> None:
    assert await verified(tmp_path, note) == Verified(0, SIZE + 163, 5, [])


@pytest.mark.parametrize(
    "position", [0, 20, 64, 66, 69, SIZE, SIZE + 64, SIZE + 162], ids=lambda at: f"byte {at}"
)
async def test_each_byte_comes_back(tmp_path: Path, note: Note, position: int) -> None:
    log = tmp_path / LOG_NAME
    before = {path.name: path.read_bytes() for path in log.iterdir()}
    spoil(tmp_path, position)
    found = [Difference(position, position + 1)]
    assert (await verified(tmp_path, note)).differences == found
    assert (await verified(tmp_path, note, repair=True)).differences == found
    assert {path.name: path.read_bytes() for path in log.iterdir()} == before
    assert (await verified(tmp_path, note)).differences == []


async def test_a_file_that_was_cut_short_comes_back(tmp_path: Path, note: Note) -> None:
    path = tmp_path / LOG_NAME / segment_name(SIZE)
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    (found,) = (await verified(tmp_path, note, repair=True)).differences
    assert found == Difference(SIZE + 100, SIZE + 163)
    assert path.read_bytes() == whole[:163]


async def test_what_the_log_has_dropped_is_not_compared(tmp_path: Path, note: Note) -> None:
    spoil(tmp_path, 66)
    assert await verified(tmp_path, note, shop_log(begin=3)) == Verified(SIZE, SIZE + 163, 2, [])


async def test_what_the_directory_has_dropped_is_not_compared(tmp_path: Path, note: Note) -> None:
    (tmp_path / LOG_NAME / segment_name(0)).unlink()
    assert await verified(tmp_path, note) == Verified(SIZE, SIZE + 163, 5, [])


class Vanishing(RealFiles):
    """The first segment goes when it is to be read."""

    def open(self, path: Path, mode: OpenMode) -> int:
        if path.name == segment_name(0):
            path.unlink()
        return super().open(path, mode)


async def test_what_the_directory_drops_meanwhile_is_not_compared(
    tmp_path: Path, note: Note
) -> None:
    done = await Verifying(tmp_path, Vanishing(), note, repair=False).run(shop_log())
    assert done.differences == []


async def test_what_is_written_behind_the_note_is_not_looked_at(tmp_path: Path, note: Note) -> None:
    assert note.standing is not None
    older = note._replace(standing=note.standing._replace(whole_end=70))
    spoil(tmp_path, SIZE + 64)
    assert await verified(tmp_path, older, repair=True) == Verified(0, 70, 3, [])


async def test_a_log_that_lost_entries_is_told_of(tmp_path: Path, note: Note) -> None:
    replicated_log = shop_log()
    del replicated_log.entries[4:]
    with pytest.raises(
        StoreUnusableError, match=f"up to {SIZE + 163}, the replicated log up to 8256"
    ):
        await verified(tmp_path, note, replicated_log)
    replicated_log.entries.clear()
    with pytest.raises(StoreUnusableError, match="the replicated log up to 0"):
        await verified(tmp_path, note, replicated_log)


async def test_a_missing_segment_is_told_of(tmp_path: Path, note: Note) -> None:
    (tmp_path / LOG_NAME / segment_name(SIZE)).unlink()
    with pytest.raises(StoreUnusableError, match="is missing: empty the directory"):
        await verified(tmp_path, note, repair=True)
    (tmp_path / LOG_NAME / segment_name(0)).unlink()
    with pytest.raises(StoreUnusableError, match="holds no segment"):
        await verified(tmp_path, note)
