"""Message bodies as a terminal can show them: text where it is UTF-8, else a look at the bytes."""

import zlib
from typing import Final

from latermq_cli.terminal.table import plain_lines

INFLATED_BYTES_MAX: Final = 8 << 20
PREVIEW_BYTES: Final = 32
_ANY_WRAPPER: Final = 47  # zlib's window bits for "gzip or zlib, find out"


def decoded(body: bytes, encoding: str) -> bytes:
    """Undo a body's encoding; what cannot be decoded stays as it is."""
    if encoding != "gzip":
        return body
    try:
        return zlib.decompressobj(_ANY_WRAPPER).decompress(body, INFLATED_BYTES_MAX)
    except zlib.error:
        return body


def text_of(body: bytes) -> str | None:
    """Decode the body as text; None when it is not UTF-8."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def printable_lines(body: bytes) -> list[str]:
    """List the lines to print: the text, or one line with length and first bytes in hex."""
    text = text_of(body)
    if text is not None:
        return plain_lines(text)
    more = " …" if len(body) > PREVIEW_BYTES else ""
    return [f"{len(body):,} bytes, not text: {body[:PREVIEW_BYTES].hex(' ')}{more}"]
