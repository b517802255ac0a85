"""Messages in the bytes of a stream: one flag byte, four of length, the message.

Pieces may come cut anywhere, and as small as their sender likes: they are kept in one buffer, never
as objects of their own. A message that is too long is refused by its length, before its bytes are
kept; a compressed one is inflated by steps, and never beyond the limit.
"""

import gzip
import io
import struct
import zlib
from collections.abc import Callable
from enum import Enum
from typing import Final, TypeAlias

from latermq_h2.grpc_code import GrpcCode

PREFIX: Final = struct.Struct(">BI")
PREFIX_BYTES: Final = 5
assert PREFIX.size == PREFIX_BYTES
COMPRESSED: Final = 1
GZIP_LEVEL: Final = 1
LONG_BYTES: Final = 64 << 10  # of a stream's message
PIECE_BYTES_MIN: Final = 4 << 10  # shorter ones are merged,
PIECE_BYTES_MAX: Final = 64 << 10  # up to this
INFLATE_FROM_BYTES: Final = 64 << 10  # of a compressed message, at a time
INFLATE_TO_BYTES: Final = 256 << 10  # made of them, before somebody is asked whether to go on

# Told how much of a message is inflated; raises what ends it.
Grow: TypeAlias = Callable[[int], None]


class Encoding(Enum):
    """Names how messages are compressed; the value tells zlib which."""

    GZIP = 16 + zlib.MAX_WBITS
    DEFLATE = zlib.MAX_WBITS  # with zlib's frame around it, as HTTP and gRPC understand it


# By grpc-encoding.
ENCODINGS: Final = {b"identity": None, b"gzip": Encoding.GZIP, b"deflate": Encoding.DEFLATE}


class MessageFault(ValueError):
    """The stream's bytes are no messages, or too large ones; `code` is the gRPC status to say."""

    def __init__(self, code: GrpcCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def unbounded(bytes_count: int) -> None:
    """Let a message grow to its own limit."""


def grown_bytes(bytes_count: int) -> int:
    """Estimate what a buffer of so many bytes takes at most: it grows by an eighth ahead."""
    return bytes_count + (bytes_count >> 3)


class Assembly:
    """The incoming messages of one call, taken out of its bytes one at a time.

    Args:
        encoding: what the call announced as grpc-encoding; None: nothing, or identity.
    """

    __slots__ = ("_encoding", "_message_bytes_max", "_need", "_raw")

    def __init__(self, message_bytes_max: int, encoding: Encoding | None) -> None:
        self._message_bytes_max = message_bytes_max
        self._encoding = encoding
        self._raw = bytearray()
        self._need = PREFIX_BYTES  # without so many, there is nothing to take

    @property
    def bytes_kept(self) -> int:
        """Count the bytes that were put in and not taken."""
        return len(self._raw)

    @property
    def is_long(self) -> bool:
        """Tell whether the next message is compressed or large: taking and reading it is slow."""
        raw = self._raw
        return len(raw) >= PREFIX_BYTES and (raw[0] != 0 or len(raw) >= LONG_BYTES)

    def put(self, data: bytes) -> None:
        """Keep bytes as they came."""
        self._raw += data

    def take(self, grow: Grow = unbounded) -> bytes | None:
        """Take the next message, inflated; None: it is not whole yet. Raises MessageFault."""
        raw = self._raw
        if len(raw) < self._need:
            return None
        flag, length = PREFIX.unpack_from(raw)
        check_prefix(flag, length, self._message_bytes_max, self._encoding)
        end = PREFIX_BYTES + length
        if end > len(raw):
            self._need = end
            return None
        with memoryview(raw) as view:
            payload = bytes(view[PREFIX_BYTES:end])
        del raw[:end]
        self._need = PREFIX_BYTES
        if flag == 0 or self._encoding is None:
            return payload
        return inflate(payload, self._message_bytes_max, self._encoding, grow)

    def feed(self, data: bytes) -> list[bytes]:
        """Put `data` in and take all messages that are whole. Raises MessageFault."""
        self._raw += data
        messages: list[bytes] = []
        while (message := self.take()) is not None:
            messages.append(message)
        return messages

    def clear(self) -> None:
        """Keep nothing."""
        self._raw = bytearray()
        self._need = PREFIX_BYTES


class SingleMessage:
    """The only message of a request, in the pieces that came, small ones merged.

    A buffer that grows would be moved again and again, and leave holes of its size behind.

    Args:
        encoding: as in `Assembly`.
        inflated_bytes_max: of a compressed one, once it is inflated.
    """

    __slots__ = (
        "_compressed", "_encoding", "_have", "_inflated_max", "_length", "_max", "_parts",
        "_prefix",
    )  # fmt: skip

    def __init__(
        self, message_bytes_max: int, encoding: Encoding | None, inflated_bytes_max: int
    ) -> None:
        self._max = message_bytes_max
        self._inflated_max = min(message_bytes_max, inflated_bytes_max)
        self._encoding = encoding
        self._prefix = b""
        self._length = -1  # not known yet
        self._compressed = False
        self._have = 0
        self._parts: list[bytes | bytearray] = []

    @property
    def is_begun(self) -> bool:
        """Tell whether something of the message came."""
        return self._length >= 0 or bool(self._prefix)

    @property
    def is_whole(self) -> bool:
        return self._have == self._length

    @property
    def bytes_kept(self) -> int:
        return self._have

    def put(self, data: bytes) -> None:
        """Keep a piece. Raises MessageFault: too long, of an unknown kind, more than a message."""
        if self._length < 0:
            missing = PREFIX_BYTES - len(self._prefix)
            self._prefix += data[:missing]
            if len(self._prefix) < PREFIX_BYTES:
                return
            flag, length = PREFIX.unpack(self._prefix)
            check_prefix(flag, length, self._max, self._encoding)
            self._length = length
            self._compressed = flag == COMPRESSED
            data = data[missing:]
        self._have += len(data)
        if self._have > self._length:
            raise MessageFault(GrpcCode.UNIMPLEMENTED, "more than one message in the request")
        parts = self._parts
        if len(data) >= PIECE_BYTES_MIN:
            parts.append(data)
        elif parts and isinstance(parts[-1], bytearray) and len(parts[-1]) < PIECE_BYTES_MAX:
            parts[-1] += data
        else:
            parts.append(bytearray(data))

    def take(self, grow: Grow = unbounded) -> bytes:
        """Take the message, once it is whole; keep nothing. Raises MessageFault."""
        payload = b"".join(self._parts)
        self._parts = []
        if not self._compressed or self._encoding is None:
            return payload
        return inflate(payload, self._inflated_max, self._encoding, grow)


def check_prefix(flag: int, length: int, bytes_max: int, encoding: Encoding | None) -> None:
    """Check a message's prefix. Raises MessageFault: what it announces is not taken."""
    if length > bytes_max:
        raise MessageFault(
            GrpcCode.RESOURCE_EXHAUSTED,
            f"a message of {length} bytes, at most {bytes_max} are taken",
        )
    if flag not in (0, COMPRESSED):
        raise MessageFault(GrpcCode.INTERNAL, "unknown flags before a message")
    if flag == COMPRESSED and encoding is None:
        raise MessageFault(GrpcCode.INTERNAL, "a compressed message without grpc-encoding")


def inflate(payload: bytes, bytes_max: int, encoding: Encoding, grow: Grow = unbounded) -> bytes:
    """Inflate a message. Raises MessageFault: larger than `bytes_max`, or not of that encoding."""
    inflater = zlib.decompressobj(encoding.value)
    message = io.BytesIO()
    size = 0
    try:
        for start in range(0, len(payload), INFLATE_FROM_BYTES):
            piece = payload[start : start + INFLATE_FROM_BYTES]
            while True:
                made = inflater.decompress(piece, INFLATE_TO_BYTES)
                size += len(made)
                if size > bytes_max:
                    raise MessageFault(
                        GrpcCode.RESOURCE_EXHAUSTED, f"a message inflates beyond {bytes_max} bytes"
                    )
                grow(grown_bytes(size))
                message.write(made)
                piece = inflater.unconsumed_tail
                if not piece and len(made) < INFLATE_TO_BYTES:
                    break
            if inflater.eof and start + INFLATE_FROM_BYTES < len(payload):
                raise MessageFault(GrpcCode.INTERNAL, "a compressed message that is not whole")
    except zlib.error:
        raise MessageFault(
            GrpcCode.INTERNAL, f"a compressed message that is not {encoding.name.lower()}"
        ) from None
    if not inflater.eof or inflater.unused_data:
        raise MessageFault(GrpcCode.INTERNAL, "a compressed message that is not whole")
    return message.getvalue()


def framed(message: bytes, gzip_from_bytes: int = 0) -> tuple[bytes, bytes]:
    """Return prefix and message; compressed from `gzip_from_bytes` on (0: never)."""
    if gzip_from_bytes and len(message) >= gzip_from_bytes:
        packed = gzip.compress(message, GZIP_LEVEL, mtime=0)
        return PREFIX.pack(COMPRESSED, len(packed)), packed
    return PREFIX.pack(0, len(message)), message
