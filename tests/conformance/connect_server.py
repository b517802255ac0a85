"""connectrpc.conformance.v1.ConformanceService on the lean transport, for connectconformance.

    connectconformance --mode server -- python tests/conformance/connect_server.py

One ServerCompatRequest comes by standard input, one ServerCompatResponse goes out when the port is
open, SIGTERM ends it. What the service does is laid down in the module's service.proto: an answer
is what the request says, and tells what was seen of the request.
"""

import asyncio
import base64
import signal
import struct
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from conformance.messages import ANY, described  # noqa: E402
from latermq_broker.config.config import ServerConfig  # noqa: E402
from latermq_broker.config.server_transport import ClientCertificates, TlsConfig  # noqa: E402
from latermq_broker.services.call.handler import Call, CallAborted, Method, MethodTable  # noqa: E402
from latermq_broker.transport.lean import LeanServer  # noqa: E402
from latermq_h2.grpc_code import GrpcCode  # noqa: E402

PACKAGE: Final = "connectrpc.conformance.v1"
SERVICE: Final = f"/{PACKAGE}.ConformanceService"
SIZE: Final = struct.Struct(">I")
DETAILS: Final = "grpc-status-details-bin"
ANSWERED: Final = (("payload", 1, ".ConformancePayload"),)
UNARY: Final = (
    ("response_definition", 1, ".UnaryResponseDefinition"),
    ("request_data", 2, "bytes"),
)

CLASSES: Final = described(
    PACKAGE,
    {
        "TLSCreds": (("cert", 1, "bytes"), ("key", 2, "bytes")),
        "ServerCompatRequest": (
            ("use_tls", 4, "bool"), ("client_tls_cert", 5, "bytes"),
            ("message_receive_limit", 6, "uint32"), ("server_creds", 7, ".TLSCreds"),
        ),
        "ServerCompatResponse": (
            ("host", 1, "string"), ("port", 2, "uint32"), ("pem_cert", 3, "bytes")
        ),
        "Header": (("name", 1, "string"), ("value", 2, "*string")),
        "Error": (("code", 1, "int32"), ("message", 2, "string"), ("details", 3, f"*{ANY}")),
        "UnaryResponseDefinition": (
            ("response_headers", 1, "*.Header"), ("response_data", 2, "?bytes"),
            ("error", 3, ".Error"), ("response_trailers", 4, "*.Header"),
            ("response_delay_ms", 6, "uint32"),
        ),
        "StreamResponseDefinition": (
            ("response_headers", 1, "*.Header"), ("response_data", 2, "*bytes"),
            ("response_delay_ms", 3, "uint32"), ("error", 4, ".Error"),
            ("response_trailers", 5, "*.Header"),
        ),
        "RequestInfo": (
            ("request_headers", 1, "*.Header"), ("timeout_ms", 2, "?int64"),
            ("requests", 3, f"*{ANY}"),
        ),
        "ConformancePayload": (("data", 1, "bytes"), ("request_info", 2, ".RequestInfo")),
        "UnaryRequest": UNARY,
        "UnaryResponse": ANSWERED,
        "IdempotentUnaryRequest": UNARY,
        "IdempotentUnaryResponse": ANSWERED,
        "ClientStreamRequest": UNARY,
        "ClientStreamResponse": ANSWERED,
        "ServerStreamRequest": (
            ("response_definition", 1, ".StreamResponseDefinition"), ("request_data", 2, "bytes")
        ),
        "ServerStreamResponse": ANSWERED,
        "BidiStreamRequest": (
            ("response_definition", 1, ".StreamResponseDefinition"), ("full_duplex", 2, "bool"),
            ("request_data", 3, "bytes"),
        ),
        "BidiStreamResponse": ANSWERED,
        # google.rpc.Status: what grpc-status-details-bin holds
        "Status": (("code", 1, "int32"), ("message", 2, "string"), ("details", 3, f"*{ANY}")),
    },
)  # fmt: skip


class Answering:
    """One call: what was seen of it, and how it is answered as its definition says."""

    def __init__(self, call: Call, kind: str) -> None:
        self.definition: Any = None
        self._call = call
        self._kind = kind
        self._requests: list[bytes] = []
        self._told = False
        self._timeout_ms = call.remaining_ms()

    def took(self, data: bytes) -> Any:
        """A request; the first one has the definition."""
        request = CLASSES[f"{self._kind}Request"].FromString(data)
        self._requests.append(data)
        if self.definition is None:
            self.definition = request.response_definition
            for header in self.definition.response_headers:
                for value in header.value:
                    self._call.extra.add_header(header.name, _typed(header.name, value))
            for trailer in self.definition.response_trailers:
                for value in trailer.value:
                    self._call.extra.add_trailer(trailer.name, _typed(trailer.name, value))
            self._call.extra.compress = True
        return request

    async def pause(self) -> None:
        if self.definition is not None:
            await asyncio.sleep(self.definition.response_delay_ms / 1_000)

    def element(self, data: bytes) -> bytes:
        """A response with `data`; it tells what was seen since the one before."""
        payload = CLASSES["ConformancePayload"](data=data)
        if not self._told or self._requests:
            payload.request_info.CopyFrom(self._seen())
        encoded: bytes = CLASSES[f"{self._kind}Response"](payload=payload).SerializeToString()
        return encoded

    def fail_as_asked(self) -> None:
        """Raises CallAborted, if the definition says so."""
        if self.definition is None or not self.definition.HasField("error"):
            return
        error = self.definition.error
        details = list(error.details)
        if not self._told:
            seen = self._seen().SerializeToString()
            details.append(_any("ConformancePayload.RequestInfo", seen))
        status = CLASSES["Status"](code=error.code, message=error.message, details=details)
        self._call.extra.add_trailer(DETAILS, status.SerializeToString())
        raise CallAborted(GrpcCode(error.code), error.message)

    def _seen(self) -> Any:
        requests = [_any(f"{self._kind}Request", data) for data in self._requests]
        self._requests = []
        seen = CLASSES["RequestInfo"](requests=requests)
        if not self._told:
            values: dict[str, list[str]] = {}
            for name, value in self._call.all_metadata():
                values.setdefault(name, []).append(_text(value))
            for name, every in values.items():
                seen.request_headers.add(name=name, value=every)
            if self._timeout_ms is not None:
                seen.timeout_ms = self._timeout_ms
        self._told = True
        return seen


def _any(name: str, data: bytes) -> Any:
    made = CLASSES["Error"]().details.add()
    made.type_url = f"type.googleapis.com/{PACKAGE}.{name}"
    made.value = data
    return made


def _typed(name: str, value: str) -> str | bytes:
    return base64.b64decode(value + "=" * (-len(value) % 4)) if name.endswith("-bin") else value


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else base64.b64encode(value).rstrip(b"=").decode()


def unary_of(kind: str) -> Method:
    async def answer(data: bytes, call: Call) -> bytes:
        answering = Answering(call, kind)
        answering.took(data)
        await answering.pause()
        answering.fail_as_asked()
        return answering.element(answering.definition.response_data)

    return Method.unary(answer)


async def client_stream(requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
    answering = Answering(call, "ClientStream")
    async for data in requests:
        answering.took(data)
    await answering.pause()
    answering.fail_as_asked()
    definition = answering.definition
    yield answering.element(definition.response_data if definition is not None else b"")


def server_stream(data: bytes, call: Call) -> AsyncIterator[bytes]:
    answering = Answering(call, "ServerStream")
    answering.took(data)

    async def elements() -> AsyncIterator[bytes]:
        for each in answering.definition.response_data:
            await answering.pause()
            yield answering.element(each)
        answering.fail_as_asked()

    return elements()


async def bidi_stream(requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
    answering = Answering(call, "BidiStream")
    full_duplex = False
    sent = 0
    async for data in requests:
        request = answering.took(data)
        full_duplex = full_duplex or request.full_duplex
        if full_duplex:
            if sent >= len(answering.definition.response_data):
                break
            await answering.pause()
            yield answering.element(answering.definition.response_data[sent])
            sent += 1
    if answering.definition is None:
        return
    for each in answering.definition.response_data[sent:]:
        await answering.pause()
        yield answering.element(each)
    answering.fail_as_asked()


METHODS: Final[MethodTable] = {
    f"{SERVICE}/Unary": unary_of("Unary"),
    f"{SERVICE}/IdempotentUnary": unary_of("IdempotentUnary"),
    f"{SERVICE}/ClientStream": Method.bidi_stream(client_stream, headers_first=False),
    f"{SERVICE}/ServerStream": Method.server_stream(server_stream),
    f"{SERVICE}/BidiStream": Method.bidi_stream(bidi_stream, headers_first=False),
}


async def serve(asked: Any, directory: Path) -> None:
    """Until SIGTERM."""
    config = ServerConfig(
        listen="127.0.0.1:0",
        other_request_bytes_max=asked.message_receive_limit
        or ServerConfig().other_request_bytes_max,
    )
    tls = TlsConfig()
    if asked.use_tls:
        for name in ("cert", "key"):
            (directory / name).write_bytes(getattr(asked.server_creds, name))
        (directory / "ca").write_bytes(asked.client_tls_cert)
        wants = bool(asked.client_tls_cert)
        tls = TlsConfig(
            enabled=True,
            certificate=str(directory / "cert"),
            key=str(directory / "key"),
            client_ca=str(directory / "ca") if wants else "",
            client_certificates=(ClientCertificates.REQUIRED if wants else ClientCertificates.NONE),
        )
    server = LeanServer(METHODS, config, tls=tls)
    await server.start()
    host, _, port = server.address.rpartition(":")
    told = CLASSES["ServerCompatResponse"](
        host=host, port=int(port), pem_cert=asked.server_creds.cert if asked.use_tls else b""
    ).SerializeToString()
    sys.stdout.buffer.write(SIZE.pack(len(told)) + told)
    sys.stdout.buffer.flush()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await server.drain(0)


def main() -> None:
    [size] = SIZE.unpack(sys.stdin.buffer.read(SIZE.size))
    asked = CLASSES["ServerCompatRequest"].FromString(sys.stdin.buffer.read(size))
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(serve(asked, Path(directory)))


if __name__ == "__main__":
    main()
