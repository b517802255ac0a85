"""What the header fields of a request mean to HTTP/2; what they mean to gRPC is not known here."""

import re
from typing import Final

from latermq_h2.hpack.fields import INVALID, PSEUDO, Field, Gist

_DIGITS: Final = re.compile(rb"[0-9]{1,18}")


class RequestHead:
    """A well-formed head; shared by all requests with an equal gist.

    `meaning` belongs to the layer above: what it made of `fields`.
    """

    __slots__ = ("authority", "content_length", "fields", "meaning", "method", "path", "scheme")

    def __init__(self, pseudo: dict[bytes, bytes], content_length: int, fields: tuple[Field, ...]):
        self.method = pseudo[b":method"]
        self.scheme = pseudo[b":scheme"]
        self.path = pseudo[b":path"]
        self.authority = pseudo.get(b":authority", b"")
        self.content_length = content_length  # -1: not told
        self.fields = fields  # those with a meaning that are not pseudo fields
        self.meaning: object | None = None


class Malformed:
    """A head that is none, and why."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


OVERSIZED: Final = RequestHead({b":method": b"", b":scheme": b"", b":path": b""}, -1, ())


def head_of(gist: Gist) -> RequestHead | Malformed:
    """Return the head behind a gist, read once."""
    known = gist.meaning
    if known is None:
        known = gist.meaning = _read(gist.fields)
    assert isinstance(known, RequestHead | Malformed)
    return known


def trailers_allowed(gist: Gist) -> bool:
    """Tell whether these may be trailers: no pseudo field, nothing invalid."""
    return all(entry[3] not in (PSEUDO, INVALID) for entry in gist.fields)


def _read(fields: tuple[Field, ...]) -> RequestHead | Malformed:
    pseudo: dict[bytes, bytes] = {}
    rest: list[Field] = []
    content_length = -1
    for entry in fields:
        name, value, _, kind = entry
        if kind == INVALID:
            return Malformed("a field that must not be, or not be here")
        if kind == PSEUDO:
            if name in pseudo or name == b":status":
                return Malformed("a pseudo field twice, or of an answer")
            pseudo[name] = value
            continue
        if name == b"te" and value.lower() != b"trailers":
            return Malformed("te other than trailers")
        if name == b"content-length":
            if not _DIGITS.fullmatch(value) or content_length not in (-1, int(value)):
                return Malformed("content-length is not a length")
            content_length = int(value)
        rest.append(entry)
    for name in (b":method", b":scheme", b":path"):
        if not pseudo.get(name):
            return Malformed("a pseudo field is missing or empty")
    return RequestHead(pseudo, content_length, tuple(rest))
