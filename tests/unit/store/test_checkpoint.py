"""Checkpoint files: golden bytes, nothing but the exact bytes is believed, the newest two stay."""

import errno
from pathlib import Path
from typing import Final

import pytest
from xxhash import xxh3_64_intdigest

from latermq_broker.errors import UnsupportedFormatError
from latermq_broker.store.checkpoint_job import SYNC_EACH_MAX
from latermq_broker.store.derived.checkpoint import (
    Checkpoint,
    checkpoint_names,
    decode_checkpoint,
    decode_queues,
    encode_checkpoint,
    encode_queues,
    read_checkpoint,
    write_checkpoint,
)
from latermq_broker.store.derived.consume_queue import QueueState
from support.memory_files import MemoryFiles
from support.store_rig import started
from support.torn_files import TornFiles

DIRECTORY: Final = Path("/ckpt")
QUEUE: Final = QueueState(7, 3, 0, 5, (), 0x1122334455667788)
CHECKPOINT: Final = Checkpoint(
    position=0x2000,
    last_position=0x1FD8,
    epoch=9,
    last_store_ms=1_700_000_000_000,
    uuid=bytes(range(16)),
    sections={"engine.a": b"xyz", "store.queues": encode_queues([QUEUE])},
)
GOLDEN: Final = bytes.fromhex(
    "a94c4d51434b500a 0100010002000000 0020000000000000 0900000005000000"
    "000102030405060708090a0b0c0d0e0f 0068e5cf8b010000 4f00000000000000 5f99697036dfad6a"
    "0800 656e67696e652e61 0300000000000000 78797a"
    "0c00 73746f72652e717565756573 2400000000000000"
    "07000000 0300 0000 0000000000000000 0500000000000000 8877665544332211 00000000"
)


def test_golden() -> None:
    assert encode_checkpoint(CHECKPOINT) == GOLDEN
    decoded = decode_checkpoint(GOLDEN, "x")
    assert decoded == CHECKPOINT
    assert decode_queues(decoded.sections["store.queues"]) == [QUEUE]


def test_every_flipped_bit_and_every_cut_is_refused() -> None:
    for bit in range(len(GOLDEN) * 8):
        flipped = bytearray(GOLDEN)
        flipped[bit // 8] ^= 1 << bit % 8
        assert decode_checkpoint(bytes(flipped), "x") is None
    for size in range(len(GOLDEN)):
        assert decode_checkpoint(GOLDEN[:size], "x") is None
    assert decode_checkpoint(GOLDEN + b"\0", "x") is None


def test_a_newer_format_is_not_taken_for_damage() -> None:
    newer = bytearray(GOLDEN)
    newer[8] = 2
    checksum = xxh3_64_intdigest(bytes(newer[72:]), xxh3_64_intdigest(bytes(newer[:64])))
    newer[64:72] = checksum.to_bytes(8, "little")
    with pytest.raises(UnsupportedFormatError, match="has format 2"):
        decode_checkpoint(bytes(newer), "x")


def test_many_queues_and_digests_come_back() -> None:
    states = [
        QueueState(topic, queue, 5, 200_000 + topic, tuple(range(queue)), topic * queue)
        for topic in range(1, 40)
        for queue in range(4)
    ]
    assert decode_queues(encode_queues(states)) == states
    assert decode_queues(b"") == []


def at(position: int) -> Checkpoint:
    return Checkpoint(position, 0, 1, 2, bytes(16), {"a": b"b" * 2000})


def test_the_newest_two_are_kept() -> None:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    assert checkpoint_names(files, Path("/none")) == []
    files.disk.replace(DIRECTORY / "00000000000000000300.tmp", b"left by a crash")
    for position in (100, 200, 300, 300, 1000):
        write_checkpoint(files, DIRECTORY, at(position))
    names = checkpoint_names(files, DIRECTORY)
    assert names == ["00000000000000001000.ckpt", "00000000000000000300.ckpt"]
    assert len(files.inodes) == 2
    assert [read_checkpoint(files, DIRECTORY / name) for name in names] == [at(1000), at(300)]


def test_power_lost_at_any_call_leaves_a_whole_one() -> None:
    for seed in range(20):
        files = TornFiles()
        files.make_directory(DIRECTORY)
        files.sync_directory(Path("/"))
        write_checkpoint(files, DIRECTORY, at(100))
        found: list[set[int]] = []

        def lose_power(
            files: TornFiles = files, found: list[set[int]] = found, seed: int = seed
        ) -> None:
            image = files.power_loss(seed * 100 + len(found))
            names = checkpoint_names(image, DIRECTORY)
            whole = [read_checkpoint(image, DIRECTORY / name) for name in names]
            found.append({checkpoint.position for checkpoint in whole if checkpoint})

        files.after_call = lose_power
        write_checkpoint(files, DIRECTORY, at(200))
        write_checkpoint(files, DIRECTORY, at(300))
        assert len(found) > 8
        assert all(found)
        assert 300 in found[-1]


class CountedSyncs(MemoryFiles):
    """`old`: a system that would not tell of a failure."""

    def __init__(self, *, old: bool) -> None:
        super().__init__()
        self.syncs: list[str] = []
        self._old = old

    def datasync(self, fd: int) -> None:
        self.syncs.append("file")
        super().datasync(fd)

    def sync_directory(self, path: Path, *, everything: bool = False) -> None:
        if everything and self._old:
            raise OSError(errno.ENOSYS, "not here")
        self.syncs.append("all" if everything else "names")
        super().sync_directory(path, everything=everything)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("queues", [SYNC_EACH_MAX, SYNC_EACH_MAX + 1])
def test_many_queue_files_are_synced_at_once(queues: int, old: bool) -> None:
    files = CountedSyncs(old=old)
    rig = started(files)
    for queue_id in range(queues):
        rig.append(10, queue_id=queue_id)
    rig.write()
    files.syncs.clear()
    rig.checkpoint()
    at_once = queues > SYNC_EACH_MAX and not old
    assert files.syncs.count("all") == at_once
    assert (files.syncs.count("file") > queues) != at_once
