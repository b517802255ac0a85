"""The way in: `connect`, and the `Client` it returns."""

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from latermq._connection.batching import Batching
from latermq._connection.session import Connections, Session
from latermq._connection.signed_hosts import SignedHosts, signed_hosts
from latermq._connection.transport import Transport
from latermq._connection.transports import TRANSPORT_VARIABLE, chosen
from latermq._consuming.figures import ConsumerStats
from latermq._consuming.inbox import CACHED_BYTES_MAX, CACHED_COUNT_MAX
from latermq._consuming.lite_topics import LiteTopics
from latermq._values import arguments
from latermq._values.credentials import Credentials, credentials_of
from latermq._values.endpoints import Endpoints
from latermq._values.identity import new_client_id
from latermq._values.settings import (
    ENDPOINT,
    ENDPOINT_VARIABLE,
    MATCH_ALL,
    REQUEST_TIMEOUT,
    ClientKind,
    Profile,
)
from latermq._values.subscriptions import subscriptions
from latermq._values.tls import Tls, tls_of
from latermq._wire.transactions import Half
from latermq.errors import ClosedError
from latermq.lite_consumers import LitePushConsumer, LiteSimpleConsumer
from latermq.message import NO_PROPERTIES, Message, SendReceipt
from latermq.middleware import Around, Middleware
from latermq.producer import TRIES, Producer, time_of_day, within
from latermq.push_consumer import BroadcastConsumer, PushConsumer
from latermq.simple_consumer import AskingConsumer, SimpleConsumer
from latermq.transaction import Checker, Transaction

if TYPE_CHECKING:
    from latermq.admin import AsyncAdmin

TOGETHER: Final = Batching()


class Client:
    """A connection to a broker, and everything made with it. Made by `connect`.

    Opens what it needs on first use; leaving its block closes its consumers, then itself.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        namespace: str = "",
        request_timeout: timedelta = REQUEST_TIMEOUT,
        credentials: Credentials | None = None,
        transport: Callable[[Endpoints], Transport] | None = None,
        batching: Batching | None = TOGETHER,
        now: Callable[[], datetime] = time_of_day,
        hosts: SignedHosts | None = None,
    ) -> None:
        arguments.duration("request_timeout", request_timeout)
        if request_timeout <= timedelta(0):
            raise ValueError(f"request_timeout must be positive, not {request_timeout}")
        arguments.text("namespace", namespace)
        if not isinstance(batching, Batching | None):
            raise arguments.wrong("batching", "a Batching or None", batching)
        self._endpoints = endpoints
        self._namespace = namespace
        self._request_timeout = request_timeout
        self._credentials = credentials
        self._connections = Connections(transport or chosen(), hosts)
        self._producer: Producer | None = None
        self._producer_id = ""  # a new one
        self._service = ""  # whose workers its push consumers are; "": of no app
        self._batching = batching
        self._now = now
        self._around = Around()
        self._consumers: list[AskingConsumer | PushConsumer] = []
        self._closed = False

    @property
    def reachable(self) -> bool:
        """Tell whether the last call to each broker was answered; True before the first."""
        return not self._connections.outages.count

    @property
    def _is_over(self) -> bool:
        """Tell whether the event loop is closed that it was used in."""
        return self._connections.loop.is_over

    @property
    def _sends_as(self) -> str:
        """Return the client id that it sends under; "": none so far."""
        return self._producer_id if self._producer is None else self._producer.client_id

    def use(self, middleware: Middleware) -> None:
        """Have it called around sends, and around listeners that are not called yet.

        Raises:
            TypeError: it is no `latermq.middleware.Middleware`.
        """
        self._around.use(middleware)

    @property
    def admin(self) -> "AsyncAdmin":
        """Return what administers this broker, over the connection of this client."""
        return self._admin_at(self._endpoints)

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] = NO_PROPERTIES,
        message_group: str | None = None,
        priority: int | None = None,
        lite_topic: str | None = None,
        deliver_at: datetime | None = None,
        delay: timedelta | None = None,
        delay_level: int | None = None,
        dedup_id: str | None = None,
        tries: int = TRIES,
        timeout: timedelta | None = None,
    ) -> SendReceipt:
        """Store one message; it is safe with the broker when this returns.

        At most one of the three times: an instant, a time from now, or a level (1 to 18) of the
        broker's ladder 1s 5s 10s 30s 1m … 2h. A priority needs a topic of that type. If another
        message of the topic had the `dedup_id` within 5 minutes, nothing is stored, and the receipt
        is a `duplicate`. Tries, time and errors: as `send_batch`.
        """
        message = Message(
            body,
            tag=tag,
            keys=keys,
            properties=properties,
            message_group=message_group,
            priority=priority,
            lite_topic=lite_topic,
            deliver_at=deliver_at,
            delay=delay,
            dedup_id=dedup_id,
        )
        work = self._send_one(topic, message, delay_level, tries)
        return await (work if timeout is None else within(timeout, work))

    async def send_batch(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        delay_level: int | None = None,
        tries: int = TRIES,
        timeout: timedelta | None = None,
    ) -> list[SendReceipt]:
        """Store several messages of one topic with one call, all or none.

        Args:
            tries: calls in all, where the first one brings no answer or the broker is overloaded.
            timeout: for all of them together; None: what they take, with their own time-outs.
        Raises:
            TopicNotFoundError: and it is not created on use.
            MessageTooLargeError, IllegalMessageError: one of them is refused; none is stored.
            UnavailableError, RequestTimeoutError: after the last try, or when the time is up; they
                may or may not be stored.
            TooManyRequestsError: after the last try; not stored.
        """
        sender = self._sender()

        async def send(topic: str, changed: Sequence[Message]) -> Sequence[SendReceipt]:
            return await sender.send(topic, changed, delay_level, tries)

        work = self._around.send(topic, messages, send)
        return await (work if timeout is None else within(timeout, work))

    def transaction(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] = NO_PROPERTIES,
        check_after: timedelta | None = None,
    ) -> Transaction:
        """Make a block around work that the message tells of.

            async with mq.transaction("orders", body):
                await db.charge(order)

        The message is stored when the block begins, delivered when it is left, and never delivered
        when the block raises. If the broker hears neither, it asks: see `check_transactions`.

        Args:
            check_after: the broker waits so long before it asks; at most an hour. None: 6 s.
        """
        arguments.name_of("topic", topic)
        arguments.optional_duration("check_after", check_after)
        if check_after is not None and check_after <= timedelta(0):
            raise ValueError(f"check_after must be positive, not {check_after}")
        message = Message(body, tag=tag, keys=keys, properties=properties)
        sender = self._sender()

        async def send_half() -> tuple[Half, Endpoints]:
            stored: list[tuple[Half, Endpoints]] = []

            async def send(topic: str, changed: Sequence[Message]) -> Sequence[SendReceipt]:
                stored.append(await sender.send_half(topic, changed[0], check_after))
                half, _ = stored[-1]
                return [SendReceipt(topic=topic, message_id=half.message_id, queue_offset=-1)]

            await self._around.send(topic, [message], send)
            if not stored:
                raise ValueError("middleware did not send the transaction's half message")
            return stored[-1]

        return Transaction(send_half, sender.ends)

    async def check_transactions(self, topic: str, checker: Checker) -> None:
        """Answer the broker when it asks how transactions of the topic ended.

        Call it at the start of every process that begins such transactions, and look the answer up
        where the work is done (in the database): the process that began one may be gone.

        Args:
            checker: gets the half message and returns a `Resolution`, or is a coroutine function;
                UNKNOWN, or an error, has the broker ask again later, here or elsewhere.
        Raises:
            TopicNotFoundError: and it is not created on use.
            UnavailableError: no broker answers.
        """
        arguments.name_of("topic", topic)
        if not callable(checker):
            raise arguments.wrong("checker", "a function", checker)
        await self._sender().ends.check(topic, checker)

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Take a delayed message back, so that it is never delivered; return its message id.

        Args:
            recall_handle: of the message's `SendReceipt`.
        Raises:
            NotFoundError: it was delivered or recalled already.
            BadRequestError: not a handle of this broker.
        """
        arguments.name_of("topic", topic)
        arguments.text("recall_handle", recall_handle)
        return await self._sender().recall(topic, recall_handle)

    def simple_consumer(
        self, topics: str | Mapping[str, str], *, group: str, tags: str = MATCH_ALL
    ) -> SimpleConsumer:
        """Make a consumer that asks for its messages.

        Args:
            topics: one name, or names with their filters.
            tags: "a || b", "*" for all, or an `Sql`; for the one topic.
        """
        session = self._session(ClientKind.SIMPLE_CONSUMER, group, subscriptions(topics, tags))
        consumer = SimpleConsumer(session, self._around)
        self._keep(consumer)
        return consumer

    def push_consumer(
        self,
        topics: str | Mapping[str, str],
        *,
        group: str,
        tags: str = MATCH_ALL,
        concurrency: int | None = None,
        cached_count_max: int = CACHED_COUNT_MAX,
        cached_bytes_max: int = CACHED_BYTES_MAX,
        receive_max: int | None = None,
        receive_pause: timedelta = timedelta(0),
        broadcast: bool = False,
        lease_max: timedelta | None = None,
    ) -> PushConsumer:
        """Make a consumer that is handed its messages: iterate over it, or give it a listener.

        Args:
            topics: one name, or names with their filters.
            tags: "a || b", "*" for all, or an `Sql`; for the one topic.
            concurrency: how many calls of a listener run at a time; None: 20. Not for loops.
            cached_count_max: messages received and not settled, per queue.
            cached_bytes_max: their bodies together.
            receive_max: messages of one receive; None: what the broker gives, 32 usually.
            receive_pause: at least so long between two receives from a queue.
            broadcast: every consumer gets every message, whoever else of the group does: once, from
                its start on, without retries. The group is for rights, and a name in lists.
            lease_max: how long a message stays with whoever it was handed to, at most 12 h; then it
                comes again. None: as long as the broker renews, 3 h since it was received.
        """
        filters = subscriptions(topics, tags)
        arguments.name_of("group", group)
        kind = ClientKind.SIMPLE_CONSUMER if broadcast else ClientKind.PUSH_CONSUMER
        consumer = (BroadcastConsumer if broadcast else PushConsumer)(
            lambda: self._session(kind, group, filters),
            self._around,
            concurrency=concurrency,
            cached_count_max=cached_count_max,
            cached_bytes_max=cached_bytes_max,
            receive_max=receive_max,
            receive_pause=receive_pause,
            lease_max=lease_max,
        )
        self._keep(consumer)
        return consumer

    @property
    def stats(self) -> list[ConsumerStats]:
        """Return what its push consumers did and hold: a row for each consumer and topic."""
        pushed = [each for each in self._consumers if isinstance(each, PushConsumer)]
        return [row for consumer in pushed for row in consumer.stats]

    def lite_simple_consumer(
        self, parent: str, *, group: str, taken: Callable[[str], None] | None = None
    ) -> LiteSimpleConsumer:
        """Make a consumer that asks for messages of the lite topics it subscribes to.

        Args: as `lite_push_consumer`.
        """
        topics = LiteTopics(parent, taken)
        session = self._session(ClientKind.LITE_SIMPLE_CONSUMER, group, {parent: MATCH_ALL})
        consumer = LiteSimpleConsumer(session, topics, self._around)
        self._keep(consumer)
        return consumer

    def lite_push_consumer(
        self,
        parent: str,
        *,
        group: str,
        taken: Callable[[str], None] | None = None,
        concurrency: int | None = None,
        cached_count_max: int = CACHED_COUNT_MAX,
        cached_bytes_max: int = CACHED_BYTES_MAX,
    ) -> LitePushConsumer:
        """Make a consumer that is handed messages of the lite topics it subscribes to.

        Args:
            parent: a topic of type lite.
            group: one for lite topics; bound to the parent on first use.
            taken: called with each lite topic that another client of an exclusive group took.
            concurrency, cached_count_max, cached_bytes_max: as `push_consumer`.
        """
        consumer = LitePushConsumer(
            lambda: self._session(ClientKind.LITE_PUSH_CONSUMER, group, {parent: MATCH_ALL}),
            LiteTopics(parent, taken),
            self._around,
            concurrency=concurrency,
            cached_count_max=cached_count_max,
            cached_bytes_max=cached_bytes_max,
        )
        self._keep(consumer)
        return consumer

    async def close(self) -> None:
        """Close every consumer as its own `close` does, then the connections."""
        if self._is_over:  # and with its loop all that it had
            self._closed = True
            return
        self._connections.loop.check()
        self._closed = True
        for consumer in self._consumers:
            await consumer.close()
        if self._producer is not None:
            await self._producer.close()
        await self._connections.close()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _send_one(
        self, topic: str, message: Message, delay_level: int | None = None, tries: int = TRIES
    ) -> Coroutine[Any, Any, SendReceipt]:
        """Return the work of `send`: with middleware around it, or without a step more."""
        sender = self._sender()
        if not self._around.sends:
            return sender.send_one(topic, message, delay_level, tries)

        async def send(topic: str, changed: Sequence[Message]) -> Sequence[SendReceipt]:
            return [await sender.send_one(topic, changed[0], delay_level, tries)]

        async def first() -> SendReceipt:
            (receipt,) = await self._around.send(topic, [message], send)
            return receipt

        return first()

    def _admin_at(self, endpoints: Endpoints) -> "AsyncAdmin":
        """Return what administers one of the brokers that routes name."""
        from latermq.admin import AsyncAdmin  # with every service's messages, which few need

        profile = self._profile(ClientKind.PRODUCER, "", {})
        return AsyncAdmin(profile, self._connections.to(endpoints), owns=False)

    def _sender(self) -> Producer:
        if self._producer is None:
            session = self._session(ClientKind.PRODUCER, "", {}, self._producer_id)
            self._producer = Producer(session, self._batching, self._now)
        return self._producer

    def _keep(self, consumer: AskingConsumer | PushConsumer) -> None:
        """Remember to close it; those closed before need not be."""
        self._consumers = [c for c in self._consumers if not c.closed]
        self._consumers.append(consumer)

    def _session(
        self, kind: ClientKind, group: str, topics: dict[str, str], client_id: str = ""
    ) -> Session:
        if kind is not ClientKind.PRODUCER:
            arguments.name_of("group", group)
        if self._closed:
            raise ClosedError("this client is closed")
        return Session(self._profile(kind, group, topics, client_id), self._connections)

    def _profile(
        self, kind: ClientKind, group: str, topics: dict[str, str], client_id: str = ""
    ) -> Profile:
        return Profile(
            kind=kind,
            client_id=client_id or new_client_id(),
            access_point=self._endpoints,
            namespace=self._namespace,
            group=group,
            service=self._service if kind is ClientKind.PUSH_CONSUMER else "",
            topics=dict(topics),
            request_timeout=self._request_timeout,
            credentials=self._credentials,
        )


def connect(
    endpoint: str | None = None,
    *,
    namespace: str = "",
    request_timeout: timedelta = REQUEST_TIMEOUT,
    access_key: str | None = None,
    secret: str | None = None,
    tls: bool | Tls | None = None,
    transport: str | None = None,
    batching: Batching | None = TOGETHER,
) -> Client:
    """Return a client of the broker at "host:port"; nothing is opened yet.

    Args:
        endpoint: without it $LATERMQ_ENDPOINT, without that 127.0.0.1:8081. Where brokers
            stand by for each other, "10.0.0.1:8081;10.0.0.2:8081": the one that answers is asked.
        namespace: of RocketMQ's clients; LaterMQ has none, so it must be empty.
        request_timeout: for each call to the broker; a receive adds its wait.
        access_key, secret: sign every call as this user; without both $LATERMQ_ACCESS_KEY and
            $LATERMQ_SECRET_KEY, where they are set. Signed calls go to the hosts of `endpoint`, and
            to others that a route names where TLS checks certificates.
        tls: True: encrypt, and trust whom the system trusts; a `Tls` says more. None: what
            $LATERMQ_TLS, $LATERMQ_CA and $LATERMQ_INSECURE_SKIP_VERIFY say, else clear text.
        transport: "lean", our own HTTP/2, or "grpcio"; without it $LATERMQ_TRANSPORT, without that
            "lean".
        batching: how sends that wait at the same time share calls; None: each makes its own.
    Raises:
        ValueError: not an endpoint, no such transport, a namespace, or one of key and secret is
            missing.
        OSError: a file of `tls` cannot be read.
        ImportError: grpcio is asked for and not installed.
        TypeError: an argument is of the wrong type, here as everywhere.
    """
    for name, value in (("endpoint", endpoint), ("transport", transport)):
        arguments.optional_text(name, value)
    arguments.text("namespace", namespace)
    if namespace:
        raise ValueError("a broker has no namespaces: begin the names of topics and groups with it")
    arguments.not_blank("endpoint", endpoint, "leave it out for $LATERMQ_ENDPOINT")
    endpoints = Endpoints.parse(endpoint or os.environ.get(ENDPOINT_VARIABLE) or ENDPOINT)
    credentials, security = credentials_of(access_key, secret), tls_of(tls)
    return Client(
        endpoints,
        request_timeout=request_timeout,
        credentials=credentials,
        transport=chosen(transport or os.environ.get(TRANSPORT_VARIABLE), security),
        batching=batching,
        hosts=signed_hosts((endpoints,), credentials, security),
    )
