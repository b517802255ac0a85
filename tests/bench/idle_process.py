"""Run as a module: many clients that are only there, in a process of their own.

    python -m bench.idle_process '{"endpoint": "127.0.0.1:8081", "count": 1000, "heartbeat_s": 10}'

Each has a connection, an open telemetry stream on which it said who it is, and a heartbeat now and
then. Prints one JSON line when all have been answered, and a second one with what became of the
heartbeats when its standard input ends.
"""

import asyncio
import json
import random
import resource
import struct
import sys
import time
from typing import Any, Final

import uvloop

from bench.measured import percentile
from latermq_h2.hpack.encoder import encode
from latermq_h2.http2 import frames
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from support import wire_requests

SERVICE: Final = "/apache.rocketmq.v2.MessagingService"
GROUP: Final = "idlers"
PER_ADDRESS: Final = 900  # a broker takes 1,000 of one address, and ports run out
OPENING: Final = 100  # at once
OPEN_S_MAX: Final = 120.0
LAST_ANSWERS_S_MAX: Final = 5.0
WINDOWS: Final = frames.settings(
    ((frames.INITIAL_WINDOW_SIZE, frames.WINDOW_MAX),)
) + frames.window_update(0, frames.WINDOW_MAX - frames.WINDOW_DEFAULT)


class Idler(asyncio.Protocol):
    """One client on one connection."""

    def __init__(self, number: int, topic: str) -> None:
        self.told = asyncio.get_running_loop().create_future()  # telemetry was answered
        self.lost = False
        self.taken_ms: list[float] = []
        self._client_id = f"host@{number}@0@idle".encode()
        self._topic = topic
        self._beating: dict[int, float] = {}
        self._next_id = 3
        self._buffer = b""
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        subscription = definition_pb2.Subscription(
            group=wire_requests.resource(GROUP),
            subscriptions=[
                definition_pb2.SubscriptionEntry(topic=wire_requests.resource(self._topic))
            ],
        )
        settings = definition_pb2.Settings(
            client_type=definition_pb2.ClientType.SIMPLE_CONSUMER, subscription=subscription
        )
        command = service_pb2.TelemetryCommand(settings=settings)
        transport.write(
            frames.PREFACE + WINDOWS + self._call(1, "Telemetry", command.SerializeToString(), 0)
        )

    def beat(self) -> None:
        """One heartbeat."""
        request = service_pb2.HeartbeatRequest(
            group=wire_requests.resource(GROUP),
            client_type=definition_pb2.ClientType.SIMPLE_CONSUMER,
        )
        stream_id, self._next_id = self._next_id, self._next_id + 2
        self._beating[stream_id] = time.perf_counter()
        data = request.SerializeToString()
        self._transport.write(self._call(stream_id, "Heartbeat", data, frames.END_STREAM))

    @property
    def unanswered(self) -> int:
        return len(self._beating)

    def close(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data
        position = 0
        while len(data) - position >= frames.HEAD_BYTES:
            high, low, kind, flags, stream_id = frames.HEAD.unpack_from(data, position)
            start = position + frames.HEAD_BYTES
            end = start + (high << 8 | low)
            if end > len(data):
                break
            self._frame(kind, flags, stream_id, data[start:end])
            position = end
        self._buffer = data[position:]

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        if not self.told.done():
            self.told.set_exception(error or ConnectionError("closed before it was answered"))

    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind in (frames.SETTINGS, frames.PING) and not flags & frames.ACK:
            answer = payload if kind == frames.PING else b""
            self._transport.write(frames.frame(kind, frames.ACK, 0, answer))
        elif kind == frames.DATA and stream_id == 1 and not self.told.done():
            self.told.set_result(None)
        elif kind == frames.HEADERS and flags & frames.END_STREAM and stream_id in self._beating:
            taken_s = time.perf_counter() - self._beating.pop(stream_id)
            self.taken_ms.append(taken_s * 1_000)

    def _call(self, stream_id: int, method: str, message: bytes, flags: int) -> bytes:
        block = encode(
            [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"bench"),
             (b":path", f"{SERVICE}/{method}".encode()), (b"te", b"trailers"),
             (b"content-type", b"application/grpc"), (b"x-mq-client-id", self._client_id),
             (b"x-mq-language", b"PYTHON"), (b"x-mq-protocol", b"v2"),
             (b"x-mq-client-version", b"5.1.2")]
        )  # fmt: skip
        framed = struct.pack(">BI", 0, len(message)) + message
        return frames.frame(frames.HEADERS, frames.END_HEADERS, stream_id, block) + frames.frame(
            frames.DATA, flags, stream_id, framed
        )


async def run(spec: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    host, _, port = spec["endpoint"].rpartition(":")
    chance = random.Random(1)
    gate = asyncio.Semaphore(OPENING)

    async def open_one(number: int) -> Idler:
        async with gate:
            source = f"127.0.1.{1 + number // PER_ADDRESS}"
            _, idler = await loop.create_connection(
                lambda: Idler(number, spec["topic"]), host, int(port), local_addr=(source, 0)
            )
            await idler.told
            return idler

    began = time.perf_counter()
    async with asyncio.timeout(OPEN_S_MAX):
        idlers = await asyncio.gather(*(open_one(number) for number in range(spec["count"])))
    print(json.dumps({"opened per second": spec["count"] / (time.perf_counter() - began)}))
    sys.stdout.flush()

    over = False

    def beat(idler: Idler) -> None:
        if not idler.lost and not over:
            idler.beat()
            loop.call_later(spec["heartbeat_s"], beat, idler)

    for idler in idlers:
        loop.call_later(chance.random() * spec["heartbeat_s"], beat, idler)
    await loop.run_in_executor(None, sys.stdin.read)
    over = True
    until = time.perf_counter() + LAST_ANSWERS_S_MAX
    while any(idler.unanswered for idler in idlers) and time.perf_counter() < until:
        await asyncio.sleep(0.1)
    taken = sorted(one for idler in idlers for one in idler.taken_ms)
    print(
        json.dumps(
            {
                "heartbeats": len(taken),
                "heartbeats unanswered": sum(idler.unanswered for idler in idlers),
                "heartbeat p99 ms": percentile(taken, 0.99) if taken else 0.0,
                "lost": sum(idler.lost for idler in idlers),
            }
        )
    )
    for idler in idlers:
        idler.close()


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    uvloop.run(run(json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
