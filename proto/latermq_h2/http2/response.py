"""What the header fields of an answer mean to HTTP/2, and its gRPC status."""

from typing import Final

from latermq_h2.hpack.fields import INVALID, PSEUDO, Field, Gist
from latermq_h2.http2.request import Malformed

ABSENT: Final = -1


class ResponseHead:
    """One block of an answer, its first or its trailers; shared by all with an equal gist.

    status: of HTTP; ABSENT in trailers.
    grpc_status: ABSENT where there is none; UNREADABLE when it is no number.
    content_length: ABSENT when not told.
    """

    __slots__ = ("content_length", "content_type", "encoding", "grpc_status", "status")

    def __init__(self) -> None:
        self.status = ABSENT
        self.grpc_status = ABSENT
        self.content_length = ABSENT
        self.content_type = b""
        self.encoding = b""


UNREADABLE: Final = -2


def answer_of(gist: Gist) -> ResponseHead | Malformed:
    """Return the block behind a gist, read once."""
    known = gist.meaning
    if known is None:
        known = gist.meaning = _read(gist.fields)
    assert isinstance(known, ResponseHead | Malformed)
    return known


def _read(fields: tuple[Field, ...]) -> ResponseHead | Malformed:
    head = ResponseHead()
    for name, value, _, kind in fields:
        if kind == INVALID:
            return Malformed("a field that must not be, or not be here")
        if kind == PSEUDO:
            if name != b":status" or head.status != ABSENT:
                return Malformed("a pseudo field twice, or of a request")
            if len(value) != 3 or not value.isdigit():
                return Malformed(":status is no status")
            head.status = int(value)
        elif name == b"content-length":
            if not value.isdigit() or len(value) > 18:
                return Malformed("content-length is not a length")
            head.content_length = int(value)
        elif name == b"content-type":
            head.content_type = value
        elif name == b"grpc-encoding":
            head.encoding = value
        elif name == b"grpc-status":
            readable = value.isdigit() and len(value) <= 9
            head.grpc_status = int(value) if readable else UNREADABLE
    return head
