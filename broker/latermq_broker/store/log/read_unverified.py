"""A look at a damaged record: what its bytes seem to say, for counters and for people."""

from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.log.segment import Segment
from latermq_broker.store.log.segment_row import SegmentRow
from latermq_broker.store.records.record import HEADER, HEADER_BYTES, MAGIC_WORD, Record, RecordType


def read_unverified(row: SegmentRow, position: int) -> Record | None:
    """Read the record as found, nothing verified but that it was written for its place.

    None: its header makes no sense, or cannot be read.
    """
    try:
        return read_unverified_in(row.at(position), position)
    except CorruptRecordError:
        return None


def read_unverified_in(segment: Segment, position: int) -> Record | None:
    """Read a record that nothing vouches for, in one segment."""
    try:
        header = segment.pread(HEADER_BYTES, position)
        if len(header) < HEADER_BYTES:
            return None
        _, length, kind, flags, magic, own_position, store_ms, epoch, _ = HEADER.unpack(header)
        end = position + length
        if magic != MAGIC_WORD or own_position != position or length < HEADER_BYTES:
            return None
        if end > segment.end or kind not in RecordType.__members__.values():
            return None
        payload = segment.pread(length - HEADER_BYTES, position + HEADER_BYTES)
    except OSError:
        return None
    return Record(position, RecordType(kind), flags, store_ms, epoch, payload, length)
