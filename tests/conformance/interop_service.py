"""grpc.testing.TestService, as far as a handler of ours can serve it.

Its messages are described here, so that nothing has to be generated for a test. What it does is
laid down in gRPC's doc/interop-test-descriptions.md.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from conformance.messages import described
from latermq_broker.services.call.handler import Call, CallAborted, Method, MethodTable
from latermq_h2.grpc_code import GrpcCode

PACKAGE: Final = "grpc.testing"
ECHO_INITIAL: Final = "x-grpc-test-echo-initial"
ECHO_TRAILING: Final = "x-grpc-test-echo-trailing-bin"
SERVICE: Final = f"/{PACKAGE}.TestService"

MESSAGES: Final = {
    "Empty": (),
    "Payload": (("type", 1, "int32"), ("body", 2, "bytes")),
    "EchoStatus": (("code", 1, "int32"), ("message", 2, "string")),
    "SimpleRequest": (
        ("response_size", 2, "int32"), ("payload", 3, ".Payload"),
        ("response_status", 7, ".EchoStatus"),
    ),
    "SimpleResponse": (("payload", 1, ".Payload"),),
    "StreamingInputCallRequest": (("payload", 1, ".Payload"),),
    "StreamingInputCallResponse": (("aggregated_payload_size", 1, "int32"),),
    "ResponseParameters": (("size", 1, "int32"), ("interval_us", 2, "int32")),
    "StreamingOutputCallRequest": (
        ("response_parameters", 2, "*.ResponseParameters"), ("payload", 3, ".Payload"),
        ("response_status", 7, ".EchoStatus"),
    ),
    "StreamingOutputCallResponse": (("payload", 1, ".Payload"),),
}  # fmt: skip

_classes_by_name: Final = described(PACKAGE, MESSAGES)


def _made(name: str, **fields: Any) -> bytes:
    encoded: bytes = _classes_by_name[name](**fields).SerializeToString()
    return encoded


def _payload(size: int) -> Any:
    return _classes_by_name["Payload"](body=bytes(size))


def _end_as_asked(request: Any) -> None:
    status = request.response_status
    if status.code:
        raise CallAborted(GrpcCode(status.code), status.message)


def _echo_metadata(call: Call) -> None:
    """What the case custom_metadata sends comes back."""
    initial = call.metadata(ECHO_INITIAL)
    if initial is not None:
        call.extra.add_header(ECHO_INITIAL, initial)
    trailing = call.metadata_bin(ECHO_TRAILING)
    if trailing is not None:
        call.extra.add_trailer(ECHO_TRAILING, trailing)


def empty(data: bytes, call: Call) -> bytes:
    return b""


def unary(data: bytes, call: Call) -> bytes:
    _echo_metadata(call)
    request = _classes_by_name["SimpleRequest"].FromString(data)
    _end_as_asked(request)
    return _made("SimpleResponse", payload=_payload(request.response_size))


async def input_stream(requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
    size = 0
    async for data in requests:
        size += len(_classes_by_name["StreamingInputCallRequest"].FromString(data).payload.body)
    yield _made("StreamingInputCallResponse", aggregated_payload_size=size)


async def output_stream(data: bytes, call: Call) -> AsyncIterator[bytes]:
    async for element in _answers(data):
        yield element


async def full_duplex(requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
    _echo_metadata(call)
    async for data in requests:
        async for element in _answers(data):
            yield element


async def _answers(data: bytes) -> AsyncIterator[bytes]:
    request = _classes_by_name["StreamingOutputCallRequest"].FromString(data)
    for wanted in request.response_parameters:
        if wanted.interval_us:
            await asyncio.sleep(wanted.interval_us / 1e6)
        yield _made("StreamingOutputCallResponse", payload=_payload(wanted.size))
    _end_as_asked(request)


METHODS: Final[MethodTable] = {
    f"{SERVICE}/EmptyCall": Method.unary(empty),
    f"{SERVICE}/UnaryCall": Method.unary(unary),
    f"{SERVICE}/StreamingInputCall": Method.bidi_stream(input_stream),
    f"{SERVICE}/StreamingOutputCall": Method.server_stream(output_stream),
    f"{SERVICE}/FullDuplexCall": Method.bidi_stream(full_duplex, headers_first=False),
}
