"""The codec of one log record: a 40-byte header, the payload, zero padding to a multiple of 8.

Pure functions; who appends, where a record lies and what its payload means is known elsewhere
(`commit_log`, `*_records`). All integers are little-endian.

      0          8        12     13      14      16         24         32      36     40
      | checksum | length | type | flags | magic | position | store_ms | epoch | lag  | payload …

    checksum  xxh3_64(payload, seed = xxh3_64(bytes 8..39)); padding is not covered, it must be zero
    length    header and payload in bytes, without padding
    magic     A9 and the record format's version; constant, so that a scan can search for it
    position  of the record's first byte since the log was created: a stale or misdirected block
              betrays itself
    store_ms  wall clock at append, never less than the record before
    epoch     +1 at every start of a broker on this log
    lag       (position - position known durable at append) / 8; FFFFFFFF claims nothing
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from xxhash import xxh3_64_intdigest

from latermq_broker.errors import UnsupportedFormatError

RECORD_MAGIC: Final = b"\xa9\x01"
RECORD_MAGIC_OFFSET: Final = 14
RECORD_ALIGN: Final = 8
LAG_UNKNOWN: Final = 0xFFFF_FFFF

HEADER: Final = struct.Struct("<QIBBHQQII")
COVERED: Final = struct.Struct("<IBBHQQII")  # the header without its checksum
CHECKSUM: Final = struct.Struct("<Q")
_LENGTH: Final = struct.Struct("<I")
HEADER_BYTES: Final = 40
CHECKSUM_BYTES: Final = 8
assert HEADER.size == HEADER_BYTES
assert COVERED.size == HEADER_BYTES - CHECKSUM_BYTES

# As types, here and elsewhere: what is compiled takes a tuple apart at once whose types it knows.
HeaderFields: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]
unpack_header_from: Final = HEADER.unpack_from
tuple_new: Final = tuple.__new__
MAGIC_WORD: Final = int.from_bytes(RECORD_MAGIC, "little")
PADDING: Final = tuple(bytes(-length % RECORD_ALIGN) for length in range(RECORD_ALIGN))

FLAG_MORE: Final = 1  # the next record belongs to the same atomic group
FLAG_CLEAN: Final = 4  # on MARK: the broker stopped in order


class RecordType(IntEnum):
    """What a record says. Payloads of 1 to 18 and from 22 on belong to the core (`*_records`)."""

    MESSAGE = 1
    REF = 2
    LEASE_FRESH = 3
    LEASE_RETRY = 4
    ACK = 5
    EXTEND = 6
    ATTEMPT = 7
    DEAD = 8
    DEAD_CHANGE = 9
    REDRIVE = 10
    TIMER = 11
    CONFIG = 12
    OFFSET = 13
    RESET = 14
    CLIENT = 15
    TXN = 16  # a half message: a check, or its rollback
    MOVE = 17  # a message rolled forward
    DROP = 18  # what has expired; where the log begins
    LOST = 19  # a damaged range that an operator gave up
    MARK = 20  # idle or clean stop: what precedes it is durable
    BLANK = 21  # closes a segment; fills it to its end
    HALF = 22  # a message whose transaction has not ended
    LEASE_ORDERED = 23
    LITE = 24  # lite topics: a group's progress was moved, or one has expired
    ACCESS = 26  # a user was put or deleted
    LIMIT = 28  # of a client or a group: put or removed
    DEDUP = 29  # ids that senders gave their messages, so that each is stored once
    SCHEDULE = 30  # put or removed; or it has ticked
    HALF_SENDER = 31  # who sent the half messages before it in its group
    LEASE_AHEAD = 32  # what a group did behind messages that another of its consumers wants
    WANTED = 33  # what the consumers of a group filter a topic by
    CLOCK = 34  # the wall clock stepped, or shows another time in this life
    LIFE = 35  # a broker's life on this log began: its random stride of generations


INTERNAL_TYPES: Final = frozenset({RecordType.MARK, RecordType.BLANK})
OWN_TYPES: Final = INTERNAL_TYPES | {RecordType.LOST}  # the store does something about them
_TYPES: Final[tuple[RecordType | None, ...]] = tuple(
    RecordType(value) if value in RecordType.__members__.values() else None for value in range(256)
)
_RUN_TYPES: Final = tuple(None if type_ in OWN_TYPES else type_ for type_ in _TYPES)
RUN_RECORDS: Final = 256  # looked at together: few enough to stay in the processor's cache


class Record(NamedTuple):
    """One record as found at `position`. `payload` may be a view: copy what outlives the call."""

    position: int
    type: RecordType
    flags: int
    store_ms: int
    epoch: int
    payload: bytes | memoryview
    length: int  # header and payload, without padding
    durable: int = 0  # everything below this position was known durable at append; 0: no claim

    @property
    def more(self) -> bool:
        """Tell whether the next record belongs to the same atomic group."""
        return self.flags & FLAG_MORE != 0

    @property
    def is_clean_mark(self) -> bool:
        """Tell whether the broker stopped in order here."""
        return self.type is RecordType.MARK and self.flags & FLAG_CLEAN != 0

    @property
    def next_position(self) -> int:
        """Return where the next record of the same segment begins."""
        return self.position + padded_bytes(self.length)


def padded_bytes(length: int) -> int:
    """Count the bytes that a record of `length` (header and payload) takes in its segment."""
    return (length + RECORD_ALIGN - 1) & -RECORD_ALIGN


def record_bytes(payload_bytes: int) -> int:
    """Count the bytes a record with this payload takes in its segment, with header and padding."""
    return padded_bytes(HEADER_BYTES + payload_bytes)


def encode_record(
    position: int,
    type_: RecordType,
    parts: Sequence[bytes | memoryview],
    *,
    flags: int = 0,
    store_ms: int,
    epoch: int,
    durable: int,
) -> bytes:
    """Encode a record, padding included. `durable` ≤ `position`, both multiples of 8."""
    payload = b"".join(parts)
    length = HEADER_BYTES + len(payload)
    lag = min((position - durable) // RECORD_ALIGN, LAG_UNKNOWN)
    covered = COVERED.pack(length, type_, flags, MAGIC_WORD, position, store_ms, epoch, lag)
    checksum = xxh3_64_intdigest(payload, xxh3_64_intdigest(covered))
    return b"".join(
        (checksum.to_bytes(CHECKSUM_BYTES, "little"), covered, payload, PADDING[length % 8])
    )


def decode_record(page: memoryview, offset: int, position: int) -> Record | None:
    """Decode the record at `page[offset:]`; None unless it is whole and was written for `position`.

    None says nothing about why: zeros, a torn write, rot, or a page that is too short (see
    `needed_bytes`). `fault` puts the reason into words.

    Raises:
        UnsupportedFormatError: the checksum is right but the record's version or type is unknown.
    """
    if len(page) - offset < HEADER_BYTES:
        return None
    header: HeaderFields = unpack_header_from(page, offset)
    checksum, length, kind, flags, magic, pos, store_ms, epoch, lag = header
    end = offset + length
    pad_end = (length + 7 & -8) + offset
    if pos != position or length < HEADER_BYTES or pad_end > len(page):
        return None
    payload = page[offset + HEADER_BYTES : end]
    if checksum != xxh3_64_intdigest(payload, xxh3_64_intdigest(page[offset + 8 : offset + 40])):
        return None
    if pad_end != end and page[end:pad_end] != PADDING[length % 8]:
        return None
    type_ = _TYPES[kind]
    if magic != MAGIC_WORD or type_ is None:
        raise UnsupportedFormatError(
            f"record at position {position} has type {kind}, magic {magic:#06x}: written by a "
            "newer version of latermq; start that version, this one changes nothing"
        )
    durable = position - lag * RECORD_ALIGN if lag != LAG_UNKNOWN else 0
    # As Record(...), without its keyword handling: this line runs for every record of a replay.
    return tuple_new(Record, (position, type_, flags, store_ms, epoch, payload, length, durable))


def decode_run(page: memoryview, offset: int, position: int, epoch: int) -> list[Record]:
    """Decode records in a row from `page[offset:]` on, as `decode_record` would take each.

    At most `RUN_RECORDS`; [] and the end of a run say nothing about why. A run ends before what is
    not whole, what is older than `epoch` or its predecessor, and what is the store's own.
    """
    run: list[Record] = []
    add, types, xxh3 = run.append, _RUN_TYPES, xxh3_64_intdigest
    page_bytes = len(page)
    last_offset = page_bytes - HEADER_BYTES
    while offset <= last_offset and len(run) < RUN_RECORDS:
        header: HeaderFields = unpack_header_from(page, offset)
        checksum, length, kind, flags, magic, pos, store_ms, newer, lag = header
        end = offset + length
        pad_end = (length + 7 & -8) + offset
        type_ = types[kind]
        if pos != position or length < HEADER_BYTES or pad_end > page_bytes or type_ is None:
            break
        payload = page[offset + HEADER_BYTES : end]
        if checksum != xxh3(payload, xxh3(page[offset + 8 : offset + 40])):
            break
        if pad_end != end and page[end:pad_end] != PADDING[length & 7]:
            break
        if magic != MAGIC_WORD or newer < epoch:
            break
        epoch = newer
        durable = position - lag * RECORD_ALIGN if lag != LAG_UNKNOWN else 0
        add(tuple_new(Record, (position, type_, flags, store_ms, epoch, payload, length, durable)))
        position += pad_end - offset
        offset = pad_end
    return run


def record_length(header: bytes) -> int:
    """Read the length that a header says; 0: it is not whole."""
    if len(header) < HEADER_BYTES:
        return 0
    lengths: tuple[int] = _LENGTH.unpack_from(header, CHECKSUM_BYTES)
    return lengths[0]


def join_record(header: bytes, payload: bytes, position: int) -> Record | None:
    """Decode a record read in two slices, or None if `decode_record` should say what is wrong."""
    fields: HeaderFields = HEADER.unpack(header)
    checksum, length, kind, flags, magic, pos, store_ms, epoch, lag = fields
    type_ = _TYPES[kind]
    if pos != position or magic != MAGIC_WORD or type_ is None:
        return None
    if checksum != xxh3_64_intdigest(payload, xxh3_64_intdigest(header[8:])):
        return None
    durable = position - lag * RECORD_ALIGN if lag != LAG_UNKNOWN else 0
    return tuple_new(Record, (position, type_, flags, store_ms, epoch, payload, length, durable))


def unwritten_record(covered: bytes, payload: bytes, position: int) -> Record:
    """Make the record of a header without its checksum that was made a moment ago."""
    fields: tuple[int, int, int, int, int, int, int, int] = COVERED.unpack(covered)
    length, kind, flags, _, _, store_ms, epoch, lag = fields
    durable = position - lag * RECORD_ALIGN if lag != LAG_UNKNOWN else 0
    type_ = _TYPES[kind]
    return tuple_new(Record, (position, type_, flags, store_ms, epoch, payload, length, durable))


def needed_bytes(page: memoryview, offset: int) -> int:
    """Count the bytes from `offset` that `decode_record` must see: the length there, padded."""
    if len(page) - offset < HEADER_BYTES:
        return HEADER_BYTES
    length: int = HEADER.unpack_from(page, offset)[1]
    return max(HEADER_BYTES, padded_bytes(length))


def fault(page: memoryview, offset: int, position: int) -> str:
    """Say why `decode_record` refused these bytes, in words an operator understands."""
    header = bytes(page[offset : offset + HEADER_BYTES])
    if len(header) < HEADER_BYTES:
        return f"the file ends after {len(header)} of the header's {HEADER_BYTES} bytes"
    if not any(header):
        return "never written: the header is all zero"
    _, length, _, _, magic, pos, _, _, _ = HEADER.unpack(header)
    if magic != MAGIC_WORD:
        return f"no record begins here (magic is {magic:#06x})"
    if pos != position:
        return f"the record found here was written for position {pos}"
    if length < HEADER_BYTES:
        return f"its length of {length} bytes is impossible"
    if padded_bytes(length) > len(page) - offset:
        return f"its {length} bytes do not fit before the end of its segment"
    end = offset + length
    if any(page[end : offset + padded_bytes(length)]):
        return "its padding is not zero"
    return "its checksum does not match"
