"""Every bit of a small data directory flipped: refused, cut off or harmless, never believed."""

from pathlib import Path
from typing import Final

import pytest

from latermq_broker.errors import CorruptRecordError, StoreError, UnsupportedFormatError
from latermq_broker.store.offline.inspect import verify_directory
from latermq_broker.store.records.record import record_bytes
from support.memory_files import MemoryFiles
from support.store_rig import ROOT, StoreRig

SEGMENT: Final = ROOT / "log" / f"{0:020d}.seg"


def small_log(*, mark: bool) -> tuple[MemoryFiles, StoreRig]:
    files = MemoryFiles()
    rig = StoreRig(files)
    rig.start()
    rig.append(3)
    rig.write()
    rig.append(0, 5)
    rig.write()
    rig.sync()
    rig.append(9)
    rig.write()
    if mark:
        rig.sync()
        rig.store.log.mark(rig.now_ms)
        rig.write()
    files.disk.kill()
    return files, rig


def flipped(files: MemoryFiles, path: Path, bit: int) -> MemoryFiles:
    image = MemoryFiles(files.disk.clone())
    image.disk.bytes_of(path)[bit // 8] ^= 1 << bit % 8
    return image


@pytest.mark.parametrize("mark", [False, True])
def test_every_bit_of_the_log(mark: bool) -> None:
    files, rig = small_log(mark=mark)
    last_position, last_payload = rig.facts[-1]
    proved = last_position + record_bytes(len(last_payload)) if mark else last_position
    for bit in range(rig.store.log.end * 8):
        again = StoreRig(flipped(files, SEGMENT, bit))
        try:
            again.start()
        except CorruptRecordError:
            assert bit // 8 < proved, "torn, not damaged"
        except UnsupportedFormatError:
            assert bit // 8 < 8, "only the magic says that"
        else:
            assert bit // 8 >= proved, "damage went unnoticed"
            assert again.facts == rig.facts[: len(again.facts)]
            assert len(again.facts) >= len(rig.facts) - (not mark)


@pytest.mark.parametrize("of_byte", range(8))
def test_every_bit_of_a_checkpoint_falls_back(of_byte: int) -> None:
    """A start for each: eight tests, so that a slow machine has eight times the time for them."""
    files, rig = small_log(mark=True)
    rig = StoreRig(files)
    rig.start()
    rig.append(40)
    rig.checkpoint()
    rig.append(50)
    rig.write()
    files.disk.kill()
    (path,) = (path for path in files.inodes if path.suffix == ".ckpt")
    for bit in range(of_byte, len(files.disk.bytes_of(path)) * 8, 8):
        again = StoreRig(flipped(files, path, bit))
        assert again.start().rebuilt
        assert again.facts == rig.facts
        again.check_queues()


def test_every_bit_of_a_queue_file_is_rebuilt() -> None:
    files, rig = small_log(mark=True)
    rig = StoreRig(files)
    rig.start()
    rig.close()
    (path,) = (path for path in files.inodes if path.suffix == ".cq")
    for bit in range(len(files.disk.bytes_of(path)) * 8):
        image = flipped(files, path, bit)
        assert "does not match" in verify_directory(ROOT, image).checkpoints[0].problem
        again = StoreRig(image)
        assert again.start().rebuilt
        assert again.facts == rig.facts
        again.check_queues()
        if bit % 64 == 0:
            again.close()  # writes the file anew: the next start needs no replay
            assert not again.start().rebuilt
            again.check_queues()


def test_the_lock_file_says_nothing() -> None:
    files, rig = small_log(mark=True)
    files.disk.replace(ROOT / "LOCK", b"anything")
    again = StoreRig(files)
    again.start()
    assert again.facts == rig.facts
    with pytest.raises(StoreError):
        StoreRig(files).start()
