"""What a call costs: each server, the same client, one run; ratios to a grpc.aio that only parses.

    python tests/bench/transport.py [--seconds 3] [--passes 2] [--cases unary,batch] [--half]

Servers, each a process of its own:
    grpcio, lean, lean-tls          parse the request and build the reply, nothing else
    broker, broker-tls, broker-grpcio, broker-sync, broker-sync-grpcio    `latermq serve`

CPU is the server's, from the kernel, the best of the passes; rates depend on what else the machine
does. Latencies are those of calls; `half_load` has them at half the rate that was reached. `ratio`
compares rates, `cpu_ratio` CPU, both with grpcio's in the same run.
"""

import argparse
import asyncio
import itertools
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from bench.children import environment  # noqa: E402
from bench.http2_load import Load, Script  # noqa: E402
from latermq_broker.config.config import ServerConfig  # noqa: E402
from latermq_broker.services.call.handler import Call, Method, MethodTable  # noqa: E402
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2  # noqa: E402
from support import wire_requests  # noqa: E402

SERVICE: Final = "/apache.rocketmq.v2.MessagingService"
SEND: Final = f"{SERVICE}/SendMessage"
RECEIVE: Final = f"{SERVICE}/ReceiveMessage"
ACK: Final = f"{SERVICE}/AckMessage"
TOPIC: Final = "bench"
BODY_BYTES: Final = 1_024
RECEIVED: Final = 32
POOL: Final = 512
WARM_UP_S: Final = 0.7
FILL_PER_S: Final = 40_000  # more than a broker gives back
HANDLE: Final = re.compile(rb"\x62\x28([0-9a-f]{40})")
PARSERS: Final = ("lean", "lean-tls")
BROKERS: Final = ("broker", "broker-tls", "broker-grpcio")


class Case(NamedTuple):
    name: str
    connections: int
    in_flight: int  # on each
    servers: tuple[str, ...]
    batch: int = 1  # messages of a send; 0: receives
    constant: bool = False
    gate: float = 0.0  # `cpu_ratio` of the broker on lean


CASES: Final = (
    Case("unary 4x16", 4, 16, PARSERS + BROKERS, gate=5),
    Case("unary 4x16, constant headers", 4, 16, ("lean", "broker"), constant=True),
    Case("unary 64x1", 64, 1, PARSERS + BROKERS, gate=3),
    Case("batch100 4x2", 4, 2, PARSERS + BROKERS, batch=100, gate=1.3),
    Case("receive32 and ack 4x2", 4, 2, PARSERS + BROKERS, batch=0, gate=8),
    Case("sync, 256 waiters 16x16", 16, 16, ("broker-sync", "broker-sync-grpcio"), gate=3),
)


# --- the servers that only parse ----------------------------------------------------------------

_log: list[bytes] = [b""]


def send_message(data: bytes, call: Call) -> bytes:
    request = service_pb2.SendMessageRequest.FromString(data)
    response = service_pb2.SendMessageResponse()
    response.status.code = definition_pb2.OK
    for message in request.messages:
        _log[0] = message.body
        entry = response.entries.add(message_id=message.system_properties.message_id, offset=7)
        entry.status.code = definition_pb2.OK
    return response.SerializeToString()


def received() -> list[bytes]:
    message = wire_requests.message(TOPIC, bytes(BODY_BYTES), tag="TagA")
    message.system_properties.receipt_handle = "ab" * 20
    element = service_pb2.ReceiveMessageResponse(message=message)
    status = service_pb2.ReceiveMessageResponse(status=definition_pb2.Status(code=20000))
    return [status.SerializeToString(), *[element.SerializeToString()] * RECEIVED]


_received: Final = received()


def receive_message(data: bytes, call: Call) -> list[bytes]:
    service_pb2.ReceiveMessageRequest.FromString(data)
    return _received


def ack_message(data: bytes, call: Call) -> bytes:
    request = service_pb2.AckMessageRequest.FromString(data)
    response = service_pb2.AckMessageResponse()
    response.status.code = definition_pb2.OK
    for asked in request.entries:
        entry = response.entries.add(
            message_id=asked.message_id, receipt_handle=asked.receipt_handle
        )
        entry.status.code = definition_pb2.OK
    return response.SerializeToString()


def table() -> MethodTable:
    return {
        SEND: Method.unary(send_message),
        RECEIVE: Method.server_stream(receive_message),
        ACK: Method.unary(ack_message),
    }


async def serve(kind: str) -> None:
    server: Any
    config = ServerConfig(listen="127.0.0.1:0", data_dir=tempfile.mkdtemp())
    if kind.startswith("lean"):
        from latermq_broker.config.server_transport import TlsConfig
        from latermq_broker.transport.lean import LeanServer

        tls = TlsConfig(enabled=kind == "lean-tls", clear_text=kind == "lean")
        server = LeanServer(table(), config, tls=tls)
    else:
        from latermq_broker.transport.grpcio import GrpcioServer

        server = GrpcioServer(table(), config)
    await server.start()
    print(f"latermq ready on {server.address}", flush=True)
    await asyncio.Event().wait()


@contextmanager
def running(kind: str) -> Iterator[tuple[str, int]]:
    """A server's address and process id."""
    with tempfile.TemporaryDirectory() as directory:
        settings = environment()
        command = [sys.executable, __file__, "--serve", kind]
        if kind.startswith("broker"):
            transport = "grpcio" if kind.endswith("grpcio") else "lean"
            settings["LATERMQ_SERVER_TRANSPORT"] = transport
            settings["LATERMQ_TLS_ENABLED"] = "true" if kind.endswith("tls") else "false"
            command = [sys.executable, "-m", "latermq_broker", "serve", "--listen", "127.0.0.1:0"]
            command += ["--data-dir", directory, "--flush", "sync" if "sync" in kind else "async"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=settings)
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split()[-1], server.pid
        finally:
            server.kill()
            server.wait()


# --- what is asked ------------------------------------------------------------------------------


def requests(batch: int) -> list[bytes]:
    """Different messages, as the official Python client fills them in."""

    def message(number: int) -> definition_pb2.Message:
        made = wire_requests.message(TOPIC, bytes(BODY_BYTES), tag="TagA")
        born_ms = 1_795_000_000_000 + number * 17
        made.system_properties.born_timestamp.CopyFrom(wire_requests.timestamp(born_ms))
        made.system_properties.born_host = "producer-host-1"
        return made

    numbers = itertools.count()
    return [
        wire_requests.send([message(next(numbers)) for _ in range(batch)]).SerializeToString()
        for _ in range(max(16, POOL // batch))
    ]


class Sends:
    """Sends for ever, or `left` of them."""

    def __init__(self, pool: list[bytes], batch: int, left: int = -1) -> None:
        self.done = 0
        self._pool = itertools.cycle(pool)
        self._batch = batch
        self._left = left
        self._asked = False

    def next(self, answer: bytes) -> tuple[bytes, bytes] | None:
        if self._asked:
            self.done += self._batch
        self._asked = True
        self._left -= 1
        return (SEND.encode(), next(self._pool)) if self._left != -1 else None


class Receives:
    """Receives up to 32 and acknowledges them in one call, for ever."""

    def __init__(self) -> None:
        self.done = 0
        self._receive = wire_requests.receive(TOPIC, "group").SerializeToString()
        self._acked = 0

    def next(self, answer: bytes) -> tuple[bytes, bytes]:
        self.done += self._acked
        handles = HANDLE.findall(answer) if not self._acked else []
        self._acked = len(handles)
        if not handles:
            return RECEIVE.encode(), self._receive
        request = wire_requests.ack(TOPIC, "group", [handle.decode() for handle in handles])
        return ACK.encode(), request.SerializeToString()


async def connect(loads: list[Load], address: str, tls: bool) -> None:
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    for each in loads:
        await loop.create_connection(
            lambda each=each: each, host, int(port), ssl=any_certificate() if tls else None
        )


async def fill(address: str, tls: bool, count: int) -> None:
    pool = requests(100)
    scripts = [Sends(pool, 100, left=count // 800 + 1) for _ in range(8)]
    loads = [Load([script]) for script in scripts]
    await connect(loads, address, tls)
    while sum(script.done for script in scripts) < count:
        await asyncio.sleep(0.05)


async def load(
    case: Case, kind: str, address: str, pid: int, seconds: float, per_second: float = 0.0
) -> dict[str, float]:
    """Measure; `per_second`: at this pace, not as fast as it goes."""
    tls = kind.endswith("tls")
    make: Callable[[], Script] = Receives
    if case.batch:
        pool = requests(case.batch)
        make = lambda: Sends(pool, case.batch)  # noqa: E731
    elif kind.startswith("broker"):
        await fill(address, tls, int((seconds + WARM_UP_S) * FILL_PER_S))
    slots = case.connections * case.in_flight
    scripts = [[make() for _ in range(case.in_flight)] for _ in range(case.connections)]
    a_call = case.batch or RECEIVED / 2  # messages; a receive and an acknowledgement are two calls
    pause_s = slots * a_call / per_second if per_second else 0.0
    loads = [
        Load(each, constant=case.constant, keep_answers=not case.batch, pause_s=pause_s)
        for each in scripts
    ]
    await connect(loads, address, tls)
    await asyncio.sleep(WARM_UP_S)
    every = list(itertools.chain.from_iterable(scripts))
    for one in loads:
        one.latencies_us.clear()
    done, cpu, began = sum(script.done for script in every), cpu_s(pid), time.perf_counter()
    await asyncio.sleep(seconds)
    count = sum(script.done for script in every) - done
    took, used = time.perf_counter() - began, cpu_s(pid) - cpu
    latencies = sorted(itertools.chain.from_iterable(one.latencies_us for one in loads))
    assert count, "no call was answered"
    return {
        "per_s": round(count / took),
        "cpu_us": round(used / count * 1e6, 2),
        "p50_ms": round(latencies[len(latencies) // 2] / 1e3, 2),
        "p99_ms": round(latencies[len(latencies) * 99 // 100] / 1e3, 2),
        "failed": sum(one.failed for one in loads),
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


# --- all of it ----------------------------------------------------------------------------------


def measure(case: Case, kind: str, seconds: float, per_second: float = 0.0) -> dict[str, float]:
    with running(kind) as (address, pid):
        return uvloop.run(load(case, kind, address, pid, seconds, per_second))


def run(case: Case, seconds: float, passes: int, half: bool) -> Iterator[dict[str, Any]]:
    """One row per server; of the passes the one with the least CPU."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(passes):
        for kind in ("grpcio", *case.servers):
            found = measure(case, kind, seconds)
            if kind not in best or found["cpu_us"] < best[kind]["cpu_us"]:
                best[kind] = found
    base = best["grpcio"]
    for kind, found in best.items():
        row: dict[str, Any] = {"case": case.name, "server": kind, **found}
        row["ratio"] = round(found["per_s"] / base["per_s"], 2)
        row["cpu_ratio"] = round(base["cpu_us"] / found["cpu_us"], 2)
        if half:
            calm = measure(case, kind, seconds, found["per_s"] / 2)
            row["half_load"] = {
                name: calm[name] for name in ("per_s", "cpu_us", "p50_ms", "p99_ms")
            }
        if case.gate and kind in ("broker", "broker-sync"):
            row["gate"] = case.gate
            row["passes"] = row["cpu_ratio"] >= case.gate
        yield row


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--serve", help=argparse.SUPPRESS)
    arguments.add_argument("--seconds", type=float, default=3.0)
    arguments.add_argument("--passes", type=int, default=2, help="the least CPU of these counts")
    arguments.add_argument("--cases", default="", help="only those that begin so, comma separated")
    arguments.add_argument("--servers", default="", help="only these besides grpcio")
    arguments.add_argument("--half", action="store_true", help="latencies at half load too")
    chosen = arguments.parse_args()
    if chosen.serve:
        uvloop.run(serve(chosen.serve))
        return
    for case in CASES:
        if chosen.cases and not case.name.startswith(tuple(chosen.cases.split(","))):
            continue
        if chosen.servers:
            only = tuple(kind for kind in case.servers if kind in chosen.servers.split(","))
            case = case._replace(servers=only)
        for row in run(case, chosen.seconds, chosen.passes, chosen.half):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
