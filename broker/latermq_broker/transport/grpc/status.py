"""Response blocks: made once where they are constant."""

from functools import lru_cache
from typing import Final

from latermq_h2.grpc_code import GrpcCode
from latermq_h2.hpack.encoder import encode

_CONTENT: Final = ((b":status", b"200"), (b"content-type", b"application/grpc"))
HEADERS: Final = encode(_CONTENT)
HEADERS_GZIP: Final = encode((*_CONTENT, (b"grpc-encoding", b"gzip")))
TRAILERS_OK: Final = encode([(b"grpc-status", b"0")])
ACCEPT_ENCODING: Final = (b"grpc-accept-encoding", b"identity,deflate,gzip")

MESSAGE_BYTES_MAX: Final = 1_024  # of the text, before escaping

_PLAIN: Final = frozenset(range(0x20, 0x7F)) - {0x25}


def escaped(message: str) -> bytes:
    """Escape a grpc-message: UTF-8, percent-encoded where it is not printable ASCII."""
    raw = message.encode("utf-8", "replace")[:MESSAGE_BYTES_MAX]
    return b"".join(bytes((byte,)) if byte in _PLAIN else b"%%%02X" % byte for byte in raw)


@lru_cache(maxsize=256)
def trailers(code: GrpcCode, message: str) -> bytes:
    """Encode the trailers that end an answer of which something was sent."""
    return encode(_status(code, message))


@lru_cache(maxsize=256)
def only(code: GrpcCode, message: str) -> bytes:
    """Encode a whole answer: headers and trailers in one block."""
    more = (ACCEPT_ENCODING,) if code is GrpcCode.UNIMPLEMENTED else ()
    return encode((*_CONTENT, *_status(code, message), *more))


def http_only(status: int) -> bytes:
    """Encode the answer to what is not gRPC."""
    return encode([(b":status", str(status).encode()), (b"content-length", b"0")])


def _status(code: GrpcCode, message: str) -> list[tuple[bytes, bytes]]:
    fields = [(b"grpc-status", str(int(code)).encode())]
    if message:
        fields.append((b"grpc-message", escaped(message).strip(b" ")))
    return fields
