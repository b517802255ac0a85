"""A client without a library: one blocking call per RPC, answers as they came.

For what the official client hides (codes, dead_letter_queue, milliseconds, handles) and for
latermq.v1, which it does not know.
"""

import time
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Self

import grpc

from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2, service_pb2_grpc
from latermq_proto.latermq.v1 import (
    broker_pb2_grpc,
    client_pb2_grpc,
    dead_letter_pb2_grpc,
    group_pb2,
    group_pb2_grpc,
    pending_pb2_grpc,
    topic_pb2,
    topic_pb2_grpc,
)
from support import wire_requests
from support.machine import patient

CALL_TIMEOUT_S: Final = patient(30.0)


class Received(NamedTuple):
    """One answer to ReceiveMessage. Times are of this machine's clock."""

    status: definition_pb2.Status
    messages: list[definition_pb2.Message]
    at_ms: int  # when the first message was here; when the stream ended if there was none
    broker_ms: int  # the stream's delivery_timestamp


class WireClient:
    """One connection. `endpoint` is `host:port`."""

    def __init__(self, endpoint: str, client_id: str = "wire@1@0@test") -> None:
        self.client_id = client_id
        self._channel = grpc.insecure_channel(endpoint, wire_requests.CHANNEL_OPTIONS)
        self.messaging = service_pb2_grpc.MessagingServiceStub(self._channel)
        self.topics = topic_pb2_grpc.TopicsStub(self._channel)
        self.groups = group_pb2_grpc.GroupsStub(self._channel)
        self.pending = pending_pb2_grpc.PendingStub(self._channel)
        self.brokers = broker_pb2_grpc.BrokersStub(self._channel)
        self.clients = client_pb2_grpc.ClientsStub(self._channel)
        self.dead_letters = dead_letter_pb2_grpc.DeadLettersStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def call(self, method: Any, request: Any, *more: tuple[str, str | bytes]) -> Any:
        """One unary call with our headers and `more`; waits for a broker that is coming up."""
        return method(
            request,
            metadata=wire_requests.metadata(self.client_id, *more),
            timeout=CALL_TIMEOUT_S,
            wait_for_ready=True,
        )

    def create_topic(self, name: str, **fields: Any) -> None:
        request = topic_pb2.CreateTopicRequest(name=name, **fields)
        require_ok(self.call(self.topics.CreateTopic, request))

    def create_group(
        self, name: str, max_attempts: int, ladder_ms: Iterable[int] = (), **fields: Any
    ) -> None:
        """A group with a policy of its own; an empty ladder leaves the broker's."""
        group = group_pb2.Group(name=name, max_attempts=max_attempts, **fields)
        group.backoff.ladder.delays_ms.extend(ladder_ms)
        if not group.backoff.ladder.delays_ms:
            group.ClearField("backoff")
        request = group_pb2.CreateGroupRequest(group=group)
        require_ok(self.call(self.groups.CreateGroup, request))

    def route(self, topic: str) -> service_pb2.QueryRouteResponse:
        """Ask for a topic's route; an unknown one's is what it will have, if first use makes it."""
        host, port = "127.0.0.1", 1
        endpoints = definition_pb2.Endpoints(
            scheme=definition_pb2.AddressScheme.IPv4,
            addresses=[definition_pb2.Address(host=host, port=port)],
        )
        request = service_pb2.QueryRouteRequest(
            topic=wire_requests.resource(topic), endpoints=endpoints
        )
        answer: service_pb2.QueryRouteResponse = self.call(self.messaging.QueryRoute, request)
        return answer

    def send(self, *messages: definition_pb2.Message) -> service_pb2.SendMessageResponse:
        request = wire_requests.send(messages)
        answer: service_pb2.SendMessageResponse = self.call(self.messaging.SendMessage, request)
        return answer

    def receive(self, topic: str, group: str, **fields: Any) -> Received:
        """One long poll, to its end. `fields`: see `wire_requests.receive`."""
        request = wire_requests.receive(topic, group, **fields)
        status, broker_ms, first_ms = definition_pb2.Status(), 0, 0
        messages: list[definition_pb2.Message] = []
        stream = self.messaging.ReceiveMessage(
            request,
            metadata=wire_requests.metadata(self.client_id),
            timeout=CALL_TIMEOUT_S,
            wait_for_ready=True,
        )
        for element in stream:
            if element.HasField("message"):
                first_ms = first_ms or now_ms()
                messages.append(element.message)
            elif element.HasField("status"):
                status = element.status
            else:
                broker_ms = wire_requests.timestamp_ms(element.delivery_timestamp)
        return Received(status, messages, first_ms or now_ms(), broker_ms)

    def ack(self, topic: str, group: str, *handles: str) -> service_pb2.AckMessageResponse:
        request = wire_requests.ack(topic, group, handles)
        answer: service_pb2.AckMessageResponse = self.call(self.messaging.AckMessage, request)
        return answer

    def change_invisible(
        self, topic: str, group: str, handle: str, invisible_ms: int
    ) -> service_pb2.ChangeInvisibleDurationResponse:
        request = wire_requests.change_invisible(topic, group, handle, invisible_ms)
        answer: service_pb2.ChangeInvisibleDurationResponse = self.call(
            self.messaging.ChangeInvisibleDuration, request
        )
        return answer

    def forward(self, topic: str, group: str, handle: str) -> definition_pb2.Status:
        request = wire_requests.forward(topic, group, handle)
        status: definition_pb2.Status = self.call(
            self.messaging.ForwardMessageToDeadLetterQueue, request
        ).status
        return status

    def announce_push_consumer(self, topic: str, group: str) -> definition_pb2.Settings:
        """Tell the broker what this client is; the answer's settings. The stream ends at once."""
        subscription = definition_pb2.Subscription(
            group=wire_requests.resource(group),
            subscriptions=[
                definition_pb2.SubscriptionEntry(
                    topic=wire_requests.resource(topic),
                    expression=definition_pb2.FilterExpression(
                        type=definition_pb2.FilterType.TAG, expression="*"
                    ),
                )
            ],
        )
        settings = definition_pb2.Settings(
            client_type=definition_pb2.ClientType.PUSH_CONSUMER, subscription=subscription
        )
        stream = self.messaging.Telemetry(
            iter([service_pb2.TelemetryCommand(settings=settings)]),
            metadata=wire_requests.metadata(self.client_id),
            timeout=CALL_TIMEOUT_S,
            wait_for_ready=True,
        )
        answer = next(stream)
        require_ok(answer)
        stream.cancel()
        told: definition_pb2.Settings = answer.settings
        return told

    def heartbeat(self, group: str) -> definition_pb2.Status:
        request = service_pb2.HeartbeatRequest(
            group=wire_requests.resource(group),
            client_type=definition_pb2.ClientType.PUSH_CONSUMER,
        )
        status: definition_pb2.Status = self.call(self.messaging.Heartbeat, request).status
        return status

    def leave(self, group: str) -> definition_pb2.Status:
        """NotifyClientTermination."""
        request = service_pb2.NotifyClientTerminationRequest(group=wire_requests.resource(group))
        status: definition_pb2.Status = self.call(
            self.messaging.NotifyClientTermination, request
        ).status
        return status

    def take(self, topic: str, group: str, count: int, timeout_s: float) -> list[Any]:
        """Receive and acknowledge until `count` messages came or the time is over."""
        taken: list[Any] = []
        until = time.monotonic() + patient(timeout_s)
        while len(taken) < count and time.monotonic() < until:
            got = self.receive(topic, group).messages
            if got:
                handles = [one.system_properties.receipt_handle for one in got]
                require_ok(self.ack(topic, group, *handles))
                taken += got
        return taken


def require_ok(answer: Any) -> None:
    """Raise unless the answer's status says OK."""
    if answer.status.code != definition_pb2.Code.OK:
        raise AssertionError(f"{type(answer).__name__}: {answer.status}")


def now_ms() -> int:
    """This machine's clock, which the broker under test reads too."""
    return time.time_ns() // 1_000_000
