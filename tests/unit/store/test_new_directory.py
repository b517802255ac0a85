"""A start reads what was written of a segment, not all that was allocated for it."""

from support.memory_files import MemoryFiles
from support.store_rig import StoreRig, small_config

SEGMENT_BYTES = 32 << 20
READ_BYTES_MAX = 13 << 20  # three pieces and what overlaps


class CountingFiles(MemoryFiles):
    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        self.read_bytes += count
        return super().pread(fd, count, offset)


def test_a_torn_tail_is_searched_for_only_where_something_was_written() -> None:
    files = CountingFiles()
    rig = StoreRig(files, small_config(SEGMENT_BYTES))
    rig.start()
    assert files.read_bytes <= READ_BYTES_MAX
    rig.append(100)
    rig.write()
    rig.store.abandon()
    files.read_bytes = 0
    rig.restart()
    assert files.read_bytes <= READ_BYTES_MAX
