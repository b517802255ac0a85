"""All services on an engine in memory, called with raw bytes as a transport would.

The clock starts at the real time, so that what a command prints beside it makes sense, and moves
only through `advance`.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from inspect import isawaitable
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from latermq_broker.catalog.catalog import BackoffKind
from latermq_broker.clock import SystemClock
from latermq_broker.config.config import CatalogConfig, DeliveryConfig, SchedulesConfig
from latermq_broker.deferred import Later
from latermq_broker.engine.state.model import Backoff, Failure, Outgoing, Sent
from latermq_broker.errors import StoreFullError
from latermq_broker.services.call.handler import MethodKind
from latermq_broker.services.registry import Services, assemble
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support.engine_rig import EngineRig
from support.fake_call import FakeCall
from support.fake_committer import FakeCommitter
from support.memory_files import MemoryFiles

Response = TypeVar("Response", bound=Message)


class RigCommitter(FakeCommitter):
    """Writes at once, and reads the rig's clock."""

    def __init__(self, rig: EngineRig) -> None:
        super().__init__()
        self._rig = rig

    def now_ms(self) -> int:
        return self._rig.now_ms

    def written(self) -> Later[None]:
        self._rig.engine.write()
        return super().written()

    def synced(self) -> Later[None]:
        log = self._rig.engine.store.log
        self._rig.engine.write()
        log.synced(log.sync())
        return super().synced()


class V1Rig(EngineRig):
    """`call` and `stream` reach any service; `send_message` and `die` fill the engine."""

    def __init__(
        self,
        *,
        queues: int = 1,
        auto_create: bool = True,
        schedules: SchedulesConfig | None = None,
    ) -> None:
        super().__init__(
            schedules=schedules,
            delivery=DeliveryConfig(max_attempts=3),
            catalog=CatalogConfig(
                default_queue_count=queues, auto_create=auto_create, auto_create_groups=auto_create
            ),
        )
        self.now_ms = SystemClock().now_ms()
        self.committer = RigCommitter(self)
        self.loop = asyncio.new_event_loop()
        services = self.loop.run_until_complete(self._assemble())
        self.background = services.background
        self.methods: Any = services.methods
        self.sessions = services.sessions
        self.transport_view = services.transport_view

    def close(self) -> None:
        self.loop.close()

    async def _assemble(self) -> Services:
        return assemble(self.engine, self.committer, self.config)

    def call(self, path: str, request: Message, response_class: type[Response]) -> Response:
        return response_class.FromString(self.raw(path, request.SerializeToString(), FakeCall()))

    def stream(
        self,
        path: str,
        request: Message,
        response_class: type[Response],
        call: FakeCall | None = None,
    ) -> list[Response]:
        elements = self.raw_stream(path, request.SerializeToString(), call or FakeCall())
        return [response_class.FromString(element) for element in elements]

    def raw(self, path: str, data: bytes, call: FakeCall) -> bytes:
        """One unary call."""
        method = self.methods[path]
        assert method.kind is MethodKind.UNARY

        async def answer() -> bytes:
            result = method.handler(data, call)
            return cast(bytes, await result if isawaitable(result) else result)

        return self.loop.run_until_complete(answer())

    def raw_stream(self, path: str, data: bytes, call: FakeCall) -> list[bytes]:
        """One server stream, to its end."""
        method = self.methods[path]
        assert method.kind is MethodKind.SERVER_STREAM

        async def answer() -> list[bytes]:
            result = method.handler(data, call)
            if isawaitable(result):
                result = await result
            if isinstance(result, AsyncIterator):
                return [element async for element in result]
            return list(result)

        return self.loop.run_until_complete(answer())

    def send_message(
        self,
        message_id: str,
        *,
        topic: str = "orders",
        body: bytes = b"body",
        tag: str = "",
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        wait_ms: int = 0,
        level: int = 0,
    ) -> Sent:
        """A message as the send service stores it."""
        message = definition_pb2.Message(body=body, user_properties=dict(properties or {}))
        system = definition_pb2.SystemProperties(
            message_id=message_id,
            keys=keys,
            body_encoding=definition_pb2.IDENTITY,
            message_type=definition_pb2.DELAY if wait_ms else definition_pb2.NORMAL,
            born_host="host-1",
        )
        if tag:
            system.tag = tag
        system.born_timestamp.FromMilliseconds(self.now_ms - 5)
        system.store_timestamp.FromMilliseconds(self.now_ms)
        if wait_ms:
            system.delivery_timestamp.FromMilliseconds(self.now_ms + wait_ms)
        outgoing = Outgoing(
            topic=topic,
            rest=message.SerializeToString(),
            sys=system.SerializeToString(),
            message_id=message_id,
            tag=tag,
            keys=tuple(keys),
            deliver_at_ms=self.now_ms + wait_ms if wait_ms else 0,
            delay_level=level,
        )
        (sent,) = self.engine.send([outgoing], self.now_ms)
        self.engine.write()
        return sent

    def fill(self) -> None:
        """Send until the log has no room for one message more, on a disk that is full."""
        assert isinstance(self.files, MemoryFiles)
        self.files.disk.capacity_bytes = self.files.disk.used_bytes
        with suppress(StoreFullError):
            while True:
                self.send_message("more", topic="other", body=b"")

    def send_half(self, message_id: str, *, topic: str = "orders") -> Sent:
        """A half message: its transaction has not ended."""
        system = definition_pb2.SystemProperties(message_id=message_id)
        outgoing = Outgoing(topic, b"*\x04body", system.SerializeToString(), message_id)
        (sent,) = self.engine.transactions.send([outgoing], self.now_ms)
        self.engine.write()
        return sent

    def make_group(self, name: str = "billing", *, attempts: int = 3, wait_ms: int = 0) -> None:
        backoff = Backoff(kind=BackoffKind.FIXED, delays_ms=(wait_ms,))
        self.engine.groups.create(
            name, fifo=False, max_attempts=attempts, backoff=backoff, now_ms=self.now_ms
        )

    def fail(self, failure: Failure | None = None, *, group: str = "billing") -> None:
        """Receive one message and give it back."""
        (delivered,) = self.receive(group, count=1)
        self.advance(10)
        self.engine.change_invisible(group, delivered.handle, 0, self.now_ms, failure=failure)
        self.advance(0)

    def die(
        self,
        message_id: str,
        failure: Failure | None = None,
        *,
        topic: str = "orders",
        body: bytes = b"body",
        tag: str = "",
    ) -> None:
        """A dead letter of group billing; nothing else may be receivable in the topic."""
        if self.engine.catalog.group("billing") is None:
            self.make_group()
        self.send_message(message_id, topic=topic, body=body, tag=tag)
        attempts = self.engine.catalog.require_group("billing").max_attempts
        for _ in range(attempts):
            (delivered,) = self.receive("billing", topic=topic, count=1)
            self.advance(10)
            self.engine.change_invisible(
                "billing", delivered.handle, 0, self.now_ms, failure=failure
            )
            self.advance(0)
