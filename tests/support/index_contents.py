"""All that the message index of an engine holds, for comparisons."""

import struct

from latermq_broker.engine.engine import Engine
from latermq_broker.store.derived.message_index_block import BUCKETS, BlockFile, Buckets


def indexed(engine: Engine) -> set[tuple[int, int]]:
    """(hash, position) of what the log still has; there must be no gap."""
    index = engine.store.index
    assert not index.gaps
    found: set[tuple[int, int]] = set()
    for part in index._parts():
        if isinstance(part, Buckets):
            data = b"".join(part.buckets)
        else:
            assert isinstance(part, BlockFile)
            files = engine.store.files
            fd = part._open(files, index._directory)
            data = files.pread(fd, part.count * 16, 48 + BUCKETS * 8)
            files.close(fd)
        found.update(struct.iter_unpack("<QQ", data))
    return {(hash, position) for hash, position in found if position >= engine.store.log.start}
