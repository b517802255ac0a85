"""What a handler adds to its answer: headers, trailers, and whether it is compressed."""

import base64
import re
from typing import Final

from latermq_h2.hpack.encoder import encode
from latermq_h2.hpack.fields import REGULAR, Field, value_of

METADATA_BYTES_MAX: Final = 8 << 10  # of one answer; what clients of gRPC take by default
BINARY_SUFFIX: Final = "-bin"
RICH_STATUS: Final = "grpc-status-details-bin"  # a reserved name that handlers may use
RESERVED_PREFIX: Final = "grpc-"
RESERVED: Final = frozenset({"content-type", "te", "content-length", "user-agent"})
_FIELD_OVERHEAD_BYTES: Final = 32  # as HTTP/2 counts
_NAME: Final = re.compile(r"[0-9a-z_.-]+")
_VALUE: Final = re.compile(r"[\x20-\x7e]*")


class AnswerExtra:
    """`handler.Extra`, of one answer.

    Args:
        headers_sent: it is too late for headers.
    """

    __slots__ = ("_size", "compress", "headers", "headers_sent", "trailers")

    def __init__(self, *, headers_sent: bool = False) -> None:
        self.headers_sent = headers_sent
        self.headers: list[tuple[str, str | bytes]] = []
        self.trailers: list[tuple[str, str | bytes]] = []
        self.compress = False
        self._size = 0

    def add_header(self, name: str, value: str | bytes) -> None:
        """Add a header. Raises ValueError: not metadata, too much of it, or too late."""
        if self.headers_sent:
            raise ValueError(f"{name}: the headers are out")
        self._count(name, value)
        self.headers.append((name, value))

    def add_trailer(self, name: str, value: str | bytes) -> None:
        """Add a trailer. Raises ValueError: not metadata, or too much of it."""
        self._count(name, value)
        self.trailers.append((name, value))

    def header_block(self) -> bytes:
        return encode(map(_encoded, self.headers))

    def trailer_block(self) -> bytes:
        return encode(map(_encoded, self.trailers))

    def _count(self, name: str, value: str | bytes) -> None:
        reserved = name.startswith(RESERVED_PREFIX) or name in RESERVED
        if not _NAME.fullmatch(name) or (reserved and name != RICH_STATUS):
            raise ValueError(f"{name!r} cannot be a name of metadata")
        if name.endswith(BINARY_SUFFIX) is not isinstance(value, bytes):
            raise ValueError(f"{name}: bytes and only they have names that end in {BINARY_SUFFIX}")
        if isinstance(value, str) and (not _VALUE.fullmatch(value) or value != value.strip(" ")):
            raise ValueError(f"{name}: printable ASCII without outer blanks, not {value!r}")
        size = self._size + len(name) + len(_encoded((name, value))[1]) + _FIELD_OVERHEAD_BYTES
        if size > METADATA_BYTES_MAX:
            raise ValueError(f"{name}: more than {METADATA_BYTES_MAX} bytes of metadata")
        self._size = size


def _encoded(pair: tuple[str, str | bytes]) -> tuple[bytes, bytes]:
    name, value = pair
    text = base64.b64encode(value).rstrip(b"=") if isinstance(value, bytes) else value.encode()
    return name.encode(), text


def binary_values(value: bytes) -> list[bytes]:
    """Decode the values of a `-bin` field, which may have several, with or without padding.

    Raises ValueError: not base64.
    """
    return [_decoded(text.strip()) for text in value.split(b",")]


def _decoded(text: bytes) -> bytes:
    text = text.rstrip(b"=")
    return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)


def shown(fields: list[Field], prefixes: tuple[str, ...]) -> list[tuple[str, str | bytes]]:
    """List regular fields as a handler sees them, in order; malformed `-bin` are left out.

    Args:
        prefixes: their names begin with one of these; no other value is decoded.
    """
    shown_fields: list[tuple[str, str | bytes]] = []
    for entry in fields:
        name = entry[0].decode("latin-1")
        if entry[3] > REGULAR or not name.startswith(prefixes):
            continue
        value = value_of(entry)
        if not name.endswith(BINARY_SUFFIX):
            shown_fields.append((name, text_of(value)))
            continue
        try:
            shown_fields += [(name, decoded) for decoded in binary_values(value)]
        except ValueError:
            continue
    return shown_fields


def text_of(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
