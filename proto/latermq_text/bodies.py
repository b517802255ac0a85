"""A stored body as its producer meant it: one decoder for the SDK, command line, console and Spark.

A body is decoded whole, or it is damaged: cut short, followed by something else, no gzip at all, or
larger than `UNPACKED_BYTES_MAX`. Producers of RocketMQ write zlib where the encoding says gzip, so
both are read; a gzip body may consist of several members, padded with zeros.
"""

import zlib
from typing import Final

UNPACKED_BYTES_MAX: Final = 128 << 20  # of one body; a larger one counts as damaged
GZIP: Final = "gzip"
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_BITS: Final = 16 + zlib.MAX_WBITS
_CHUNK_BYTES: Final = 16 << 10  # read at a time: what follows a member is copied once per member


class DamagedBodyError(ValueError):
    """The body cannot be decoded, by anybody."""


class TooLargeBodyError(DamagedBodyError):
    """The body unpacks to more than is allowed; `beginning` has that much, or a little more."""

    def __init__(self, beginning: bytes) -> None:
        super().__init__("the body unpacks to more than is allowed")
        self.beginning = beginning


def unpacked(body: bytes, encoding: str, bytes_max: int = UNPACKED_BYTES_MAX) -> bytes:
    """Decode a body of the encoding "gzip"; one of any other encoding is returned as it is.

    Raises:
        DamagedBodyError: it is no gzip or zlib stream, is cut short, or goes on behind its end.
        TooLargeBodyError: it unpacks to more than `bytes_max`.
    """
    if encoding != GZIP:
        return body
    several = body.startswith(_GZIP_MAGIC)
    rest, parts, room = memoryview(body), list[bytes](), bytes_max
    while True:
        member, rest = _member(rest, _GZIP_BITS if several else zlib.MAX_WBITS, room)
        parts += member
        room -= sum(map(len, member))
        if room < 0:
            raise TooLargeBodyError(b"".join(parts))
        if not several or not rest or rest[0] == 0:
            break
    if any(rest):
        raise DamagedBodyError("the body cannot be unpacked: it goes on behind its end")
    return b"".join(parts)


def _member(packed: memoryview, bits: int, bytes_max: int) -> tuple[list[bytes], memoryview]:
    """Decode one stream; return its pieces, and what follows it.

    A stream longer than `bytes_max` ends with the piece that goes beyond.
    """
    unpacker, parts, size, at = zlib.decompressobj(bits), list[bytes](), 0, 0
    while not unpacker.eof:
        chunk = packed[at : at + _CHUNK_BYTES]
        if not chunk:
            raise DamagedBodyError("the body cannot be unpacked: it is cut short")
        at += len(chunk)
        try:
            part = unpacker.decompress(chunk, bytes_max - size + 1)
        except zlib.error as error:
            raise DamagedBodyError(f"the body cannot be unpacked: {error}") from None
        size += len(part)
        parts.append(part)
        if size > bytes_max:
            break
    return parts, packed[at - len(unpacker.unused_data) :]
