"""What a call costs on each transport: the same handlers, the same client, one run.

    python tests/bench/transport.py [--seconds 3] [--passes 2]

The client writes header blocks as the official Python client does (grpc-core: a table of stable
fields, eight literals of which one is new in every call). Server and client are processes of their
own. CPU is the server's, from the kernel; rates depend on what else the machine does.
One JSON line per case and transport, then one with the ratios.
"""

import argparse
import asyncio
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop

from latermq_broker.config import ServerConfig
from latermq_broker.services.seam import Call, Method, MethodTable
from latermq_broker.transport.hpack.encoder import integer, literal
from latermq_broker.transport.http2 import frames
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

PACKAGES: Final = [str(Path(__file__).resolve().parents[2] / name)
                   for name in ("broker", "proto", "client")]  # fmt: skip
TRANSPORTS: Final = ("grpcio", "lean", "lean-tls")
SEND: Final = "/apache.rocketmq.v2.MessagingService/SendMessage"
RECEIVE: Final = "/apache.rocketmq.v2.MessagingService/ReceiveMessage"
BODY_BYTES: Final = 1_024
STREAMED: Final = 32
WINDOW_LEFT_MIN: Final = 1 << 29
WARM_UP_S: Final = 0.7


class Case(NamedTuple):
    name: str
    path: str
    connections: int
    in_flight: int  # on each


CASES: Final = (
    Case("unary 4x16", SEND, 4, 16),
    Case("unary 64x1", SEND, 64, 1),
    Case("stream32 4x4", RECEIVE, 4, 4),
)


# --- the server ---------------------------------------------------------------------------------

_log: list[bytes] = [b""]


def send_message(data: bytes, call: Call) -> bytes:
    """Parse, copy the body away, build a reply."""
    request = service_pb2.SendMessageRequest.FromString(data)
    _log[0] = request.messages[0].body
    entry = service_pb2.SendResultEntry(message_id="01AABBCCDDEEFF00112233445566778899", offset=7)
    entry.status.code = definition_pb2.OK
    return service_pb2.SendMessageResponse(status=entry.status, entries=[entry]).SerializeToString()


_messages: Final = [bytes(BODY_BYTES)] * STREAMED


def receive_message(data: bytes, call: Call) -> list[bytes]:
    return _messages


def table() -> MethodTable:
    return {SEND: Method.unary(send_message), RECEIVE: Method.server_stream(receive_message)}


async def serve(transport: str) -> None:
    server: Any
    config = ServerConfig(listen="127.0.0.1:0")
    if transport.startswith("lean"):
        from latermq_broker.config_transport import TlsConfig
        from latermq_broker.transport.lean import LeanServer

        tls = TlsConfig(enabled=transport == "lean-tls", clear_text=transport == "lean")
        server = LeanServer(table(), config, tls=tls, data_dir=Path(tempfile.mkdtemp()))
    else:
        from latermq_broker.transport.grpcio import GrpcioServer

        server = GrpcioServer(table(), config)
    await server.start()
    print(server.address, flush=True)
    await asyncio.Event().wait()


# --- the client ---------------------------------------------------------------------------------


def stable_block(path: str) -> tuple[bytes, bytes]:
    """The first call's leading fields, which enter the table, and those of all later calls."""
    indexed = [
        (b"user-agent", b"grpc-python-asyncio/1.71.2 grpc-c/46.0.0 (linux; chttp2)"),
        (b"grpc-accept-encoding", b"identity, deflate, gzip"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b":path", path.encode()),
        (b":authority", b"127.0.0.1:8081"),
    ]
    first = b"\x83\x86"  # :method POST, :scheme http
    for name, value in reversed(indexed):
        first += b"\x40" + integer(len(name), 7) + name + integer(len(value), 7) + value
    later = b"\x83\x86" + bytes(range(0x80 + 62 + 5, 0x80 + 62 - 1, -1))
    return first, later


def metadata_block(request_id: bytes) -> bytes:
    signature = b"MQv2-HMAC-SHA1 Credential=key/RocketMQ, SignedHeaders=x-mq-date-time, Signature="
    fields = (
        (b"x-mq-language", b"PYTHON"), (b"x-mq-protocol", b"v2"),
        (b"x-mq-client-version", b"5.1.2"),
        (b"x-mq-date-time", b"20261121T081700Z"), (b"x-mq-request-id", request_id),
        (b"x-mq-client-id", b"host@4711@0@abcdefgh"), (b"x-mq-namespace", b"ns"),
        (b"authorization", signature + b"A" * 40),
    )  # fmt: skip
    return b"".join(literal(name, value) for name, value in fields)


class Load(asyncio.Protocol):
    """One connection that keeps `in_flight` calls running."""

    def __init__(self, case: Case, message: bytes) -> None:
        self.done = 0
        self.latencies_us: list[float] = []
        self.failed = 0
        self._in_flight = case.in_flight
        self._next_id = 1
        self._first, self._later = stable_block(case.path)
        marker = b"?" * 36
        before, _, after = metadata_block(marker).partition(marker)
        self._parts = (before, after)
        self._message = b"\0" + len(message).to_bytes(4, "big") + message
        self._prefix = uuid.uuid4().hex[:20].encode()
        self._window = frames.WINDOW_DEFAULT
        self._waiting = 0
        self._started: dict[int, float] = {}
        self._buffer = b""
        self._taken = 0
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        settings = ((frames.INITIAL_WINDOW_SIZE, frames.WINDOW_MAX), (frames.ENABLE_PUSH, 0))
        grow = frames.window_update(0, frames.WINDOW_MAX - frames.WINDOW_DEFAULT)
        transport.write(frames.PREFACE + frames.settings(settings) + grow)
        self._start(self._in_flight)

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data
        position, stop, ended, out = 0, len(data), 0, b""
        unpack = frames.HEAD.unpack_from
        while stop - position >= 9:
            high, low, kind, flags, stream_id = unpack(data, position)
            end = position + 9 + (high << 8 | low)
            if end > stop:
                break
            if kind <= frames.HEADERS:
                if flags & frames.END_STREAM:
                    ended += 1
                    begun = self._started.pop(stream_id)
                    self.latencies_us.append((time.perf_counter() - begun) * 1e6)
                if kind == frames.DATA:
                    self._taken += end - position - 9
            elif kind == frames.WINDOW_UPDATE and stream_id == 0:
                self._window += int.from_bytes(data[position + 9 : end], "big")
            elif kind in (frames.SETTINGS, frames.PING) and not flags & frames.ACK:
                payload = data[position + 9 : end] if kind == frames.PING else b""
                out += frames.frame(kind, frames.ACK, 0, payload)
            elif kind in (frames.RST_STREAM, frames.GOAWAY):
                self.failed += 1
            position = end
        self._buffer = data[position:]
        if self._taken >= WINDOW_LEFT_MIN:
            out += frames.window_update(0, self._taken)
            self._taken = 0
        if out:
            self._transport.write(out)
        self.done += ended
        self._start(ended)

    def _start(self, count: int) -> None:
        out = []
        size = len(self._message)
        before, after = self._parts
        self._waiting += count
        now = time.perf_counter()
        while self._waiting and self._window >= size:
            stream_id = self._next_id
            self._next_id += 2
            request_id = b"%s%016d" % (self._prefix, stream_id)
            lead = self._later if stream_id > 1 else self._first
            length = len(lead) + len(before) + 36 + len(after)
            out += [frames.head(frames.HEADERS, frames.END_HEADERS, stream_id, length), lead,
                    before, request_id, after,
                    frames.head(frames.DATA, frames.END_STREAM, stream_id, size),
                    self._message]  # fmt: skip
            self._window -= size
            self._waiting -= 1
            self._started[stream_id] = now
        if out:
            self._transport.write(b"".join(out))


def request() -> bytes:
    message = service_pb2.SendMessageRequest()
    one = message.messages.add(body=bytes(BODY_BYTES))
    one.topic.name = "orders"
    one.system_properties.message_id = "01AABBCCDDEEFF00112233445566778899"
    return message.SerializeToString()


async def load(
    case: Case, address: str, seconds: float, pid: int, over_tls: bool
) -> dict[str, float]:
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    loads = [Load(case, request()) for _ in range(case.connections)]
    for each in loads:
        await loop.create_connection(
            lambda each=each: each,
            host,
            int(port),
            ssl=any_certificate() if over_tls else None,
        )
    await asyncio.sleep(WARM_UP_S)
    for each in loads:
        each.latencies_us.clear()
    done, cpu, began = sum(each.done for each in loads), cpu_s(pid), time.perf_counter()
    await asyncio.sleep(seconds)
    calls = sum(each.done for each in loads) - done
    took, used = time.perf_counter() - began, cpu_s(pid) - cpu
    latencies = sorted(latency for each in loads for latency in each.latencies_us)
    failed = sum(each.failed for each in loads)
    assert calls, "no call was answered"
    return {
        "calls_per_s": round(calls / took),
        "cpu_us": round(used / calls * 1e6, 1),
        "p50_us": round(latencies[len(latencies) // 2]),
        "p99_us": round(latencies[len(latencies) * 99 // 100]),
        "failed": failed,
    }


def any_certificate() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        words = stat.read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


# --- both ---------------------------------------------------------------------------------------


def measure(transport: str, case: Case, seconds: float) -> dict[str, float]:
    command = [sys.executable, __file__, "--serve", transport]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(PACKAGES)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        return uvloop.run(load(case, address, seconds, server.pid, transport == "lean-tls"))
    finally:
        server.kill()
        server.wait()


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--serve", choices=TRANSPORTS, help=argparse.SUPPRESS)
    arguments.add_argument("--seconds", type=float, default=3.0)
    arguments.add_argument("--passes", type=int, default=2, help="the best CPU of these counts")
    chosen = arguments.parse_args()
    if chosen.serve:
        uvloop.run(serve(chosen.serve))
        return
    for case in CASES:
        best: dict[str, dict[str, float]] = {}
        for _ in range(chosen.passes):
            for transport in TRANSPORTS:
                found = measure(transport, case, chosen.seconds)
                if transport not in best or found["cpu_us"] < best[transport]["cpu_us"]:
                    best[transport] = found
        for transport, found in best.items():
            print(json.dumps({"case": case.name, "transport": transport, **found}))
        lean, grpcio = best["lean"], best["grpcio"]
        ratios = {
            "rate": round(lean["calls_per_s"] / grpcio["calls_per_s"], 1),
            "cpu": round(grpcio["cpu_us"] / lean["cpu_us"], 1),
        }
        print(json.dumps({"case": case.name, "lean_over_grpcio": ratios}), flush=True)


if __name__ == "__main__":
    main()
