"""What administers a broker: every service of `latermq.v1`, call by call, for threads.

    with latermq.admin.connect("127.0.0.1:8081") as broker:
        made = broker.call(broker.topics.CreateTopic, topic_pb2.CreateTopicRequest(name="orders"))

Requests and answers are the protobuf messages of `latermq_proto`. The command line stands on it.
Transports, credentials and TLS are those of `latermq.connect`, but a call fails at once where no
broker answers. `apache.rocketmq.v2` is there too, as `messaging`.
"""

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from latermq._connection.loop_thread import LoopThread
from latermq._connection.one_loop import OneLoop
from latermq._connection.signed_hosts import SignedHosts, signed_hosts
from latermq._connection.transport import Metadata, Transport
from latermq._connection.transports import TRANSPORT_VARIABLE, chosen
from latermq._values import arguments
from latermq._values.credentials import credentials_of
from latermq._values.endpoints import Endpoints
from latermq._values.identity import message_ids, new_client_id
from latermq._values.settings import ENDPOINT, ENDPOINT_VARIABLE, ClientKind, Profile
from latermq._values.tls import Tls, tls_of
from latermq._wire.policies import backoff_message, read_backoff
from latermq._wire.session_calls import ClientHeaders, endpoints_of, parsed, read_endpoints
from latermq.codes import Code
from latermq.errors import error_for
from latermq_proto.apache.rocketmq.v2 import service_pb2
from latermq_proto.latermq.v1 import (
    backup_pb2,
    broker_pb2,
    client_pb2,
    cluster_pb2,
    dead_letter_pb2,
    group_pb2,
    limit_pb2,
    message_pb2,
    pending_pb2,
    queue_pb2,
    schedule_pb2,
    topic_pb2,
    user_pb2,
)

__all__ = [
    "Admin",
    "AsyncAdmin",
    "Endpoints",
    "Method",
    "Service",
    "backoff_message",
    "check_status",
    "connect",
    "connect_async",
    "message_ids",
    "read_backoff",
    "read_endpoints",
]

CALL_TIMEOUT_S: Final = 30.0
PAGE_SIZE_MAX: Final = 1000
FINE: Final = frozenset({int(Code.OK), int(Code.MULTIPLE_RESULTS)})

Answer = TypeVar("Answer", bound=Message)


@dataclass(frozen=True, slots=True)
class Method(Generic[Answer]):
    """One RPC: where it is, and what it answers."""

    path: str
    answer: type[Answer]


class Service:
    """The methods of one service, by the names in its .proto file."""

    def __init__(self, module: Any, name: str) -> None:
        self._descriptor = module.DESCRIPTOR.services_by_name[name]

    def __getattr__(self, name: str) -> Method[Any]:
        method = self._descriptor.methods_by_name.get(name)
        if method is None:
            raise AttributeError(f"{self._descriptor.full_name} has no method {name}")
        path = f"/{self._descriptor.full_name}/{name}"
        return Method(path, GetMessageClass(method.output_type))


class _Services:
    messaging: ClassVar = Service(service_pb2, "MessagingService")
    topics: ClassVar = Service(topic_pb2, "Topics")
    groups: ClassVar = Service(group_pb2, "Groups")
    limits: ClassVar = Service(limit_pb2, "Limits")
    pending: ClassVar = Service(pending_pb2, "Pending")
    users: ClassVar = Service(user_pb2, "Users")
    messages: ClassVar = Service(message_pb2, "Messages")
    brokers: ClassVar = Service(broker_pb2, "Brokers")
    clients: ClassVar = Service(client_pb2, "Clients")
    dead_letters: ClassVar = Service(dead_letter_pb2, "DeadLetters")
    queues: ClassVar = Service(queue_pb2, "Queues")
    backups: ClassVar = Service(backup_pb2, "Backups")
    cluster: ClassVar = Service(cluster_pb2, "Cluster")
    schedules: ClassVar = Service(schedule_pb2, "Schedules")


class AsyncAdmin(_Services):
    """`Admin` for coroutines, without listings; to be made inside a running event loop.

    Args:
        owns: the connection is its own; False: another's, and stays open when this is closed.
        hosts: where signed calls may go; None: anywhere.
    """

    def __init__(
        self,
        profile: Profile,
        transport: Transport,
        *,
        owns: bool = True,
        hosts: SignedHosts | None = None,
    ) -> None:
        self._profile = profile
        self._hosts = hosts
        self._headers = ClientHeaders(profile)
        self._transport = transport
        self._owns = owns
        self._one_loop = OneLoop()

    @property
    def access_point(self) -> Any:
        """Return the broker's address as a QueryRouteRequest wants it."""
        return endpoints_of(self._profile.access_point)

    async def ask(
        self,
        method: Method[Answer],
        request: Message,
        *,
        metadata: Metadata = (),
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Answer:
        """Return the answer, whatever its status is."""
        self._check()
        data = await self._transport.unary(
            method.path, request.SerializeToString(), self._headers.next(metadata), timeout_s
        )
        return parsed(method.answer, data)

    async def call(
        self,
        method: Method[Answer],
        request: Message,
        *,
        metadata: Metadata = (),
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Answer:
        """Return the answer, whose status is OK or MULTIPLE_RESULTS.

        Raises:
            RequestError: another status.
        """
        answer = await self.ask(method, request, metadata=metadata, timeout_s=timeout_s)
        check_status(answer)
        return answer

    async def stream(
        self, method: Method[Answer], request: Message, *, timeout_s: float | None = None
    ) -> AsyncGenerator[Answer, None]:
        """Yield a stream's elements; their statuses are the caller's to check."""
        self._check()
        pieces = self._transport.server_stream(
            method.path, request.SerializeToString(), self._headers.next(()), timeout_s
        )
        async with aclosing(pieces):
            async for data in pieces:
                yield parsed(method.answer, data)

    def _check(self) -> None:
        """Raises RuntimeError: another loop's; UntrustedHostError: calls may not be signed here."""
        self._one_loop.check()
        if self._hosts is not None:
            self._hosts.check(self._profile.access_point)

    async def close(self) -> None:
        """Close the connection, if it is its own; calls that are under way fail."""
        if self._owns:
            await self._transport.close()


class Admin(_Services):
    """Made by `connect`; to be closed, or used as a block. Safe to share between threads.

    Every call raises LaterMQError: UnavailableError where no broker answers, `grpc_code` and
    `grpc_text` of an error say how else a call ended without an answer.
    """

    def __init__(self, loop: LoopThread, inner: AsyncAdmin) -> None:
        self._loop = loop
        self._inner = inner
        weakref.finalize(self, loop.leave, inner.close).atexit = False  # of one that nobody closed

    @property
    def access_point(self) -> Any:
        """Return the broker's address as a QueryRouteRequest wants it."""
        return self._inner.access_point

    def ask(
        self,
        method: Method[Answer],
        request: Message,
        *,
        metadata: Metadata = (),
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Answer:
        """Return the answer, whatever its status is."""
        work = self._inner.ask(method, request, metadata=metadata, timeout_s=timeout_s)
        return self._loop.call(work)

    def call(
        self,
        method: Method[Answer],
        request: Message,
        *,
        metadata: Metadata = (),
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Answer:
        """Return the answer, whose status is OK or MULTIPLE_RESULTS.

        Raises:
            RequestError: another status.
        """
        work = self._inner.call(method, request, metadata=metadata, timeout_s=timeout_s)
        return self._loop.call(work)

    def stream(
        self, method: Method[Answer], request: Message, *, timeout_s: float | None = None
    ) -> Generator[Answer]:
        """Yield a stream's elements as they come; their statuses are the caller's to check."""
        elements = _Elements(self._inner.stream(method, request, timeout_s=timeout_s))
        try:
            while (element := self._loop.call(elements.next())) is not None:
                yield element
        finally:
            if self._loop.running:
                self._loop.call(elements.close())

    def each(self, method: Method[Any], request: Any, field: str, limit: int) -> Iterator[Any]:
        """Yield at most `limit` items of a paged listing, page by page.

        `request` has page_size and page_token, which are set here; afterwards the token is empty
        unless there are more items.
        """
        for answer in self.pages(method, request, field, limit):
            yield from getattr(answer, field)

    def pages(self, method: Method[Any], request: Any, field: str, limit: int) -> Iterator[Any]:
        """Yield the answers of a paged listing, with at most `limit` items together, as `each`."""
        left = limit
        while left > 0:
            request.page_size = min(PAGE_SIZE_MAX, left)
            answer = self.call(method, request)
            left -= len(getattr(answer, field))
            request.page_token = answer.next_page_token
            yield answer
            if not request.page_token:
                return

    def close(self) -> None:
        """Close the connection, and end its thread."""
        if not self._loop.running:
            return
        try:
            self._loop.call(self._inner.close())
        finally:
            self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Elements(Generic[Answer]):
    """A stream that is closed only after the wait for its next element has ended, or was ended."""

    def __init__(self, elements: AsyncGenerator[Answer, None]) -> None:
        self._elements = elements
        self._turn = asyncio.Lock()

    async def next(self) -> Answer | None:
        """Return the next element, None at the end."""
        async with self._turn:
            return await anext(self._elements, None)

    async def close(self) -> None:
        async with self._turn:
            await self._elements.aclose()


def check_status(answer: Any) -> None:
    """Raise the error that a status other than OK or MULTIPLE_RESULTS stands for."""
    status = answer.status
    if status.code not in FINE:
        raise error_for(status.code, status.message)


def connect_async(
    endpoint: str | None = None,
    *,
    access_key: str | None = None,
    secret: str | None = None,
    tls: bool | Tls | None = None,
    transport: str | None = None,
    client_id: str | None = None,
    named_by: Sequence[str] = (),
) -> AsyncAdmin:
    """Return what `connect` does, for coroutines; to be called inside a running event loop."""
    for name, value in (("endpoint", endpoint), ("transport", transport), ("client_id", client_id)):
        arguments.optional_text(name, value)
    arguments.not_blank("endpoint", endpoint, "leave it out for $LATERMQ_ENDPOINT")
    text = endpoint or os.environ.get(ENDPOINT_VARIABLE) or ENDPOINT
    profile = Profile(
        kind=ClientKind.PRODUCER,
        client_id=client_id or new_client_id(),
        access_point=Endpoints.parse(text),
        credentials=credentials_of(access_key, secret),
    )
    security = tls_of(tls)
    make = chosen(transport or os.environ.get(TRANSPORT_VARIABLE), security, waits=False)
    hosts = signed_hosts(
        [Endpoints.parse(each) for each in named_by or (text,)], profile.credentials, security
    )
    return AsyncAdmin(profile, make(profile.access_point), hosts=hosts)


def connect(
    endpoint: str | None = None,
    *,
    access_key: str | None = None,
    secret: str | None = None,
    tls: bool | Tls | None = None,
    transport: str | None = None,
    client_id: str | None = None,
    named_by: Sequence[str] = (),
) -> Admin:
    """Return an `Admin` of the broker at "host:port"; nothing is opened yet.

    Args:
        client_id: names the caller in leases and histories; None: a new one.
        named_by: endpoints that the user named, if a broker there named this one. Signed calls go
            to another host than theirs only where TLS checks certificates, else a call raises
            UntrustedHostError.
        the others: as for `latermq.connect`.
    Raises:
        ValueError, OSError, TypeError: as there.
    """

    async def made() -> AsyncAdmin:
        return connect_async(
            endpoint,
            access_key=access_key,
            secret=secret,
            tls=tls,
            transport=transport,
            client_id=client_id,
            named_by=named_by,
        )

    loop = LoopThread()
    try:
        return Admin(loop, loop.call(made()))
    except BaseException:
        loop.stop()
        raise
