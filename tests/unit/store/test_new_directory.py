"""A broker on a new directory starts without reading the segment it has just made."""

from support.memory_files import MemoryFiles
from support.store_rig import StoreRig, small_config

SEGMENT_BYTES = 32 << 20
FIRST_PIECE_BYTES = 4 << 20


class CountingFiles(MemoryFiles):
    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        self.read_bytes += count
        return super().pread(fd, count, offset)


def test_a_new_log_is_not_searched_for_a_torn_tail() -> None:
    files = CountingFiles()
    rig = StoreRig(files, small_config(SEGMENT_BYTES))
    rig.start()
    assert files.read_bytes <= FIRST_PIECE_BYTES
    rig.append(100)
    rig.write()
    rig.store.abandon()
    files.read_bytes = 0
    rig.restart()
    assert files.read_bytes > SEGMENT_BYTES // 2  # after a crash it must be
