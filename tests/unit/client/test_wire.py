"""The translation, both ways, field by field."""

import gzip
import hashlib
import re
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from latermq._values.credentials import Credentials
from latermq._values.endpoints import AddressScheme, Endpoints
from latermq._values.failure import Failure
from latermq._values.route import Queue
from latermq._values.settings import ClientKind, Profile, Settings
from latermq._wire import messages
from latermq._wire import session_calls as wire
from latermq._wire.session_calls import Command, Order
from latermq.backoff import DEFAULT_RETRY_POLICY, Exponential, Ladder
from latermq.errors import (
    BadRequestError,
    ForbiddenError,
    InvalidReceiptHandleError,
    ServerError,
    TopicNotFoundError,
)
from latermq.message import DeadLetterOrigin, Message, SendReceipt
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2 as rpc
from latermq_proto.latermq.v1 import failure_pb2

ENDPOINTS = Endpoints.parse("127.0.0.1:8081")
NOW = datetime(2026, 11, 21, 8, 30, 0, 123_456, tzinfo=UTC)
QUEUE = Queue("orders", 2, True, True, "broker-a", 0, ENDPOINTS)


def profile(kind: ClientKind = ClientKind.PUSH_CONSUMER) -> Profile:
    return Profile(
        kind=kind,
        client_id="me@1",
        access_point=ENDPOINTS,
        namespace="shop",
        group="" if kind is ClientKind.PRODUCER else "billing",
        topics={"orders": "a || b"},
    )


def status(code: v2.Code) -> v2.Status:
    return v2.Status(code=code, message="why")


def test_headers() -> None:
    of_client = wire.ClientHeaders(profile())
    headers, others = dict(of_client.next(())), dict(of_client.next((("x-more", "m"),)))
    assert headers["x-mq-client-id"] == "me@1"
    assert headers["x-mq-language"] == "PYTHON"
    assert headers["x-mq-namespace"] == "shop"
    assert headers["x-mq-protocol"] == "v2"
    assert re.fullmatch(r"[0-9a-f]{32}", str(headers["x-mq-request-id"]))
    assert headers.pop("x-mq-request-id") != others.pop("x-mq-request-id")
    assert others == {**headers, "x-more": "m"}


def test_headers_are_signed_anew_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    signed = profile()
    signed.credentials = Credentials("ann", "secret")
    headers = wire.ClientHeaders(signed)
    dates = []
    for second in (1_700_000_000, 1_700_000_001):
        monkeypatch.setattr("latermq._values.credentials.time.time", lambda now=second: now)
        dates.append(dict(headers.next(()))["x-mq-date-time"])
    assert dates == ["2023-11-14T22:13:20Z", "2023-11-14T22:13:21Z"]


def test_route_goes_out_with_the_access_point_and_comes_back_as_queues() -> None:
    request = rpc.QueryRouteRequest.FromString(wire.ask_route(profile(), "orders"))
    assert (request.topic.resource_namespace, request.topic.name) == ("shop", "orders")
    broker = v2.Broker(name="broker-a", id=0, endpoints=request.endpoints)
    queues = [
        v2.MessageQueue(topic=request.topic, id=id_, permission=permission, broker=broker)
        for id_, permission in enumerate([v2.READ, v2.WRITE, v2.READ_WRITE, v2.NONE])
    ]
    answer = rpc.QueryRouteResponse(status=status(v2.OK), message_queues=queues)
    route = wire.read_route(answer.SerializeToString())
    assert [queue.id for queue in route.readable] == [0, 2]
    assert [queue.id for queue in route.writable] == [1, 2]
    assert route.endpoints() == {ENDPOINTS}
    assert route.queues[2] == QUEUE


def test_a_scheme_of_the_future_is_kept_out_of_the_way() -> None:
    endpoints = v2.Endpoints(scheme=9, addresses=[v2.Address(host="x", port=1)])
    assert wire.read_endpoints(endpoints).scheme is AddressScheme.UNSPECIFIED


def test_a_refusal_is_raised() -> None:
    answer = rpc.QueryRouteResponse(status=status(v2.TOPIC_NOT_FOUND))
    with pytest.raises(TopicNotFoundError, match="why"):
        wire.read_route(answer.SerializeToString())


def test_bytes_that_are_no_answer() -> None:
    with pytest.raises(ServerError, match="QueryRouteResponse"):
        wire.read_route(b"\xff\xff\xff")


def test_a_producers_settings() -> None:
    data = wire.settings_command(profile(ClientKind.PRODUCER))
    settings = rpc.TelemetryCommand.FromString(data).settings
    assert settings.client_type == v2.PRODUCER
    assert settings.WhichOneof("pub_sub") == "publishing"
    assert [topic.name for topic in settings.publishing.topics] == ["orders"]
    assert settings.access_point.addresses[0].port == 8081


def test_a_consumers_settings() -> None:
    settings = rpc.TelemetryCommand.FromString(wire.settings_command(profile())).settings
    assert settings.client_type == v2.PUSH_CONSUMER
    assert settings.subscription.group.name == "billing"
    (entry,) = settings.subscription.subscriptions
    assert (entry.topic.name, entry.expression.expression) == ("orders", "a || b")
    assert entry.expression.type == v2.TAG
    assert settings.request_timeout.ToTimedelta() == timedelta(seconds=3)


def answered(settings: v2.Settings) -> Settings:
    command = rpc.TelemetryCommand(status=status(v2.OK), settings=settings)
    answer = wire.read_command(command.SerializeToString())
    assert isinstance(answer, Settings)
    return answer


def test_settings_with_a_ladder() -> None:
    settings = v2.Settings(subscription=v2.Subscription(fifo=True, receive_batch_size=8))
    settings.subscription.long_polling_timeout.FromSeconds(7)
    settings.backoff_policy.max_attempts = 5
    for seconds in (1, 5, 10):
        settings.backoff_policy.customized_backoff.next.add().FromSeconds(seconds)
    answer = answered(settings)
    assert (answer.fifo, answer.receive_count_max) == (True, 8)
    assert answer.long_polling_timeout == timedelta(seconds=7)
    assert answer.retry.max_attempts == 5
    assert answer.retry.waits == Ladder(tuple(timedelta(seconds=s) for s in (1, 5, 10)))


def test_settings_with_exponential_growth() -> None:
    settings = v2.Settings(publishing=v2.Publishing(max_body_size=10))
    growth = settings.backoff_policy.exponential_backoff
    growth.initial.FromMilliseconds(10)
    growth.max.FromSeconds(1)
    growth.multiplier = 2
    answer = answered(settings)
    assert answer.body_bytes_max == 10
    assert answer.retry.waits == Exponential(
        initial=timedelta(milliseconds=10), limit=timedelta(seconds=1), multiplier=2
    )


@pytest.mark.parametrize(
    "policy", [v2.RetryPolicy(), v2.RetryPolicy(customized_backoff=v2.CustomizedBackoff())]
)
def test_settings_that_say_nothing_leave_the_defaults(policy: v2.RetryPolicy) -> None:
    assert answered(v2.Settings(backoff_policy=policy)) == Settings(retry=DEFAULT_RETRY_POLICY)


@pytest.mark.parametrize("settings", [None, v2.Settings()])
def test_refused_settings(settings: v2.Settings | None) -> None:
    command = rpc.TelemetryCommand(status=status(v2.BAD_REQUEST), settings=settings)
    with pytest.raises(BadRequestError):
        wire.read_command(command.SerializeToString())


def test_commands() -> None:
    def read(**command: Any) -> wire.TelemetryAnswer:
        return wire.read_command(rpc.TelemetryCommand(**command).SerializeToString())

    reconnect = rpc.ReconnectEndpointsCommand(nonce="1")
    assert read(reconnect_endpoints_command=reconnect) == Order(Command.RECONNECT, None)
    assert read() == Order(Command.NOTHING, None)
    trace = read(print_thread_stack_trace_command=rpc.PrintThreadStackTraceCommand(nonce="2"))
    verify = read(verify_message_command=rpc.VerifyMessageCommand(nonce="3"))
    replies = []
    for order in (trace, verify):
        assert isinstance(order, Order)
        assert order.reply is not None
        replies.append(rpc.TelemetryCommand.FromString(order.reply))
    assert [reply.status.code for reply in replies] == [v2.UNSUPPORTED] * 2
    assert replies[0].thread_stack_trace.nonce == "2"
    assert replies[1].verify_message_result.nonce == "3"


def sent(message: Message, due: datetime | None = None, *, delayed: bool = False) -> v2.Message:
    draft = messages.Draft(message, "ID1", NOW, due)
    producer = profile(ClientKind.PRODUCER)
    data = messages.ask_send(producer, QUEUE, [draft], delayed=delayed)
    return rpc.SendMessageRequest.FromString(data).messages[0]


def test_a_sent_message() -> None:
    message = sent(Message(b"body", tag="eu", keys=["k1", "k2"], properties={"colour": "red"}))
    system = message.system_properties
    assert (message.topic.name, message.body) == ("orders", b"body")
    assert dict(message.user_properties) == {"colour": "red"}
    assert (system.tag, list(system.keys), system.message_id) == ("eu", ["k1", "k2"], "ID1")
    assert (system.message_type, system.body_encoding) == (v2.NORMAL, v2.IDENTITY)
    assert system.born_timestamp.ToDatetime(UTC) == NOW
    assert not system.HasField("delivery_timestamp")
    assert not system.HasField("message_group")


def test_a_message_without_extras_says_nothing_of_them() -> None:
    system = sent(Message(b"body")).system_properties
    assert not system.HasField("tag")
    assert len(system.keys) == 0


def test_a_due_time_is_exact_to_the_microsecond() -> None:
    system = sent(Message(b"body"), NOW).system_properties
    assert system.delivery_timestamp.ToDatetime(UTC) == NOW
    assert system.message_type == v2.DELAY


def test_types() -> None:
    assert sent(Message(b"b", message_group="g")).system_properties.message_type == v2.FIFO
    assert sent(Message(b"b"), delayed=True).system_properties.message_type == v2.DELAY
    assert sent(Message(b"b", message_group="g")).system_properties.message_group == "g"


def test_send_results() -> None:
    entries = [
        rpc.SendResultEntry(status=status(v2.OK), message_id="a", offset=7, recall_handle="h"),
        rpc.SendResultEntry(status=status(v2.HA_NOT_AVAILABLE)),
    ]
    answer = rpc.SendMessageResponse(status=status(v2.MULTIPLE_RESULTS), entries=entries)
    stored, refused = messages.read_send(answer.SerializeToString(), "orders", ["a", "b"])
    assert stored == SendReceipt(topic="orders", message_id="a", queue_offset=7, recall_handle="h")
    assert isinstance(refused, ServerError)


def test_a_dedup_id_travels_as_a_property() -> None:
    made = sent(Message(b"b", properties={"a": "b"}, dedup_id="order-17"))
    assert dict(made.user_properties) == {"a": "b", "LATERMQ_DEDUP_ID": "order-17"}


def test_what_another_message_has_stored_is_a_duplicate() -> None:
    """Not what an earlier try of the same send has."""
    once_more = v2.Status(code=v2.OK, message="DUPLICATE")
    entries = [
        rpc.SendResultEntry(status=status(v2.OK), message_id="a"),
        rpc.SendResultEntry(status=once_more, message_id="first"),
        rpc.SendResultEntry(status=once_more, message_id="c"),
    ]
    answer = rpc.SendMessageResponse(status=status(v2.OK), entries=entries).SerializeToString()
    receipts = messages.read_send(answer, "orders", ["a", "b", "c"])
    assert [
        (each.message_id, each.duplicate) for each in receipts if isinstance(each, SendReceipt)
    ] == [("a", False), ("first", True), ("c", False)]


def test_send_results_that_do_not_fit_the_request() -> None:
    answer = rpc.SendMessageResponse(status=status(v2.OK))
    with pytest.raises(ServerError, match="0 results for 1"):
        messages.read_send(answer.SerializeToString(), "orders", ["a"])


def delivered(body: bytes, **system: Any) -> messages.Arrival:
    properties = v2.SystemProperties(
        message_id="m", receipt_handle="h", body_encoding=v2.IDENTITY, **system
    )
    if not properties.HasField("born_timestamp"):
        properties.born_timestamp.FromDatetime(NOW)
    message = v2.Message(
        topic=v2.Resource(name="orders"),
        user_properties={"colour": "red"},
        system_properties=properties,
        body=body,
    )
    return arrived(message)


def arrived(message: v2.Message) -> messages.Arrival:
    data = rpc.ReceiveMessageResponse(message=message).SerializeToString()
    arrival = messages.read_receive(data)
    assert arrival is not None
    return arrival


def test_a_delivered_message() -> None:
    arrival = delivered(
        b"body",
        tag="eu",
        keys=["k"],
        delivery_attempt=3,
        message_group="g",
        born_host="shop-1",
        queue_id=2,
        queue_offset=9,
        dead_letter_queue=v2.DeadLetterQueue(topic="orders", message_id="old"),
    )
    received = arrival.received
    assert (arrival.handle, arrival.damage) == ("h", "")
    assert (received.topic, received.body, received.message_id) == ("orders", b"body", "m")
    assert (received.tag, received.keys, received.attempt) == ("eu", ("k",), 3)
    assert (received.message_group, received.properties) == ("g", {"colour": "red"})
    assert (received.born_at, received.born_host) == (NOW, "shop-1")
    assert (received.queue_id, received.queue_offset) == (2, 9)
    assert received.origin == DeadLetterOrigin("orders", "old")


def test_what_a_delivered_message_does_not_say_is_none() -> None:
    received = delivered(b"body").received
    assert (received.tag, received.message_group, received.origin) == (None, None, None)
    assert (received.stored_at, received.delivery_at) == (None, None)
    assert (received.keys, received.attempt) == ((), 1)


def test_a_time_out_of_range_does_not_break_the_consumer() -> None:
    message = v2.Message()
    message.system_properties.born_timestamp.seconds = 2**62
    assert arrived(message).received.born_at == datetime.max.replace(tzinfo=UTC)
    message.system_properties.born_timestamp.seconds = -(2**62)
    assert arrived(message).received.born_at == datetime.min.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "function"), [(v2.MD5, hashlib.md5), (v2.SHA1, hashlib.sha1)], ids=["md5", "sha1"]
)
def test_digests(kind: v2.DigestType, function: Any) -> None:
    checksum = function(b"body").hexdigest()
    good = delivered(b"body", body_digest=v2.Digest(type=kind, checksum=checksum))
    bad = delivered(b"bodY", body_digest=v2.Digest(type=kind, checksum=checksum))
    assert good.damage == ""
    assert "digest" in bad.damage


def test_crc32_is_not_looked_at() -> None:
    digest = v2.Digest(type=v2.CRC32, checksum="whatever")
    assert delivered(b"body", body_digest=digest).damage == ""


def packed(body: bytes) -> messages.Arrival:
    message = v2.Message(body=body)
    message.system_properties.body_encoding = v2.GZIP
    return arrived(message)


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "zlib"])
def test_packed_bodies(pack: Any) -> None:
    arrival = packed(pack(b"body" * 1000))
    assert (arrival.received.body, arrival.damage) == (b"body" * 1000, "")


@pytest.mark.parametrize(
    "body", [b"no gzip at all", gzip.compress(b"body")[:-9]], ids=["none", "cut"]
)
def test_bodies_that_cannot_be_unpacked(body: bytes) -> None:
    assert packed(body).damage != ""


def test_nothing_came() -> None:
    nothing = rpc.ReceiveMessageResponse(status=status(v2.MESSAGE_NOT_FOUND))
    assert messages.read_receive(nothing.SerializeToString()) is None


def receive_request(invisible: timedelta | None) -> rpc.ReceiveMessageRequest:
    wait = timedelta(seconds=20)
    data = messages.ask_receive(profile(), QUEUE, "eu", count_max=7, wait=wait, invisible=invisible)
    return rpc.ReceiveMessageRequest.FromString(data)


def test_receive_with_a_lease_of_our_own() -> None:
    request = receive_request(timedelta(milliseconds=1500))
    assert request.invisible_duration.ToMilliseconds() == 1500
    assert not request.auto_renew
    assert (request.batch_size, request.filter_expression.expression) == (7, "eu")
    assert (request.message_queue.id, request.message_queue.broker.name) == (2, "broker-a")
    assert request.long_polling_timeout.ToSeconds() == 20


def test_receive_with_leases_the_broker_keeps() -> None:
    request = receive_request(None)
    assert request.auto_renew
    assert not request.HasField("invisible_duration")


def test_an_ack_entry_says_more_than_the_whole() -> None:
    entry = rpc.AckMessageResultEntry(status=status(v2.INVALID_RECEIPT_HANDLE))
    answer = rpc.AckMessageResponse(status=status(v2.MULTIPLE_RESULTS), entries=[entry])
    (error,) = messages.read_ack(answer.SerializeToString(), 1)
    assert isinstance(error, InvalidReceiptHandleError)


def test_each_acknowledgement_has_its_result() -> None:
    entries = [rpc.AckMessageResultEntry(status=status(code)) for code in (v2.OK, v2.FORBIDDEN)]
    answer = rpc.AckMessageResponse(status=status(v2.MULTIPLE_RESULTS), entries=entries)
    first, second = messages.read_ack(answer.SerializeToString(), 2)
    assert first is None
    assert isinstance(second, ForbiddenError)
    with pytest.raises(ServerError, match="2 results for 3"):
        messages.read_ack(
            rpc.AckMessageResponse(status=status(v2.OK), entries=entries).SerializeToString(), 3
        )
    bare = rpc.AckMessageResponse(status=status(v2.OK)).SerializeToString()
    assert messages.read_ack(bare, 2) == [None, None]
    refused = rpc.AckMessageResponse(status=status(v2.FORBIDDEN)).SerializeToString()
    with pytest.raises(ForbiddenError):
        messages.read_ack(refused, 2)


def test_the_failure_header_is_latermqs_failure() -> None:
    name, value = messages.failure_header(
        Failure("TimeoutError", "bank", "0123456789abcdef", "stack", rejected=True)
    )
    assert name == "latermq-failure-bin"
    assert failure_pb2.Failure.FromString(value) == failure_pb2.Failure(
        class_name="TimeoutError",
        text="bank",
        stack_hash="0123456789abcdef",
        stack="stack",
        rejected=True,
    )
