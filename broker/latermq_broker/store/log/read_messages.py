"""Several stored messages at once: a stretch of the log is copied out, and taken apart in one loop.

Every record is verified as if it were read alone. Only plain messages are found this way: MESSAGE
records that are in the file and whole. For all others there is `CommitLog.read`, which knows moved
ones, those of the batch, and what to say of damaged ones.
"""

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from xxhash import xxh3_64_intdigest

from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.log.commit_log import CommitLog
from latermq_broker.store.log.read_ahead import Span
from latermq_broker.store.records.message_records import MESSAGE_BYTES
from latermq_broker.store.records.record import CHECKSUM_BYTES, HEADER_BYTES, MAGIC_WORD, RecordType

GAP_BYTES: Final = 4 << 10  # copied rather than begun anew behind
STRETCH_BYTES: Final = 256 << 10  # of more than one message

#  Of a record's header and the head of a MESSAGE what is needed: checksum, length, type, magic,
#  position; number of keys, length of rest, of sys.
_PLAIN: Final = struct.Struct("<QIBxHQ16x7xB32xII4x")
_HEAD_BYTES: Final = HEADER_BYTES + MESSAGE_BYTES
assert _PLAIN.size == _HEAD_BYTES

Slices = tuple[bytes, bytes]


def read_messages(log: CommitLog, spans: Sequence[Span]) -> list[Slices | None]:
    """(rest, sys) of the record at each (position, length); None: read it alone."""
    messages: list[Slices | None] = []
    begin = end = 0  # of the stretch at hand
    stretch = b""
    view = memoryview(stretch)
    unpack, digest, kept = _PLAIN.unpack_from, xxh3_64_intdigest, messages.append
    for index, (position, length) in enumerate(spans):
        if position < begin or position + length > end:
            begin, end = position, _stretch_end(spans, index)
            stretch = _copied(log, begin, end)
            view, end = memoryview(stretch), begin + len(stretch)
        at = position - begin
        if length < _HEAD_BYTES or position + length > end:
            kept(None)
            continue
        checksum, size, kind, magic, own_position, keys, rest, sys = unpack(stretch, at)
        header = view[at + CHECKSUM_BYTES : at + HEADER_BYTES]
        if (
            size != length
            or kind != RecordType.MESSAGE
            or magic != MAGIC_WORD
            or own_position != position
            or checksum != digest(view[at + HEADER_BYTES : at + size], digest(header))
        ):
            kept(None)
            continue
        start = at + _HEAD_BYTES + 8 * keys
        middle = start + rest
        kept((stretch[start:middle], stretch[middle : middle + sys]))
    return messages


def _stretch_end(spans: Sequence[Span], first: int) -> int:
    """Find the end of what is read at once with that record: what follows it closely, too."""
    begin, length = spans[first]
    end = begin + length
    for index in range(first + 1, len(spans)):
        position, length = spans[index]
        if not 0 <= position - end <= GAP_BYTES or position + length - begin > STRETCH_BYTES:
            break
        end = position + length
    return end


def _copied(log: CommitLog, begin: int, end: int) -> bytes:
    """Copy what the file has there; nothing where no file is."""
    with suppress(CorruptRecordError):  # reading it alone will tell
        segment, view = log.row.mapped(begin)
        return view[begin - segment.base : max(begin, min(end, log.written)) - segment.base]
    return b""
