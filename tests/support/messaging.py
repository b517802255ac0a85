"""The messaging services as they run: real engine, pump and store, on memory and a test's clock.

Requests go in as bytes with a `FakeCall`, responses come back parsed. Use in a running loop:

    async with Messaging() as broker:
        sent = await broker.send(message("orders", b"body"))
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, cast

from google.protobuf.message import Message

from latermq_broker.config.config import CatalogConfig, Config
from latermq_broker.engine.engine import Engine
from latermq_broker.pump.disk_work import DiskWork
from latermq_broker.pump.pump import Pump
from latermq_broker.services.call.answers import MESSAGING
from latermq_broker.services.call.handler import MethodTable, ServerStream, Unary
from latermq_broker.services.clients.lite_subscriptions import LiteSubscriptions
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.clients.session import Sessions
from latermq_broker.services.messaging.ack import AckService
from latermq_broker.services.messaging.offsets import OffsetService
from latermq_broker.services.messaging.parking import EveryParking
from latermq_broker.services.messaging.recall import RecallService
from latermq_broker.services.messaging.receive import ReceiveService
from latermq_broker.services.messaging.send import SendService
from latermq_broker.services.messaging.sync_lite import LiteService
from latermq_broker.services.messaging.transaction import TransactionService
from latermq_broker.services.rpcs import methods_of
from latermq_broker.store.store import Store
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from support import wire_requests
from support.engine_rig import SMALL_STORE, START_MS
from support.fake_call import FakeCall
from support.memory_files import MemoryFiles

SMALL: Final = Config(store=SMALL_STORE, catalog=CatalogConfig(default_queue_count=1))


class Received(NamedTuple):
    status: definition_pb2.Status
    messages: list[definition_pb2.Message]
    broker_ms: int

    @property
    def bodies(self) -> list[bytes]:
        return [one.body for one in self.messages]


class Messaging:
    """`now_ms` moves only through `advance`."""

    def __init__(
        self,
        config: Config = SMALL,
        files: MemoryFiles | None = None,
        threads: Executor | None = None,
    ) -> None:
        self.time_ms = START_MS
        self.wall_offset_ms = 0
        self.config = config
        self.files = files or MemoryFiles()
        store = Store.open(Path("/data"), config.store, self.files, START_MS)
        self.engine = Engine.open(store, config, START_MS)
        self.sessions = Sessions(config.server)
        self.failures: list[BaseException] = []
        self._threads = threads or ThreadPoolExecutor(1)
        disk = DiskWork(self.engine, self, config.store, self._threads)
        self.pump = Pump(self.engine, self, config, disk, self.failures.append)
        rooms = Rooms(self.engine, self.pump, self.sessions, config)
        self.lite = LiteSubscriptions(config.lite)
        self.receives = ReceiveService(rooms, self.lite)
        offsets = OffsetService(rooms)
        self.parked = EveryParking((self.receives.parking, offsets.parking))
        self.pump.on_ready = self.parked.wake
        self.transactions = TransactionService(rooms)
        self.methods = messaging_methods(
            SendService(rooms),
            self.receives,
            AckService(rooms),
            LiteService(rooms, self.lite, self.receives.serve, self.receives.outlived),
            offsets,
            self.transactions,
            RecallService(rooms),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.parked.drain()
        await asyncio.sleep(0)
        await self.pump.stop()
        self._threads.shutdown()
        assert not self.failures

    def now_ms(self) -> int:
        return self.time_ms

    @property
    def log_end(self) -> int:
        """Grows with everything that is stored."""
        return self.engine.store.log.end

    async def advance(self, step_ms: int) -> None:
        """Time passes; everything due is done and who waits for it is woken."""
        self.time_ms += step_ms
        while (deadline_ms := self.engine.tick(self.time_ms)) is not None:
            if deadline_ms > self.time_ms:
                break
        await self.settle()

    async def settle(self) -> None:
        """Let the pump and all who were woken run."""
        self.pump.leased()
        for _ in range(10):
            await asyncio.sleep(0)

    async def call(self, rpc: str, request: Message | bytes, call: FakeCall | None = None) -> Any:
        """One unary call of apache.rocketmq.v2.MessagingService."""
        response_class = getattr(service_pb2, f"{rpc}Response")
        handler = cast(Unary, self.methods[f"{MESSAGING}/{rpc}"].handler)
        result = handler(_bytes_of(request), call or FakeCall())
        return response_class.FromString(await result if isawaitable(result) else result)

    async def stream(
        self, rpc: str, request: Message | bytes, call: FakeCall | None = None
    ) -> list[Any]:
        """One call with a streamed response, to its end."""
        response_class = getattr(service_pb2, f"{rpc}Response")
        handler = cast(ServerStream, self.methods[f"{MESSAGING}/{rpc}"].handler)
        result = handler(_bytes_of(request), call or FakeCall())
        elements = cast(Sequence[bytes], await result if isawaitable(result) else result)
        return [response_class.FromString(element) for element in elements]

    async def send(
        self, *messages: definition_pb2.Message, call: FakeCall | None = None
    ) -> service_pb2.SendMessageResponse:
        response = await self.call("SendMessage", wire_requests.send(messages), call)
        return cast(service_pb2.SendMessageResponse, response)

    async def receive(
        self, topic: str = "orders", group: str = "billing", **fields: Any
    ) -> Received:
        """Answered at once unless `wait_ms` is given; see `wire_requests.receive`."""
        fields.setdefault("wait_ms", 0)
        call = fields.pop("call", None)
        request = wire_requests.receive(topic, group, **fields)
        return received(await self.stream("ReceiveMessage", request, call))

    async def receive_status(
        self, request: service_pb2.ReceiveMessageRequest, call: FakeCall | None = None
    ) -> definition_pb2.Status:
        """Of a stream that must carry nothing else than it and the time."""
        got = received(await self.stream("ReceiveMessage", request, call))
        assert (got.messages, got.broker_ms) == ([], self.time_ms)
        return got.status

    async def ack(
        self, *handles: str, topic: str = "orders", group: str = "billing"
    ) -> service_pb2.AckMessageResponse:
        response = await self.call("AckMessage", wire_requests.ack(topic, group, handles))
        return cast(service_pb2.AckMessageResponse, response)


def messaging_methods(*handlers: object) -> MethodTable:
    """What of MessagingService these objects answer."""
    return methods_of(service_pb2.DESCRIPTOR.services_by_name["MessagingService"], handlers)


def received(elements: Sequence[service_pb2.ReceiveMessageResponse]) -> Received:
    """A ReceiveMessage stream, its order checked: status, messages, delivery timestamp."""
    kinds = [element.WhichOneof("content") for element in elements]
    assert kinds == ["status", *["message"] * (len(kinds) - 2), "delivery_timestamp"]
    return Received(
        status=elements[0].status,
        messages=[element.message for element in elements[1:-1]],
        broker_ms=wire_requests.timestamp_ms(elements[-1].delivery_timestamp),
    )


def _bytes_of(request: Message | bytes) -> bytes:
    return request if isinstance(request, bytes) else request.SerializeToString()
