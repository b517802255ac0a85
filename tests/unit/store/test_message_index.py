"""The message index on simulated files: what it finds, keeps, misses, and fills again."""

from pathlib import Path

import pytest

from latermq_broker.errors import IndexRebuildingError
from latermq_broker.store.derived import message_index
from latermq_broker.store.derived.message_index import MessageIndex
from latermq_broker.store.derived.message_index_block import (
    BUCKETS,
    BlockFile,
    Buckets,
    DamagedBlockError,
    key_hash,
    write_block,
)
from support.memory_files import MemoryFiles

DIRECTORY = Path("/index")
END = 1 << 63
BLOCK_ENTRIES = 10
GOLDEN_HEAD = "a94c4d514944580a010001000002000002000000000000004000000000000000e803000000000000"


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    return files


def an_index(files: MemoryFiles, start: int = 0) -> MessageIndex:
    return MessageIndex(files, DIRECTORY, lambda: start, BLOCK_ENTRIES)


def found(index: MessageIndex, hash: int, below: int = END) -> list[int]:
    positions: list[int] = []
    while below:
        more, below = index.find(hash, below, count_max=3, blocks_max=2)
        positions += more
    return positions


def checkpoint(index: MessageIndex) -> dict[str, bytes]:
    sections = index.sections()
    write = index.begin_write()
    write.run()
    write.delete_others()
    index.finish_write(write)
    return sections


def look_at_all(block: BlockFile, files: MemoryFiles) -> None:
    block.verify(files, DIRECTORY)
    for hash in (7, 500):
        block.find(files, DIRECTORY, hash, END, 9)


def test_a_block_finds_what_it_was_given_newest_first_before_and_after_writing(
    files: MemoryFiles,
) -> None:
    buckets = Buckets()
    hashes = [7, 7 + BUCKETS, 7, (1 << 64) - 1, 7]
    for index, hash in enumerate(hashes):
        buckets.add(64 + 8 * index, hash, 0, ())
    block = write_block(files, DIRECTORY, buckets)
    for find in (
        buckets.find,
        lambda hash, below, count: block.find(files, DIRECTORY, hash, below, count),
    ):
        assert find(7, END, 9) == [96, 80, 64]
        assert find(7, 96, 1) == [80]
        assert find(7, 64, 9) == []
        assert find(7 + BUCKETS, END, 9) == [72]
        assert find((1 << 64) - 1, END, 9) == [88]
        assert find(8, END, 9) == []


def test_bytes_that_look_like_the_hash_across_two_entries_are_not_found() -> None:
    buckets = Buckets()
    wanted = int.from_bytes(bytes([1, 0, 0, 0, 9, 9, 9, 9]), "little")
    # A position's upper half and the next hash's lower half read as the wanted hash would.
    buckets.add(int.from_bytes(bytes([0, 0, 0, 0, 1, 0, 0, 0]), "little"), 1, 0, ())
    buckets.add(1 << 40, int.from_bytes(bytes([9, 9, 9, 9, 0, 0, 0, 0]), "little"), 0, ())
    joined = bytes(buckets.buckets[1]) + bytes(buckets.buckets[9 + (9 << 8) & (BUCKETS - 1)])
    assert wanted.to_bytes(8, "little") in joined
    buckets.buckets[1] = bytearray(joined)
    assert buckets.find(wanted, END, 9) == []


def test_the_head_of_a_block_is_golden_and_every_flipped_byte_is_noticed(
    files: MemoryFiles,
) -> None:
    buckets = Buckets()
    buckets.add(64, 7, 0, ())
    buckets.add(1000, 500, 0, ())
    block = write_block(files, DIRECTORY, buckets)
    path = DIRECTORY / block.name
    data = bytes(files.inodes[path].data)
    assert data[:40].hex() == GOLDEN_HEAD
    assert len(data) == 40 + BUCKETS * 8 + 8 + 2 * 16
    for at in [*range(0, 48), *range(40 + BUCKETS * 8, len(data))]:
        files.inodes[path].data[at] ^= 1
        with pytest.raises(DamagedBlockError):
            look_at_all(block, files)
        files.inodes[path].data[at] ^= 1
    files.inodes[path].data.extend(b"\0")
    with pytest.raises(DamagedBlockError):
        block.verify(files, DIRECTORY)
    with pytest.raises(DamagedBlockError):
        BlockFile(9, 9, 1).verify(files, DIRECTORY)


def test_positions_come_newest_first_over_blocks_written_and_not(files: MemoryFiles) -> None:
    index = an_index(files)
    for n in range(100):
        index.add(64 + 8 * n, 1000 + n, 1, (n % 3,))
        if n == 60:
            checkpoint(index)
    expected = [64 + 8 * n for n in range(99, -1, -1) if n % 3 == 2]
    assert found(index, key_hash(1, 2)) == expected
    assert found(index, key_hash(2, 2)) == []
    assert found(index, key_hash(1, 2), below=expected[5]) == expected[6:]
    assert found(index, 1042) == [64 + 8 * 42]
    restored = an_index(files)
    restored.restore(checkpoint(index), 0, 10_000)
    assert found(restored, key_hash(1, 2)) == expected
    restored.add(2000, 1, 1, (2,))
    assert found(restored, key_hash(1, 2)) == [2000, *expected]


def test_a_run_is_indexed_as_its_messages(files: MemoryFiles) -> None:
    one, other = an_index(files), an_index(files)
    position = 0
    for count, keys in ((3, ()), (6, ()), (4, (8, 9)), (25, ()), (1, (7,))):
        positions = list(range(position + 1, position + 1 + count))
        hashes = [at * 1_000_003 for at in positions]
        for at, hash in zip(positions, hashes, strict=True):
            one.add(at, hash, 5, keys)
        other.add_run(positions, hashes, 5, [keys] * count)
        position = positions[-1]
        assert one.sections() == other.sections()


def test_a_message_with_many_keys_is_not_divided(files: MemoryFiles) -> None:
    index = an_index(files)
    index.add(64, 1, 1, tuple(range(50)))
    index.add(128, 2, 1, (3,))
    assert found(index, key_hash(1, 49)) == [64]
    assert found(index, key_hash(1, 3)) == [128, 64]


def test_dropped_log_is_not_found_and_its_blocks_go(files: MemoryFiles) -> None:
    start = 0
    index = MessageIndex(files, DIRECTORY, lambda: start, BLOCK_ENTRIES)
    for n in range(50):
        index.add(64 + 8 * n, 5, 1, ())
    checkpoint(index)
    names = files.list_directory(DIRECTORY)
    assert len(names) == 4
    start = 64 + 8 * 25
    assert found(index, 5) == [64 + 8 * n for n in range(49, 24, -1)]
    index.drop_before(start)
    checkpoint(index)
    assert files.list_directory(DIRECTORY) == names  # the checkpoint before still names them
    checkpoint(index)
    assert files.list_directory(DIRECTORY) == names[2:]


@pytest.mark.parametrize("harm", ["cut", "gone", "flipped"])
def test_a_damaged_block_is_a_gap_until_it_is_filled(files: MemoryFiles, harm: str) -> None:
    index = an_index(files)
    for n in range(50):
        index.add(64 + 8 * n, 5, 1, ())
    sections = checkpoint(index)
    path = DIRECTORY / files.list_directory(DIRECTORY)[1]
    if harm == "cut":
        del files.inodes[path].data[-1:]
    elif harm == "gone":
        files.unlink(path)
    else:
        files.inodes[path].data[-1] ^= 1
    index = an_index(files)
    index.restore(sections, 0, 10_000)
    first, below = index.find(5, END, count_max=30, blocks_max=9)
    assert first == [64 + 8 * n for n in range(49, 19, -1)]
    with pytest.raises(IndexRebuildingError):
        index.find(5, below, count_max=9, blocks_max=9)
    (gap,) = index.gaps
    assert (gap.low, gap.high) == (64 + 80, 64 + 152)
    again = an_index(files)
    again.restore(checkpoint(index), 0, 10_000)
    (gap,) = again.gaps
    for n in range(10, 20):
        again.fill(gap, 64 + 8 * n, 5, 1, ())
    again.filled(gap)
    sections = checkpoint(again)
    whole = an_index(files)
    whole.restore(sections, 0, 10_000)
    for one in (again, whole):
        assert found(one, 5) == [64 + 8 * n for n in range(49, -1, -1)]


def test_a_checkpoint_without_an_index_leaves_all_before_it_to_be_filled(
    files: MemoryFiles,
) -> None:
    index = an_index(files)
    index.restore({}, 64, 10_000)
    assert [(gap.low, gap.high) for gap in index.gaps] == [(64, 9_999)]
    index.restore({}, 64, 64)
    assert not index.gaps


def test_what_cannot_be_written_stays_bounded_and_is_filled_again(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_index, "UNWRITTEN_MAX", 3)
    index = an_index(files)
    for n in range(100):
        index.add(64 + 8 * n, 5, 1, ())
    assert index.wants_room
    assert [gap.low for gap in index.gaps] == [64 + 80 * n for n in range(6)]
    checkpoint(index)
    assert not index.wants_room
