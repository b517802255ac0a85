"""A page of metrics on its way through a pipe: its length in four bytes, then itself."""

import struct
from typing import BinaryIO, Final

LENGTH: Final = struct.Struct(">I")


def frame(page: bytes) -> bytes:
    return LENGTH.pack(len(page)) + page


def read_page(pipe: BinaryIO) -> bytes | None:
    """Return the next page, None at the end."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    page = pipe.read(size)
    return page if len(page) == size else None
