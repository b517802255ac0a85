"""A broker of leases in virtual time, and the network before it that loses, delays and refuses.

What it knows of leases: a message is ready, leased, waiting, done or dead; an attempt is counted
when it is lent, and taken back by a suspension. A lease ends by its holder's word, when its holder
is silent or has said farewell, or at the time that an extension named. Each lease's end is kept by
its handle, for a model to compare.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from google.protobuf.message import Message as AnyMessage

from latermq._connection.transport import Metadata
from latermq._values.endpoints import Endpoints
from latermq.errors import RequestTimeoutError, UnavailableError
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2 as rpc
from support.scripted_broker import OK, ScriptedBroker, ScriptedTransport

HEADERS: Final[ContextVar[dict[str, Any]]] = ContextVar("HEADERS")  # of the call under way
SILENT_S: Final = 120.0
FAREWELL_S: Final = 1.0
VERBS: Final = ("AckMessage", "ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue")
INVALID: Final = v2.Status(code=v2.INVALID_RECEIPT_HANDLE, message="no lease")
BUSY: Final = v2.Status(code=v2.TOO_MANY_REQUESTS, message="slow down")
DOWN: Final = v2.Status(code=v2.INTERNAL_SERVER_ERROR, message="broken")


@dataclass
class Parcel:
    """A message, and the lease of who has it."""

    message: v2.Message
    state: str = "ready"
    attempts: int = 0  # lent, and counted
    lent: int = 0
    handle: str = ""
    client: str = ""
    end_s: float = float("inf")  # of a lease that is not renewed, or of a wait


@dataclass
class LeaseBroker(ScriptedBroker):
    """`random` decides which calls meet a fault, while `faulty`; `cut` ends all of them."""

    random: Random = field(default_factory=Random)
    max_attempts: int = 3
    faulty: float = 0.0
    cut: bool = False
    faults: int = 0  # so far
    parcels: list[Parcel] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)  # how each lease ended, by its handle
    failures: dict[str, str] = field(default_factory=dict)  # the class told with it
    _seen: dict[str, float] = field(default_factory=dict)  # clients, when they were last heard

    def connect(self, endpoints: Endpoints) -> "LeaseTransport":
        return LeaseTransport(self, endpoints)

    def send(self, body: bytes, message_group: str | None = None) -> None:
        """Have a message that is ready."""
        fields = {} if message_group is None else {"message_group": message_group}
        self.deliver(body, **fields)
        self.parcels.append(Parcel(self.inbox.pop()))

    @property
    def over(self) -> bool:
        """Whether every message is done or dead."""
        self._pass_time()
        return all(each.state in ("done", "dead") for each in self.parcels)

    def is_live(self, handle: str) -> bool:
        """Tell whether that lease lasts."""
        return self._held(handle) is not None

    def seen(self, client: str) -> None:
        self._pass_time()
        self._seen[client] = asyncio.get_running_loop().time()

    def farewell(self, client: str) -> None:
        for each in self._leased(client):
            each.end_s = min(each.end_s, asyncio.get_running_loop().time() + FAREWELL_S)
        self._arrived.set()

    async def lend(self, client: str, count_max: int, wait_s: float) -> list[v2.Message]:
        """Lend what is ready, waiting for the first."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_s
        while True:
            self.seen(client)
            if got := self._ready(count_max):
                return [self._lend(each, client) for each in got]
            if loop.time() >= until_s or self.cut:
                return []
            self._arrived.clear()
            try:
                async with asyncio.timeout_at(min(until_s, self._next_s())):
                    await self._arrived.wait()
            except TimeoutError:
                pass

    def ack(self, handle: str) -> v2.Status:
        parcel = self._held(handle)
        if parcel is None:
            return OK if self.ends.get(handle) == "ack" else INVALID
        self._end(parcel, "ack", "done")
        return OK

    def forward(self, handle: str) -> v2.Status:
        parcel = self._held(handle)
        if parcel is None:
            return OK if self.ends.get(handle) == "forward" else INVALID
        self._end(parcel, "forward", "dead")
        return OK

    def change(self, request: Any, headers: dict[str, Any]) -> v2.Status:
        handle, meant = request.receipt_handle, headers.get("latermq-change")
        wait_s = request.invisible_duration.ToTimedelta().total_seconds()
        parcel = self._held(handle)
        if parcel is None:
            ended = self.ends.get(handle) in ("nack", "suspend")
            return OK if ended and meant == "end" else INVALID
        now_s = asyncio.get_running_loop().time()
        if meant == "extend":
            parcel.end_s = now_s + wait_s
            return OK
        assert meant == "end", "a change that says neither"
        if request.suspend:
            parcel.attempts -= 1
            self._end(parcel, "suspend", "waiting", now_s + wait_s)
        else:
            last = parcel.attempts >= self.max_attempts
            self._end(parcel, "nack", "dead" if last else "waiting", now_s + wait_s)
        return OK

    def _end(self, parcel: Parcel, how: str, state: str, end_s: float = float("inf")) -> None:
        assert parcel.handle not in self.ends, "a lease ends once"
        self.ends[parcel.handle] = how
        parcel.state, parcel.end_s = state, end_s
        self._arrived.set()

    def _held(self, handle: str) -> Parcel | None:
        self._pass_time()
        for each in self.parcels:
            if each.handle == handle and each.state == "leased":
                return each
        return None

    def _leased(self, client: str) -> list[Parcel]:
        return [each for each in self.parcels if each.client == client and each.state == "leased"]

    def _lease_end_s(self, parcel: Parcel) -> float:
        return min(parcel.end_s, self._seen[parcel.client] + SILENT_S)

    def _pass_time(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for each in self.parcels:
            if each.state == "leased" and self._lease_end_s(each) <= now_s:
                self._end(
                    each, "expired", "dead" if each.attempts >= self.max_attempts else "ready"
                )
            elif each.state == "waiting" and each.end_s <= now_s:
                each.state = "ready"

    def _next_s(self) -> float:
        ends = [self._lease_end_s(each) for each in self.parcels if each.state == "leased"]
        ends += [each.end_s for each in self.parcels if each.state == "waiting"]
        return min(ends, default=float("inf"))

    def _ready(self, count_max: int) -> list[Parcel]:
        blocked: set[str] = set()
        ready: list[Parcel] = []
        for each in self.parcels:
            key = each.message.system_properties.message_group
            if self.fifo and key and key in blocked:
                continue
            if each.state == "ready" and len(ready) < count_max:
                ready.append(each)
            elif each.state not in ("done", "dead"):
                blocked.add(key)
        return ready

    def _lend(self, parcel: Parcel, client: str) -> v2.Message:
        parcel.lent += 1
        parcel.attempts += 1
        system = parcel.message.system_properties
        parcel.handle = f"{system.message_id}/{parcel.lent}"
        parcel.state, parcel.client, parcel.end_s = "leased", client, float("inf")
        lent = v2.Message()
        lent.CopyFrom(parcel.message)
        lent.system_properties.receipt_handle = parcel.handle
        lent.system_properties.delivery_attempt = parcel.attempts
        return lent


class LeaseTransport(ScriptedTransport):
    """The way to it, on which calls and answers are lost, late, or refused."""

    def __init__(self, broker: LeaseBroker, endpoints: Endpoints) -> None:
        super().__init__(broker, endpoints)
        self._leases = broker
        self._answers["AckMessage"] = (rpc.AckMessageRequest, self._acks)
        self._answers["ChangeInvisibleDuration"] = (
            rpc.ChangeInvisibleDurationRequest,
            self._changes,
        )
        self._answers["ForwardMessageToDeadLetterQueue"] = (
            rpc.ForwardMessageToDeadLetterQueueRequest,
            self._forwards,
        )

    async def unary(
        self, path: str, request: bytes, metadata: Metadata, timeout: float | None
    ) -> bytes:
        broker, name = self._leases, path.rsplit("/", 1)[1]
        fault = self._fault(name)
        if broker.cut or fault == "lost":
            await asyncio.sleep(0.001)
            raise UnavailableError("cut before it arrived")
        if fault == "late":
            await asyncio.sleep(broker.random.random() * 2)
        if fault == "refused" and name in (*VERBS, "Heartbeat"):
            broker.refuse(name, broker.random.choice((BUSY, DOWN)))
        headers = dict(metadata)
        client = str(headers["x-mq-client-id"])
        if name == "NotifyClientTermination":
            broker.farewell(client)
        else:
            broker.seen(client)
        HEADERS.set(headers)
        answer = await super().unary(path, request, metadata, timeout)
        if fault == "unheard":
            raise UnavailableError("cut before its answer")
        if fault == "silent":
            await asyncio.sleep(timeout or 3)
            error = RequestTimeoutError(v2.REQUEST_TIMEOUT, "no answer in time")
            error.grpc_code = 4
            raise error
        return answer

    async def server_stream(
        self, path: str, request: bytes, metadata: Metadata, timeout: float | None
    ) -> AsyncGenerator[bytes, None]:
        broker = self._leases
        fault = self._fault("ReceiveMessage")
        if broker.cut or fault == "lost":
            await asyncio.sleep(0.001)
            raise UnavailableError("cut before it arrived")
        parsed = rpc.ReceiveMessageRequest.FromString(request)
        client = str(dict(metadata)["x-mq-client-id"])
        wait_s = parsed.long_polling_timeout.ToTimedelta().total_seconds()
        messages = await broker.lend(client, parsed.batch_size, wait_s)
        if broker.cut or fault is not None:
            raise UnavailableError("cut before its answer")
        status = OK if messages else v2.Status(code=v2.MESSAGE_NOT_FOUND, message="nothing came")
        yield rpc.ReceiveMessageResponse(status=status).SerializeToString()
        for message in messages:
            yield rpc.ReceiveMessageResponse(message=message).SerializeToString()
            await asyncio.sleep(0)

    def _fault(self, name: str) -> str | None:
        broker = self._leases
        eager = 1.0 if name in VERBS else 0.2
        if broker.random.random() >= broker.faulty * eager:
            return None
        broker.faults += 1
        return broker.random.choice(("lost", "unheard", "late", "silent", "refused"))

    def _acks(self, request: rpc.AckMessageRequest, status: v2.Status) -> AnyMessage:
        entries = [
            rpc.AckMessageResultEntry(
                message_id=entry.message_id,
                receipt_handle=entry.receipt_handle,
                status=status if status.code != v2.OK else self._leases.ack(entry.receipt_handle),
            )
            for entry in request.entries
        ]
        return rpc.AckMessageResponse(status=OK, entries=entries)

    def _changes(self, request: Any, status: v2.Status) -> AnyMessage:
        if status.code == v2.OK:
            status = self._leases.change(request, HEADERS.get())
        return rpc.ChangeInvisibleDurationResponse(
            status=status, receipt_handle=request.receipt_handle
        )

    def _forwards(self, request: Any, status: v2.Status) -> AnyMessage:
        if status.code == v2.OK:
            status = self._leases.forward(request.receipt_handle)
        return rpc.ForwardMessageToDeadLetterQueueResponse(status=status)
