"""Messages in the bytes of a stream: one flag byte, four of length, the message.

Pieces may come cut anywhere. A message that is too long is refused by its length, before its bytes
are kept; a compressed one is never inflated beyond the limit.
"""

import gzip
import struct
import zlib
from enum import Enum
from typing import Final

from latermq_h2.grpc_code import GrpcCode

PREFIX: Final = struct.Struct(">BI")
PREFIX_BYTES: Final = 5
assert PREFIX.size == PREFIX_BYTES
COMPRESSED: Final = 1
GZIP_LEVEL: Final = 1


class Encoding(Enum):
    """Of compressed messages; the value tells zlib which."""

    GZIP = 16 + zlib.MAX_WBITS
    DEFLATE = zlib.MAX_WBITS  # with zlib's frame around it, as HTTP and gRPC understand it


# By grpc-encoding.
ENCODINGS: Final = {b"identity": None, b"gzip": Encoding.GZIP, b"deflate": Encoding.DEFLATE}


class MessageFault(ValueError):
    """The stream's bytes are no messages, or too large ones; `code` is the gRPC status to say."""

    def __init__(self, code: GrpcCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Assembly:
    """The incoming messages of one call.

    Args:
        encoding: what the call announced as grpc-encoding; None: nothing, or identity.
    """

    __slots__ = ("_encoding", "_have", "_message_bytes_max", "_need", "_parts")

    def __init__(self, message_bytes_max: int, encoding: Encoding | None) -> None:
        self._message_bytes_max = message_bytes_max
        self._encoding = encoding
        self._parts: list[bytes] = []
        self._have = 0
        self._need = PREFIX_BYTES

    @property
    def bytes_kept(self) -> int:
        """Of the message that is not whole yet."""
        return self._have

    def feed(self, data: bytes) -> list[bytes]:
        """Messages that `data` completes. Raises MessageFault."""
        if self._parts:
            self._parts.append(data)
            self._have += len(data)
            if self._have < self._need:
                return []
            data = b"".join(self._parts)
            self._parts.clear()
        messages: list[bytes] = []
        start, stop = 0, len(data)
        self._need = PREFIX_BYTES
        while stop - start >= PREFIX_BYTES:
            flag, length = PREFIX.unpack_from(data, start)
            if length > self._message_bytes_max:
                raise MessageFault(
                    GrpcCode.RESOURCE_EXHAUSTED,
                    f"a message of {length} bytes, at most {self._message_bytes_max} are taken",
                )
            end = start + PREFIX_BYTES + length
            if end > stop:
                self._need = PREFIX_BYTES + length
                break
            payload = data[start + PREFIX_BYTES : end]
            messages.append(payload if flag == 0 else self.opened(flag, payload))
            start = end
        self._have = stop - start
        if start < stop:
            self._parts.append(data[start:] if start else data)
        return messages

    def opened(self, flag: int, payload: bytes) -> bytes:
        """The message itself, inflated when its flag says so. Raises MessageFault."""
        if flag == 0:
            return payload
        if flag != COMPRESSED:
            raise MessageFault(GrpcCode.INTERNAL, "unknown flags before a message")
        if self._encoding is None:
            raise MessageFault(GrpcCode.INTERNAL, "a compressed message without grpc-encoding")
        return inflate(payload, self._message_bytes_max, self._encoding)


def inflate(payload: bytes, bytes_max: int, encoding: Encoding) -> bytes:
    """Raises MessageFault: larger than `bytes_max`, or not of that encoding."""
    inflater = zlib.decompressobj(encoding.value)
    try:
        message = inflater.decompress(payload, bytes_max + 1)
    except zlib.error:
        raise MessageFault(
            GrpcCode.INTERNAL, f"a compressed message that is not {encoding.name.lower()}"
        ) from None
    if len(message) > bytes_max:
        raise MessageFault(GrpcCode.RESOURCE_EXHAUSTED, f"a message inflates beyond {bytes_max}")
    if not inflater.eof or inflater.unused_data:
        raise MessageFault(GrpcCode.INTERNAL, "a compressed message that is not whole")
    return message


def framed(message: bytes, gzip_from_bytes: int = 0) -> tuple[bytes, bytes]:
    """Prefix and message; compressed when it has at least `gzip_from_bytes` (0: never)."""
    if gzip_from_bytes and len(message) >= gzip_from_bytes:
        packed = gzip.compress(message, GZIP_LEVEL, mtime=0)
        return PREFIX.pack(COMPRESSED, len(packed)), packed
    return PREFIX.pack(0, len(message)), message
