"""The load behind `latermq bench`: workers on one connection, and what they measured.

At a wanted rate each call is due at a fixed time and its latency counts from there, so that a slow
broker cannot hide its waits by slowing the generator down. Every wait is bounded.
"""

import asyncio
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from latermq import admin
from latermq.errors import LaterMQError
from latermq_cli.connection.connection import command_error, opened
from latermq_cli.connection.credentials import current_access
from latermq_cli.terminal.console import counted
from latermq_cli.terminal.failures import OK, CommandError, RefusedError, error_of
from latermq_h2.grpc_code import GrpcCode
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

RECEIVE_BATCH: Final = 32
INVISIBLE_S: Final = 60
POLL_S: Final = 5
LAST_POLL_S: Final = 1  # a receive that finds nothing for so long has emptied the topic
CALL_TIMEOUT_S: Final = 30
DRAIN_S: Final = 10.0  # a roundtrip waits this long for its last messages
NOT_FOUND: Final = 40401


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    endpoint: str
    topic: str
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """rate: messages per second, None: as fast as it goes; count: None: until the time is up."""

    concurrency: int
    duration_s: float
    count: int | None
    body_bytes: int
    rate: int | None
    batch: int


@dataclass(slots=True)
class Report:
    """What was measured. latencies: seconds, one per call (per message in a roundtrip)."""

    seconds: float = 0.0
    messages: int = 0
    calls: int = 0
    body_bytes: int = 0
    latencies: "array[float]" = field(default_factory=lambda: array("d"))
    errors: Counter[str] = field(default_factory=Counter)
    missing: int | None = None
    refusals: int = 0  # of the errors, those that come again as long as it is asked like this
    doubled: int = 0
    last_at: float = 0.0  # loop time of the last message

    def failure(self) -> CommandError | None:
        """Say what went wrong, in one sentence; None: nothing did."""
        if self.errors:
            reason, _ = self.errors.most_common(1)[0]
            failed = counted(self.errors.total(), "call")
            only = self.refusals == self.errors.total() and not self.messages
            return (RefusedError if only else CommandError)(f"{failed} failed: {reason}")
        if self.missing:
            lost = counted(self.missing, "message")
            return CommandError(f"{lost} sent and not received within {DRAIN_S:g} s")
        return None

    def figures(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        seconds = max(self.seconds, 1e-9)
        ordered = sorted(self.latencies)
        figures: dict[str, Any] = {
            "seconds": round(self.seconds, 3),
            "messages": self.messages,
            "calls": self.calls,
            "messages_per_second": round(self.messages / seconds, 1),
            "megabytes_per_second": round(self.body_bytes / seconds / 1e6, 3),
            "latency_ms": {
                name: round(percentile(ordered, share) * 1000, 3)
                for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
            },
            "errors": dict(self.errors),
        }
        if self.missing is not None:
            figures |= {"missing": self.missing, "doubled": self.doubled}
        return figures


def percentile(ordered: list[float], share: float) -> float:
    """Find the smallest value that at least `share` of them do not exceed; 0.0 of none."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, max(0, -int(-len(ordered) * share // 1) - 1))]


class _Pace:
    """Hands out turns: when the next call is due, until the count or the time is used up."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._handed = 0

    def left_s(self) -> float:
        return self._start + self._load.duration_s - self._loop.time()

    async def turn(self) -> tuple[float, int] | None:
        """Wait for a turn: (when it was due, messages to send); None when there are no more."""
        first, load = self._handed, self._load
        size = load.batch if load.count is None else min(load.batch, load.count - first)
        if size < 1 or self.left_s() <= 0:
            return None
        self._handed += size
        now = self._loop.time()
        if load.rate is None:
            return now, size
        due = self._start + first / load.rate
        if due - self._start >= load.duration_s:
            return None
        if due > now:
            await asyncio.sleep(due - now)
        return due, size


class _Client:
    """One connection and the calls a load needs."""

    def __init__(self, target: Target, load: Load) -> None:
        self._target = target
        self._access = current_access()
        self._admin = opened(admin.connect_async, target.endpoint, self._access)
        self._ids = admin.message_ids()
        self._unavailable: CommandError | None = None  # once it is known
        self._body = (b"latermq bench " * (load.body_bytes // 14 + 1))[: load.body_bytes]

    async def close(self) -> None:
        await self._admin.close()

    def why(self, error: LaterMQError) -> CommandError:
        """Return what a failed call means, in words.

        Whoever finds nobody there tries TLS first, which stops the loop: once.
        """
        unavailable = error.grpc_code == GrpcCode.UNAVAILABLE
        if unavailable and self._unavailable is not None:
            return self._unavailable
        failed = command_error(error, self._target.endpoint, self._access)
        if unavailable:
            self._unavailable = failed
        return failed

    def batch(self, size: int) -> service_pb2.SendMessageRequest:
        """Make a send of `size` messages with ids of their own."""
        return service_pb2.SendMessageRequest(messages=[self._message() for _ in range(size)])

    async def send(self, request: service_pb2.SendMessageRequest) -> str:
        """Send one batch; the error's text, or "" when all were accepted."""
        method = self._admin.messaging.SendMessage
        response = await self._admin.ask(method, request, timeout_s=CALL_TIMEOUT_S)
        return "" if response.status.code == OK else str(response.status.message)

    def _message(self) -> definition_pb2.Message:
        message = definition_pb2.Message(
            topic=definition_pb2.Resource(name=self._target.topic), body=self._body
        )
        message.system_properties.message_id = self._ids.next()
        message.system_properties.body_encoding = definition_pb2.IDENTITY
        return message

    async def receive(self, wait_s: int = POLL_S) -> AsyncIterator[definition_pb2.Message]:
        """Yield one receive call's messages. Raises what `error_of` says."""
        request = service_pb2.ReceiveMessageRequest(
            group=definition_pb2.Resource(name=self._target.group),
            message_queue=definition_pb2.MessageQueue(
                topic=definition_pb2.Resource(name=self._target.topic)
            ),
            filter_expression=definition_pb2.FilterExpression(expression="*"),
            batch_size=RECEIVE_BATCH,
        )
        request.invisible_duration.FromSeconds(INVISIBLE_S)
        request.long_polling_timeout.FromSeconds(wait_s)
        method = self._admin.messaging.ReceiveMessage
        elements = self._admin.stream(method, request, timeout_s=wait_s + CALL_TIMEOUT_S)
        async with aclosing(elements):
            async for element in elements:
                kind = element.WhichOneof("content")
                if kind == "message":
                    yield element.message
                elif kind == "status" and element.status.code not in (OK, NOT_FOUND):
                    raise error_of(element.status.code, element.status.message)

    async def ack(self, handles: list[str]) -> str:
        request = service_pb2.AckMessageRequest(
            group=definition_pb2.Resource(name=self._target.group),
            topic=definition_pb2.Resource(name=self._target.topic),
            entries=[service_pb2.AckMessageEntry(receipt_handle=handle) for handle in handles],
        )
        method = self._admin.messaging.AckMessage
        response = await self._admin.ask(method, request, timeout_s=CALL_TIMEOUT_S)
        return "" if response.status.code == OK else str(response.status.message)


async def send_load(target: Target, load: Load) -> Report:
    """Send for a while; one latency per call."""
    return await _measured(target, load, _sender)


async def receive_load(target: Target, load: Load) -> Report:
    """Receive and acknowledge until empty; one latency per receive call that gave something."""
    return await _measured(target, load, _receiver)


_Worker = Callable[["_Client", _Pace, Load, Report], Awaitable[None]]


async def _measured(target: Target, load: Load, worker: _Worker) -> Report:
    report, client = Report(), _Client(target, load)
    loop = asyncio.get_running_loop()
    start, pace = loop.time(), _Pace(load)
    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(load.concurrency):
                tasks.create_task(_guarded(worker(client, pace, load, report), client, report))
    finally:
        # Not until the workers ended: receivers wait for a while before they find nothing more.
        report.seconds = (report.last_at or loop.time()) - start
        await client.close()
    return report


async def _guarded(work: Awaitable[None], client: _Client, report: Report) -> None:
    """Run a worker; a call that fails stops it, and its reason stays in the report."""
    try:
        await work
    except LaterMQError as error:
        report.errors[client.why(error).message] += 1
    except CommandError as refusal:
        report.errors[refusal.message] += 1
        report.refusals += isinstance(refusal, RefusedError)


async def _sender(client: _Client, pace: _Pace, load: Load, report: Report) -> None:
    loop = asyncio.get_running_loop()
    while (turn := await pace.turn()) is not None:
        due, size = turn
        error = await client.send(client.batch(size))
        report.calls += 1
        if error:
            report.errors[error] += 1
            continue
        report.last_at = loop.time()
        report.latencies.append(report.last_at - due)
        report.messages += size
        report.body_bytes += size * load.body_bytes


async def _receiver(client: _Client, pace: _Pace, load: Load, report: Report) -> None:
    loop = asyncio.get_running_loop()
    while pace.left_s() > 0 and (load.count is None or report.messages < load.count):
        start = loop.time()
        messages = [message async for message in client.receive(LAST_POLL_S)]
        if not messages:
            return
        report.latencies.append(loop.time() - start)
        report.calls += 1
        report.messages += len(messages)
        report.body_bytes += sum(len(message.body) for message in messages)
        error = await client.ack([each.system_properties.receipt_handle for each in messages])
        report.last_at = loop.time()
        if error:
            report.errors[error] += 1


async def roundtrip(target: Target, load: Load) -> Report:
    """Send and receive at once; one latency per message."""
    report, client = Report(), _Client(target, load)
    loop = asyncio.get_running_loop()
    start, pace = loop.time(), _Pace(load)
    flight = _Flight(report)
    consumers = [
        asyncio.create_task(_guarded(_consume(client, flight, report), client, report))
        for _ in range(max(2, load.concurrency // 4))
    ]
    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(load.concurrency):
                tasks.create_task(_guarded(_produce(client, pace, flight, report), client, report))
        report.seconds = loop.time() - start
        drained = loop.time() + DRAIN_S
        while flight.missing() and loop.time() < drained:
            await asyncio.sleep(0.05)
    finally:
        for task in consumers:
            task.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
        await client.close()
    report.missing = flight.missing()
    return report


class _Flight:
    """Which messages of this run are on their way, since when."""

    def __init__(self, report: Report) -> None:
        self._sent_at: dict[str, float] = {}
        self._arrived: set[str] = set()
        self._report = report

    def missing(self) -> int:
        return len(self._sent_at) - len(self._arrived)

    def leave(self, request: service_pb2.SendMessageRequest, now: float) -> None:
        for message in request.messages:
            self._sent_at[message.system_properties.message_id] = now

    def refused(self, request: service_pb2.SendMessageRequest) -> None:
        for message in request.messages:
            self._sent_at.pop(message.system_properties.message_id, None)

    def arrive(self, message: definition_pb2.Message, now: float) -> None:
        """Count it; what an earlier run left in the topic is none of ours."""
        message_id = message.system_properties.message_id
        if message_id not in self._sent_at:
            return
        if message_id in self._arrived:
            self._report.doubled += 1
            return
        self._arrived.add(message_id)
        self._report.latencies.append(now - self._sent_at[message_id])
        self._report.messages += 1
        self._report.body_bytes += len(message.body)


async def _produce(client: _Client, pace: _Pace, flight: _Flight, report: Report) -> None:
    loop = asyncio.get_running_loop()
    while (turn := await pace.turn()) is not None:
        request = client.batch(turn[1])
        flight.leave(request, loop.time())
        error = await client.send(request)
        report.calls += 1
        if error:
            report.errors[error] += 1
            flight.refused(request)


async def _consume(client: _Client, flight: _Flight, report: Report) -> None:
    loop = asyncio.get_running_loop()
    while True:
        handles = []
        async for message in client.receive():
            flight.arrive(message, loop.time())
            handles.append(message.system_properties.receipt_handle)
        if handles and (error := await client.ack(handles)):
            report.errors[error] += 1
