"""A broker inside the test, at the client's transport seam: no socket, every call on record.

It knows just enough of apache.rocketmq.v2 for our client: routes, settings, sends, receives and
settlements. Delivery is naive: what is put in `inbox` is delivered once. Failures are scripted:
`refuse("SendMessage", error)` makes the next call of that name end with it.
"""

import asyncio
import hashlib
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message as AnyMessage

from latermq._connection.transport import Metadata
from latermq._values.endpoints import Endpoints
from latermq.errors import LaterMQError, UnavailableError
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2 as rpc
from latermq_proto.latermq.v1 import failure_pb2, group_pb2, topic_pb2

OK = v2.Status(code=v2.OK, message="OK")


@dataclass(frozen=True)
class Recorded:
    """One call: to whom, its RPC's name, its request, its headers, and when (loop time, s)."""

    endpoint: str
    name: str
    request: Any
    headers: dict[str, str | bytes]
    at: float

    @property
    def failure(self) -> failure_pb2.Failure:
        """What the call says about a failed attempt."""
        header = self.headers["latermq-failure-bin"]
        assert isinstance(header, bytes)
        return failure_pb2.Failure.FromString(header)


@dataclass
class ScriptedBroker:
    """The broker; `connect` is the transport factory for `latermq.client.Client`."""

    topics: dict[str, int] = field(default_factory=lambda: {"orders": 4})  # queue counts
    backoff: v2.RetryPolicy = field(default_factory=v2.RetryPolicy)
    fifo: bool = False
    lite_quota: int = 2_000
    element_gap_s: float = 0.0  # between the messages of a reply
    body_bytes_max: int = 1024
    calls: list[Recorded] = field(default_factory=list)
    inbox: deque[v2.Message] = field(default_factory=deque)
    streams: "list[ScriptedStream]" = field(default_factory=list)
    assigned: bool = True
    second: Endpoints | None = None  # where a second broker of every topic listens
    _refusals: defaultdict[str, deque[LaterMQError | v2.Status]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    _known: set[str] = field(default_factory=set)
    _delivered: int = 0
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    # For the test ---------------------------------------------------------------------------------

    def connect(self, endpoints: Endpoints) -> "ScriptedTransport":
        return ScriptedTransport(self, endpoints)

    def refuse(self, name: str, *failures: LaterMQError | v2.Status) -> None:
        """End the next calls of that RPC with these: an error of the connection, or a status."""
        self._refusals[name].extend(failures)

    def forgive(self, name: str) -> None:
        """Refuse that RPC no more."""
        self._refusals[name].clear()

    def deliver(self, body: bytes, *, topic: str = "orders", **system: Any) -> None:
        """Let a receive have this message."""
        self._delivered += 1
        properties = v2.SystemProperties(
            message_id=system.pop("message_id", f"id-{self._delivered}"),
            receipt_handle=f"handle-{self._delivered}",
            body_encoding=system.pop("body_encoding", v2.IDENTITY),
            delivery_attempt=system.pop("delivery_attempt", 1),
            **system,
        )
        properties.born_timestamp.FromMilliseconds(1_700_000_000_000)
        if not properties.HasField("body_digest"):
            checksum = hashlib.md5(body).hexdigest().upper()
            properties.body_digest.CopyFrom(v2.Digest(type=v2.MD5, checksum=checksum))
        self.inbox.append(
            v2.Message(topic=v2.Resource(name=topic), system_properties=properties, body=body)
        )
        self._arrived.set()

    def named(self, name: str) -> list[Recorded]:
        return [call for call in self.calls if call.name == name]

    def requests(self, name: str) -> list[Any]:
        return [call.request for call in self.named(name)]

    def acked(self) -> list[str]:
        """Ids of acknowledged messages, in order."""
        requests = self.requests("AckMessage")
        return [entry.message_id for request in requests for entry in request.entries]

    def returned(self) -> list[str]:
        """Ids of leases that were given back at once and uncounted."""
        return [
            request.message_id
            for request in self.requests("ChangeInvisibleDuration")
            if request.suspend and not request.invisible_duration.ToMilliseconds()
        ]

    def take_lite_topic(self, name: str) -> None:
        """Tell every client that another one has it."""
        command = rpc.TelemetryCommand()
        command.notify_unsubscribe_lite_command.lite_topic = name
        for stream in self.streams:
            stream.push(command)

    def forget_clients(self) -> None:
        """Be a broker that has just started: streams end, nobody is known."""
        self._known.clear()
        for stream in self.streams:
            stream.end()
        self.streams.clear()

    # For the transport ----------------------------------------------------------------------------

    def record(
        self, endpoint: str, name: str, request: AnyMessage, metadata: Metadata
    ) -> v2.Status:
        """Note a call; return the status it is to be answered with, or raise what is scripted."""
        now = asyncio.get_running_loop().time()
        self.calls.append(Recorded(endpoint, name, request, dict(metadata), now))
        if self._refusals[name]:
            failure = self._refusals[name].popleft()
            if isinstance(failure, LaterMQError):
                raise failure
            return failure
        return OK

    def settings_for(self, settings: v2.Settings, client_id: str) -> v2.Settings:
        self._known.add(client_id)
        answer = v2.Settings()
        answer.CopyFrom(settings)
        answer.backoff_policy.CopyFrom(self.backoff)
        if settings.WhichOneof("pub_sub") == "publishing":
            answer.publishing.max_body_size = self.body_bytes_max
        else:
            answer.subscription.fifo = self.fifo
            answer.subscription.receive_batch_size = 32
            answer.subscription.lite_subscription_quota = self.lite_quota
            answer.subscription.long_polling_timeout.FromSeconds(20)
        return answer

    def knows(self, client_id: str | bytes) -> bool:
        return client_id in self._known

    async def take(self, request: rpc.ReceiveMessageRequest) -> list[v2.Message]:
        """Wait for messages as long as the request says."""
        wait = request.long_polling_timeout.ToTimedelta().total_seconds()
        try:
            async with asyncio.timeout(wait):
                while not self.inbox:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return []
        count = min(request.batch_size, len(self.inbox))
        return [self.inbox.popleft() for _ in range(count)]


class ScriptedTransport:
    """The seam's form without a wire."""

    def __init__(self, broker: ScriptedBroker, endpoints: Endpoints) -> None:
        self._broker = broker
        self._endpoint = str(endpoints)
        self._answers: dict[
            str, tuple[type[AnyMessage], Callable[[Any, v2.Status], AnyMessage]]
        ] = {
            "GetTopic": (
                topic_pb2.GetTopicRequest,
                lambda _, status: topic_pb2.TopicResponse(status=status),
            ),
            "QueryRoute": (rpc.QueryRouteRequest, self._route),
            "QueryAssignment": (rpc.QueryAssignmentRequest, self._assignment),
            "SendMessage": (rpc.SendMessageRequest, self._send),
            "EndTransaction": (
                rpc.EndTransactionRequest,
                lambda _, status: rpc.EndTransactionResponse(status=status),
            ),
            "RecallMessage": (
                rpc.RecallMessageRequest,
                lambda _, status: rpc.RecallMessageResponse(status=status, message_id="recalled"),
            ),
            "AckMessage": (rpc.AckMessageRequest, self._ack),
            "ChangeInvisibleDuration": (rpc.ChangeInvisibleDurationRequest, self._change),
            "ForwardMessageToDeadLetterQueue": (
                rpc.ForwardMessageToDeadLetterQueueRequest,
                lambda _, status: rpc.ForwardMessageToDeadLetterQueueResponse(status=status),
            ),
            "SyncLiteSubscription": (
                rpc.SyncLiteSubscriptionRequest,
                lambda _, status: rpc.SyncLiteSubscriptionResponse(status=status),
            ),
            "Heartbeat": (
                rpc.HeartbeatRequest,
                lambda _, status: rpc.HeartbeatResponse(status=status),
            ),
            "ListServices": (
                group_pb2.ListServicesRequest,
                lambda _, status: group_pb2.ListServicesResponse(status=status),
            ),
            "NotifyClientTermination": (
                rpc.NotifyClientTerminationRequest,
                lambda _, status: rpc.NotifyClientTerminationResponse(status=status),
            ),
        }

    async def unary(
        self, path: str, request: bytes, metadata: Metadata, timeout: float | None
    ) -> bytes:
        name = path.rsplit("/", 1)[1]
        kind, answer = self._answers[name]
        parsed = kind.FromString(request)
        status = self._broker.record(self._endpoint, name, parsed, metadata)
        if name == "Heartbeat" and not self._broker.knows(dict(metadata)["x-mq-client-id"]):
            status = v2.Status(code=v2.UNRECOGNIZED_CLIENT_TYPE, message="who?")
        await asyncio.sleep(0)  # as a network does, let others run in between
        return answer(parsed, status).SerializeToString()

    async def server_stream(
        self, path: str, request: bytes, metadata: Metadata, timeout: float | None
    ) -> AsyncGenerator[bytes, None]:
        parsed = rpc.ReceiveMessageRequest.FromString(request)
        status = self._broker.record(self._endpoint, "ReceiveMessage", parsed, metadata)
        messages = await self._broker.take(parsed) if status.code == v2.OK else []
        if status.code == v2.OK and not messages:
            status = v2.Status(code=v2.MESSAGE_NOT_FOUND, message="nothing came")
        yield rpc.ReceiveMessageResponse(status=status).SerializeToString()
        for message in messages:
            yield rpc.ReceiveMessageResponse(message=message).SerializeToString()
            await asyncio.sleep(self._broker.element_gap_s)
        end = rpc.ReceiveMessageResponse()
        end.delivery_timestamp.GetCurrentTime()
        yield end.SerializeToString()

    def bidi_stream(self, path: str, metadata: Metadata) -> "ScriptedStream":
        stream = ScriptedStream(self._broker, self._endpoint, metadata)
        self._broker.streams.append(stream)
        return stream

    async def close(self) -> None:
        return None

    def _route(self, request: rpc.QueryRouteRequest, status: v2.Status) -> AnyMessage:
        count = self._broker.topics.get(request.topic.name, 0)
        if not count:
            status = v2.Status(code=v2.TOPIC_NOT_FOUND, message=f"no topic {request.topic.name}")
        queues = [queue for index in range(count) for queue in self._queues(request, index)]
        return rpc.QueryRouteResponse(status=status, message_queues=queues)

    def _assignment(self, request: rpc.QueryAssignmentRequest, status: v2.Status) -> AnyMessage:
        queues = self._queues(request, -1) if self._broker.assigned else []
        assignments = [v2.Assignment(message_queue=queue) for queue in queues]
        return rpc.QueryAssignmentResponse(status=status, assignments=assignments)

    def _queues(self, request: Any, index: int) -> list[v2.MessageQueue]:
        """The queues of that number, one on each broker."""
        brokers = [v2.Broker(name="broker", id=0, endpoints=request.endpoints)]
        if self._broker.second is not None:
            ((host, port),) = self._broker.second.addresses
            addresses = [v2.Address(host=host, port=port)]
            endpoints = v2.Endpoints(scheme=int(self._broker.second.scheme), addresses=addresses)
            brokers.append(v2.Broker(name="second", id=0, endpoints=endpoints))
        return [
            v2.MessageQueue(topic=request.topic, id=index, permission=v2.READ_WRITE, broker=broker)
            for broker in brokers
        ]

    def _send(self, request: rpc.SendMessageRequest, status: v2.Status) -> AnyMessage:
        if status.code not in (v2.OK, v2.MULTIPLE_RESULTS):
            return rpc.SendMessageResponse(status=status)
        refused = v2.Status(code=v2.HA_NOT_AVAILABLE, message="no replica")
        mixed = status.code == v2.MULTIPLE_RESULTS
        entries = [
            rpc.SendResultEntry(
                status=refused if mixed and index else OK,
                message_id=message.system_properties.message_id,
                transaction_id=f"t-{message.system_properties.message_id}",
                offset=index,
            )
            for index, message in enumerate(request.messages)
        ]
        return rpc.SendMessageResponse(status=status, entries=entries)

    def _ack(self, request: rpc.AckMessageRequest, status: v2.Status) -> AnyMessage:
        entries = [
            rpc.AckMessageResultEntry(
                message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status
            )
            for entry in request.entries
        ]
        return rpc.AckMessageResponse(status=status, entries=entries)

    def _change(self, request: rpc.ChangeInvisibleDurationRequest, status: v2.Status) -> AnyMessage:
        handle = request.receipt_handle + ("'" if status.code == v2.OK else "")
        return rpc.ChangeInvisibleDurationResponse(status=status, receipt_handle=handle)


class ScriptedStream:
    """One telemetry stream: answers settings; the test may push commands or end it."""

    def __init__(self, broker: ScriptedBroker, endpoint: str, metadata: Metadata) -> None:
        self._broker = broker
        self._endpoint = endpoint
        self._metadata = metadata
        self._commands: asyncio.Queue[bytes | LaterMQError | None] = asyncio.Queue()
        self.cancelled = False

    def push(self, command: rpc.TelemetryCommand) -> None:
        self._commands.put_nowait(command.SerializeToString())

    def end(self) -> None:
        self._commands.put_nowait(UnavailableError("the broker went away"))

    async def write(self, data: bytes) -> None:
        command = rpc.TelemetryCommand.FromString(data)
        status = self._broker.record(self._endpoint, "Telemetry", command, self._metadata)
        if command.WhichOneof("command") != "settings":
            return
        answer = rpc.TelemetryCommand(status=status)
        if status.code == v2.OK:
            client_id = dict(self._metadata)["x-mq-client-id"]
            assert isinstance(client_id, str)
            answer.settings.CopyFrom(self._broker.settings_for(command.settings, client_id))
        self.push(answer)

    async def read(self) -> bytes | None:
        item = await self._commands.get()
        if isinstance(item, LaterMQError):
            raise item
        return item

    def cancel(self) -> None:
        self.cancelled = True
