"""Run as a module: one load on a broker, from a process of its own; prints one JSON object.

    python -m bench.load_process '{"load": "unary_send", "endpoint": "127.0.0.1:8081", …}'

Requests are serialised beforehand and answers of sends are not parsed, so that the generator costs
as little as Python allows: it shares the machine with the broker.
"""

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
import uvloop

from bench.measured import percentile
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from latermq_proto.latermq.v1 import broker_pb2
from support import wire_requests

SERVICE: Final = "/apache.rocketmq.v2.MessagingService"
HEADERS: Final = wire_requests.metadata("load@1@0@bench")
POOL: Final = 500  # different requests that a sender cycles through
RECEIVE_BATCH: Final = 32
OK_STATUS: Final = definition_pb2.Status(code=definition_pb2.Code.OK).SerializeToString()[:4]


class Client:
    """One channel; bytes in, bytes out."""

    def __init__(self, endpoint: str) -> None:
        self._channel = grpc.aio.insecure_channel(endpoint, wire_requests.CHANNEL_OPTIONS)
        self._send = self._channel.unary_unary(f"{SERVICE}/SendMessage")
        self._ack = self._channel.unary_unary(f"{SERVICE}/AckMessage")
        self._describe = self._channel.unary_unary("/latermq.v1.Brokers/GetBroker")
        self._receive = self._channel.unary_stream(f"{SERVICE}/ReceiveMessage")

    async def close(self) -> None:
        await self._channel.close()

    async def send(self, request: bytes) -> None:
        answer: bytes = await self._send(request, metadata=HEADERS)
        if OK_STATUS not in answer[:8]:
            raise RuntimeError(str(service_pb2.SendMessageResponse.FromString(answer).status))

    async def ack(self, topic: str, group: str, handles: list[str]) -> None:
        await self._ack(
            wire_requests.ack(topic, group, handles).SerializeToString(), metadata=HEADERS
        )

    async def due_count(self) -> int:
        """Delayed messages whose time has come since the broker started."""
        answer = broker_pb2.GetBrokerResponse.FromString(await self._describe(b""))
        return answer.broker.totals.messages_due

    async def receive(
        self, topic: str, group: str, wait_ms: int
    ) -> AsyncIterator[definition_pb2.Message]:
        request = wire_requests.receive(topic, group, count_max=RECEIVE_BATCH, wait_ms=wait_ms)
        async for element in self._receive(request.SerializeToString(), metadata=HEADERS):
            answer = service_pb2.ReceiveMessageResponse.FromString(element)
            if answer.HasField("message"):
                yield answer.message


def pool(topic: str, body_bytes: int, batch: int) -> "itertools.cycle[bytes]":
    """Requests to send one after the other, for ever."""
    count = max(1, POOL // batch)
    body = os.urandom(body_bytes)  # a disk may store what is all zeros for less
    requests = [
        wire_requests.send(
            [wire_requests.message(topic, body, tag="t") for _ in range(batch)]
        ).SerializeToString()
        for _ in range(count)
    ]
    return itertools.cycle(requests)


def latencies(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "p50 ms": percentile(ordered, 0.5) * 1000,
        "p99 ms": percentile(ordered, 0.99) * 1000,
        "max ms": ordered[-1] * 1000,
    }


async def send(spec: dict[str, Any]) -> dict[str, float]:
    """`concurrency` senders for `seconds`, after a warm-up of a fifth of it."""
    figures = await spread({**spec, "endpoints": [spec["endpoint"]]})
    return {name: value for name, value in figures.items() if name != "sent"}


async def spread(spec: dict[str, Any]) -> dict[str, float]:
    """Send as `send` does to all of `endpoints`, in turns; `sent` counts the warm-up, too."""
    clients = [Client(endpoint) for endpoint in spec["endpoints"]]
    turns = itertools.cycle(clients)
    requests = pool(spec["topic"], spec["body_bytes"], spec["batch"])
    taken: list[float] = []
    calls = 0
    begin = time.perf_counter() + spec["seconds"] / 5
    end = begin + spec["seconds"]

    async def sender() -> None:
        nonlocal calls
        while (asked := time.perf_counter()) < end:
            await next(turns).send(next(requests))
            answered = time.perf_counter()
            calls += 1
            if begin <= answered < end:
                taken.append(answered - asked)

    await asyncio.gather(*(sender() for _ in range(spec["concurrency"])))
    for client in clients:
        await client.close()
    rate = len(taken) * spec["batch"] / spec["seconds"]
    return {"per_second": rate, "sent": calls * spec["batch"], **latencies(taken)}


async def pace(spec: dict[str, Any]) -> dict[str, float]:
    """One send each `pause_ms`, for `seconds`."""
    client = Client(spec["endpoint"])
    requests = pool(spec["topic"], 1_024, 1)
    taken: list[float] = []
    begin = time.perf_counter()
    for index in range(int(spec["seconds"] * 1_000 / spec["pause_ms"])):
        due = begin + index * spec["pause_ms"] / 1_000
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        asked = time.perf_counter()
        await client.send(next(requests))
        taken.append(time.perf_counter() - asked)
    await client.close()
    return latencies(taken)


class Window:
    """What was sent in a stretch of time."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self.late: list[float] = []  # of the load itself: from when a send was due to the call
        self.open: set[asyncio.Task[None]] = set()


async def steady(spec: dict[str, Any]) -> dict[str, float]:
    """`per_second` sends over `connections`, each at its time, whoever still waits for an answer.

    For each line on standard input prints the figures of those since the line before, and how many
    they were, once all of them are answered. Goes on until standard input ends.
    """
    clients = [Client(spec["endpoint"]) for _ in range(spec["connections"])]
    requests = pool(spec["topic"], spec["body_bytes"], 1)
    window = Window()

    async def send_one(client: Client, into: list[float]) -> None:
        asked = time.perf_counter()
        await client.send(next(requests))
        into.append(time.perf_counter() - asked)

    async def send_all(group: asyncio.TaskGroup) -> None:
        begin = time.perf_counter()
        for index, client in enumerate(itertools.cycle(clients)):
            due = begin + index / spec["per_second"]
            if (wait_s := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            window.late.append(max(0.0, time.perf_counter() - due))
            task = group.create_task(send_one(client, window.taken))
            window.open.add(task)
            task.add_done_callback(window.open.discard)

    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(send_all(group))
        while await loop.run_in_executor(None, sys.stdin.readline):
            over, window = window, Window()
            await asyncio.gather(*over.open)
            late_ms = percentile(sorted(over.late), 0.99) * 1000
            figures = {"load late ms": late_ms, "sent": len(over.taken), **latencies(over.taken)}
            print(json.dumps(figures), flush=True)
        sending.cancel()
    for client in clients:
        await client.close()
    return {}


async def fill(spec: dict[str, Any]) -> dict[str, float]:
    """`count` messages into the topic, in batches of 100."""
    client = Client(spec["endpoint"])
    requests = pool(spec["topic"], spec["body_bytes"], 100)
    left = iter(range(spec["count"] // 100))

    async def sender() -> None:
        for _ in left:
            await client.send(next(requests))

    await asyncio.gather(*(sender() for _ in range(4)))
    await client.close()
    return {}


async def receive_ack(spec: dict[str, Any]) -> dict[str, float]:
    """`concurrency` consumers empty the topic: receive up to 32, acknowledge them in one call."""
    client = Client(spec["endpoint"])
    topic, group = spec["topic"], spec["group"]
    count, last = 0, 0.0

    async def consumer() -> None:
        nonlocal count, last
        while count < spec["count"]:
            handles = [
                message.system_properties.receipt_handle
                async for message in client.receive(topic, group, 1_000)
            ]
            if handles:
                await client.ack(topic, group, handles)
                count += len(handles)
                last = time.perf_counter()

    begin = time.perf_counter()
    await asyncio.gather(*(consumer() for _ in range(spec["concurrency"])))
    await client.close()
    if count != spec["count"]:
        raise RuntimeError(f"{count} of {spec['count']} messages came")
    return {"per_second": count / (last - begin)}


async def wake(spec: dict[str, Any]) -> dict[str, float]:
    """A send each `pause_ms` while four receives wait; from just before the send to the message."""
    sent_s: dict[bytes, float] = {}

    async def send_one(client: Client, body: bytes) -> None:
        request = wire_requests.send([wire_requests.message(spec["topic"], body)])
        data = request.SerializeToString()
        sent_s[body] = time.perf_counter()
        await client.send(data)

    def late(message: definition_pb2.Message) -> float:
        return time.perf_counter() - sent_s[message.body]

    return latencies(await _paced(spec, send_one, late))


async def delayed(spec: dict[str, Any]) -> dict[str, float]:
    """A message each `pause_ms`, due `delay_ms` later; from its due time to its arrival."""

    async def send_one(client: Client, body: bytes) -> None:
        due_ms = time.time_ns() // 1_000_000 + spec["delay_ms"]
        message = wire_requests.message(spec["topic"], body, deliver_at_ms=due_ms)
        await client.send(wire_requests.send([message]).SerializeToString())

    def late(message: definition_pb2.Message) -> float:
        due = message.system_properties.delivery_timestamp
        return time.time() - due.seconds - due.nanos / 1e9

    taken = await _paced(spec, send_one, late)
    return {"early": float(sum(seconds < 0 for seconds in taken)), **latencies(taken)}


async def burst(spec: dict[str, Any]) -> dict[str, Any]:
    """`count` messages due at one instant, `lead_ms` from now; a send each `pause_ms` from then on.

    Until all have come due, and a second at least. The timeline has a row for each half second:
    how many had come due at its end, and the latencies of its sends.
    """
    client = Client(spec["endpoint"])
    due_ms = time.time_ns() // 1_000_000 + spec["lead_ms"]
    message = wire_requests.message(spec["topic"], bytes(100), deliver_at_ms=due_ms)
    batch = wire_requests.send([message] * 100).SerializeToString()
    left = iter(range(spec["count"] // 100))

    async def fill() -> None:
        for _ in left:
            await client.send(batch)

    await asyncio.gather(*(fill() for _ in range(4)))
    spare_s = due_ms / 1_000 - time.time()
    if spec["count"] and spare_s < 0:
        raise RuntimeError(f"filling took {-spare_s:.1f} s too long")
    before = await client.due_count()
    await asyncio.sleep(max(0.0, spare_s))
    begin = time.perf_counter()
    taken: list[float] = []
    timeline: list[dict[str, float]] = []
    due = 0
    fresh = wire_requests.send([wire_requests.message(spec["topic"], b"fresh")])
    request = fresh.SerializeToString()
    while due < spec["count"] or len(timeline) < 2:
        row: list[float] = []
        row_end = begin + (len(timeline) + 1) / 2
        while (asked := time.perf_counter()) < row_end:
            await client.send(request)
            row.append(time.perf_counter() - asked)
            await asyncio.sleep(spec["pause_ms"] / 1_000)
        due = await client.due_count() - before
        at_s = time.perf_counter() - begin
        timeline.append({"at_s": at_s, "due": due, **latencies(row)})
        taken += row
    await client.close()
    per_second = spec["count"] / timeline[-1]["at_s"]
    return {"per_second": per_second, "timeline": timeline, **latencies(taken)}


async def _paced(
    spec: dict[str, Any],
    send_one: Callable[[Client, bytes], Awaitable[None]],
    late: Callable[[definition_pb2.Message], float],
) -> list[float]:
    """Send at a fixed pace while four receives wait; what `late` says of each message."""
    client = Client(spec["endpoint"])
    topic, group, count = spec["topic"], spec["group"], spec["count"]
    taken: list[float] = []

    async def receiver() -> None:
        while len(taken) < count:
            async for message in client.receive(topic, group, 1_000):
                taken.append(late(message))
                await client.ack(topic, group, [message.system_properties.receipt_handle])

    receivers = [asyncio.create_task(receiver()) for _ in range(4)]
    await asyncio.sleep(0.2)
    begin = time.perf_counter()
    for index in range(count):
        await asyncio.sleep(max(0.0, begin + index * spec["pause_ms"] / 1000 - time.perf_counter()))
        await send_one(client, b"%08d" % index)
    await asyncio.gather(*receivers)
    await client.close()
    return taken


LOADS: Final[dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, float]]]]] = {
    "send": send,
    "spread": spread,
    "pace": pace,
    "steady": steady,
    "fill": fill,
    "receive_ack": receive_ack,
    "wake": wake,
    "delayed": delayed,
    "burst": burst,
}


def main() -> None:
    spec = json.loads(sys.argv[1])

    async def run() -> dict[str, float]:
        return await LOADS[spec["load"]](spec)

    print(json.dumps(uvloop.run(run())))


if __name__ == "__main__":
    main()
