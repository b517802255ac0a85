"""From a request's head to the method it calls and how; read once for equal heads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from latermq_broker.services.call.handler import Method
from latermq_broker.transport.grpc import status
from latermq_h2.grpc_code import GrpcCode
from latermq_h2.hpack.fields import TIMEOUT, Field
from latermq_h2.http2.request import RequestHead
from latermq_h2.messages import ENCODINGS, Encoding

CONTENT_TYPE: Final = b"application/grpc"
CODECS: Final = (b"", b"+proto")
TIMEOUT_DIGITS_MAX: Final = 8
MALFORMED: Final = -1  # a timeout that is none
_UNIT_NS: Final = {
    b"H": 3_600_000_000_000, b"M": 60_000_000_000, b"S": 1_000_000_000, b"m": 1_000_000,
    b"u": 1_000, b"n": 1,
}  # fmt: skip
NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class CallHead:
    """What all calls with this head have in common."""

    path: str
    method: Method
    encoding: Encoding | None  # that messages may have
    accepts_gzip: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """The block that is the whole answer.

    Fields:
        why: what it counts as; "": as nothing, because callers of ours ask so.
    """

    block: bytes
    why: str


@dataclass(frozen=True, slots=True)
class Plain:
    """An HTTP answer without gRPC, for tools that test HTTP/2."""

    body: bytes


Meaning: TypeAlias = CallHead | Refusal | Plain
Methods: TypeAlias = Mapping[bytes, Method]


def _refusal(code: GrpcCode, why: str) -> Refusal:
    return Refusal(status.only(code, why), why)


NOT_POST: Final = Refusal(status.http_only(405), "not POST")
NOT_GRPC: Final = Refusal(status.http_only(415), "not gRPC")
TOO_LARGE: Final = _refusal(GrpcCode.RESOURCE_EXHAUSTED, "header list too large")
BAD_TIMEOUT: Final = _refusal(GrpcCode.INTERNAL, "malformed grpc-timeout")
EXPIRED: Final = _refusal(GrpcCode.DEADLINE_EXCEEDED, "deadline exceeded")
NO_METHOD: Final = _refusal(GrpcCode.UNIMPLEMENTED, "unknown method")
# Every tool of ours asks first whether there are shards; a broker that is alone does not know.
OF_A_CLUSTER: Final = b"/latermq.v1.Cluster/"
ALONE: Final = Refusal(status.only(GrpcCode.UNIMPLEMENTED, "this broker is not a shard"), "")
NO_ENCODING: Final = _refusal(GrpcCode.UNIMPLEMENTED, "unknown grpc-encoding")


def read(head: RequestHead, methods: Methods, plain: Mapping[bytes, bytes]) -> Meaning:
    """Decide what to do with such a request."""
    body = plain.get(head.path)
    if body is not None:
        return Plain(body)
    if head.method != b"POST":
        return NOT_POST
    values: dict[bytes, bytes] = {}
    for name, value, _, _ in head.fields:
        values.setdefault(name, value)
    content_type = values.get(b"content-type", b"")
    if not content_type.startswith(CONTENT_TYPE):
        return NOT_GRPC
    if content_type[len(CONTENT_TYPE) :].partition(b";")[0].rstrip() not in CODECS:
        return NOT_GRPC
    method = methods.get(head.path)
    if method is None:
        return ALONE if head.path.startswith(OF_A_CLUSTER) else NO_METHOD
    encoding = values.get(b"grpc-encoding", b"identity")
    if encoding not in ENCODINGS:
        return NO_ENCODING
    accepted = values.get(b"grpc-accept-encoding", b"").replace(b" ", b"").split(b",")
    path = head.path.decode("latin-1")
    return CallHead(path, method, ENCODINGS[encoding], b"gzip" in accepted)


def timeout_ms_of(fields: list[Field]) -> int | None:
    """Read how long the caller waits, rounded up; None: it does not say."""
    for entry in fields:
        if entry[3] == TIMEOUT:
            return _timeout_ms(entry[1])
    return None


def _timeout_ms(value: bytes) -> int:
    digits, unit_ns = value[:-1], _UNIT_NS.get(value[-1:])
    if unit_ns is None or len(digits) > TIMEOUT_DIGITS_MAX or not digits.isdigit():
        return MALFORMED
    return -(-int(digits) * unit_ns // NS_PER_MS)
