"""Messages that are read together are those that are read alone."""

import struct

import pytest

from latermq_broker.store.log.read_messages import GAP_BYTES, STRETCH_BYTES, read_messages
from latermq_broker.store.records.message_records import (
    NO_PRIORITY,
    MessagePayload,
    encode_message,
    message_slices,
)
from latermq_broker.store.records.record import HEADER_BYTES, RecordType
from latermq_broker.store.store import Store
from support.memory_files import MemoryFiles
from support.store_rig import ROOT, SMALL_SEGMENT_BYTES, START_MS, StoreRig, small_config

Span = tuple[int, int]


def store(files: MemoryFiles | None = None) -> Store:
    rig = StoreRig(files or MemoryFiles(), small_config())
    rig.start()
    return rig.store


def append(log_store: Store, number: int, body_bytes: int = 10, keys: int = 0) -> Span:
    payload = MessagePayload(
        1, 0, 0, number, 0, 0, 0, 0, tuple(range(keys)),
        b"rest%d" % number + bytes(body_bytes), b"sys%d" % number, 0, NO_PRIORITY,
    )  # fmt: skip
    parts = encode_message(payload)
    position = log_store.log.append(RecordType.MESSAGE, parts, START_MS)
    return position, HEADER_BYTES + sum(map(len, parts))


def check(log_store: Store, spans: list[Span]) -> None:
    alone = [message_slices(log_store.log.read(position).payload) for position, _ in spans]
    assert read_messages(log_store.log, spans) == alone


def test_as_if_read_alone_over_gaps_and_segments_in_any_order() -> None:
    one = store()
    spans: list[Span] = []
    while len(one.log.segments) < 3:
        spans.append(append(one, len(spans), 17 * len(spans) % 3_000, len(spans) % 3))
        if len(spans) % 5 == 0:
            one.log.append(RecordType.ACK, [bytes(8 * (len(spans) % 700))], START_MS)
        one.log.write()
    check(one, spans)
    check(one, spans[::-1])
    check(one, spans[::7])
    check(one, [spans[0], spans[0], spans[-1], spans[1]])
    assert read_messages(one.log, []) == []
    assert GAP_BYTES < SMALL_SEGMENT_BYTES < STRETCH_BYTES


def test_what_must_be_read_alone() -> None:
    one = store()
    message = append(one, 1)
    ack = one.log.append(RecordType.ACK, [bytes(80)], START_MS)
    last = append(one, 2)
    one.log.write()
    batch = append(one, 3)
    spans = [
        message, (ack, HEADER_BYTES + 80), (message[0], message[1] + 8), (message[0] + 8, 100),
        (message[0], 40), (1 << 40, 100), (0, 100), (one.log.end, 100), batch, last,
    ]  # fmt: skip
    found = read_messages(one.log, spans)
    assert found[1:-1] == [None] * 8
    assert None not in (found[0], found[-1])


@pytest.mark.parametrize("keys", [0, 2])
def test_any_bit_changed_is_for_the_reader_of_one(keys: int) -> None:
    files = MemoryFiles()
    one = store(files)
    spans = [append(one, 1, keys=keys), append(one, 2)]
    one.log.write()
    [inode] = [node for path, node in files.inodes.items() if path.parent == ROOT / "log"][:1]
    position, length = spans[0]
    for at in range(position, position + length):
        [byte] = struct.unpack_from("B", inode.data, at)
        inode.data[at] = byte ^ 0x10
        first, second = read_messages(one.log, spans)
        assert first is None
        assert second is not None
        inode.data[at] = byte
    check(one, spans)
