"""The messaging RPCs over a real connection: what only a transport can show."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from latermq_proto.latermq.v1 import failure_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient, now_ms
from support.wire_requests import duration, message, receive

Code: Final = definition_pb2.Code
SERVICE: Final = "/apache.rocketmq.v2.MessagingService"
BODY_BYTES_MAX: Final = 4 << 20
UNARY_RPCS: Final = (
    "SendMessage", "AckMessage", "ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue",
    "UpdateOffset", "GetOffset", "QueryOffset",
)  # fmt: skip
STREAM_RPCS: Final = ("ReceiveMessage", "PullMessage")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("wire") / "data") as process:
        yield process.start()


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.endpoint) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return "".join(c if c.isalnum() else "_" for c in name)[:100]


def raw(broker: BrokerProcess, rpc: str, request: bytes, **options: Any) -> list[Any]:
    """The responses to whatever bytes."""
    response_class = getattr(service_pb2, f"{rpc}Response")
    options.setdefault("metadata", wire_requests.metadata("raw@1@0@x"))
    with grpc.insecure_channel(broker.endpoint) as channel:
        if rpc in STREAM_RPCS:
            elements = channel.unary_stream(f"{SERVICE}/{rpc}")(
                request, timeout=patient(10), **options
            )
            return [response_class.FromString(element) for element in elements]
        answer = channel.unary_unary(f"{SERVICE}/{rpc}")(request, timeout=patient(10), **options)
        return [response_class.FromString(answer)]


@pytest.mark.parametrize("rpc", UNARY_RPCS + STREAM_RPCS)
def test_no_headers_and_no_sense(broker: BrokerProcess, rpc: str) -> None:
    """Health probes and demos call with nothing: every RPC answers, gRPC ends OK."""
    assert raw(broker, rpc, b"", metadata=())[0].status.code == Code.CLIENT_ID_REQUIRED
    blank = (("x-mq-client-id", " "),)
    assert raw(broker, rpc, b"", metadata=blank)[0].status.code == Code.CLIENT_ID_REQUIRED
    assert raw(broker, rpc, b"\xff\xff\xff\xff")[0].status.code == Code.BAD_REQUEST
    assert raw(broker, rpc, b"")[0].status.code >= Code.BAD_REQUEST
    junk = (("latermq-delay-level", "?"), ("latermq-failure-bin", b"\xff\xff"))
    headers = wire_requests.metadata("raw@1@0@x", *junk)
    assert raw(broker, rpc, b"", metadata=headers)[0].status.code >= Code.BAD_REQUEST


def test_the_largest_body_and_one_byte_more(wire: WireClient, topic: str) -> None:
    body = bytes(range(256)) * (BODY_BYTES_MAX // 256)
    assert wire.send(message(topic, body)).status.code == Code.OK
    refused = wire.send(message(topic, body + b"x"))
    assert (refused.status.code, len(refused.entries)) == (Code.MESSAGE_BODY_TOO_LARGE, 0)
    [got] = wire.receive(topic, "g").messages
    assert got.body == body


def test_a_large_batch_is_received_element_by_element(wire: WireClient, topic: str) -> None:
    body = b"x" * ((1 << 20) - 1_024)  # all of them within one reply, `delivery.receive_bytes_max`
    response = wire.send(*(message(topic, body) for _ in range(32)))
    assert len(response.entries) == 32
    got = wire.receive(topic, "g")
    assert (len(got.messages), got.status.code) == (32, Code.OK)
    assert got.broker_ms > 0


def test_an_empty_poll_lasts_as_asked_and_ends_with_the_time(wire: WireClient, topic: str) -> None:
    wire.route(topic)
    started_s = time.monotonic()
    got = wire.receive(topic, "g", wait_ms=300)
    assert 0.29 < time.monotonic() - started_s < patient(2)
    assert (got.status.code, got.messages) == (Code.MESSAGE_NOT_FOUND, [])
    assert got.broker_ms > 0


def test_the_reply_comes_before_the_deadline(broker: BrokerProcess, topic: str) -> None:
    request = receive(topic, "g", wait_ms=40_000)
    with grpc.insecure_channel(broker.endpoint) as channel:
        call = channel.unary_stream(f"{SERVICE}/ReceiveMessage")
        headers = wire_requests.metadata("deadline@1@0@x")
        elements = list(call(request.SerializeToString(), timeout=5.5, metadata=headers))
    first = service_pb2.ReceiveMessageResponse.FromString(elements[0])
    assert first.status.code == Code.MESSAGE_NOT_FOUND


def test_a_deadline_that_is_too_near(broker: BrokerProcess, topic: str) -> None:
    request = receive(topic, "g", wait_ms=20_000)
    with grpc.insecure_channel(broker.endpoint) as channel:
        call = channel.unary_stream(f"{SERVICE}/ReceiveMessage")
        headers = wire_requests.metadata("deadline@1@0@x")
        elements = list(call(request.SerializeToString(), timeout=3, metadata=headers))
    first = service_pb2.ReceiveMessageResponse.FromString(elements[0])
    assert first.status.code == Code.ILLEGAL_POLLING_TIME


def test_a_waiting_receive_gets_a_message_at_once(
    broker: BrokerProcess, wire: WireClient, topic: str
) -> None:
    wire.route(topic)
    with WireClient(broker.endpoint, "waiting@1@0@x") as waiting, ThreadPoolExecutor(1) as threads:
        future = threads.submit(waiting.receive, topic, "g", wait_ms=20_000)
        time.sleep(0.3)
        sent_ms = now_ms()
        wire.send(message(topic, b"x"))
        got = future.result(patient(10))
    assert [one.body for one in got.messages] == [b"x"]
    assert got.at_ms - sent_ms < patient(1_000)


def test_a_cancelled_receive_takes_nothing(
    broker: BrokerProcess, wire: WireClient, topic: str
) -> None:
    wire.route(topic)
    request = receive(topic, "g", wait_ms=20_000)
    with WireClient(broker.endpoint, "leaving@1@0@x") as leaving:
        stream = leaving.messaging.ReceiveMessage(
            request, metadata=wire_requests.metadata("leaving@1@0@x")
        )
        threading.Timer(0.3, stream.cancel).start()
        with pytest.raises(grpc.RpcError):
            list(stream)
    wire.send(message(topic, b"x"))
    [got] = wire.receive(topic, "g").messages
    assert got.system_properties.delivery_attempt == 1


def test_a_hundred_who_wait_get_one_message_each(
    broker: BrokerProcess, wire: WireClient, topic: str
) -> None:
    count = 100
    wire.route(topic)
    request = receive(topic, "g", count_max=1, wait_ms=20_000)
    headers = wire_requests.metadata("many@1@0@x")
    streams = [wire.messaging.ReceiveMessage(request, metadata=headers) for _ in range(count)]
    time.sleep(0.5)
    for number in range(count):
        wire.send(message(topic, b"%d" % number))
    bodies = []
    for stream in streams:
        elements = list(stream)
        assert elements[0].status.code == Code.OK
        assert len(elements) == 3
        bodies.append(elements[1].message.body)
    assert sorted(bodies) == sorted(b"%d" % number for number in range(count))


def test_failure_and_delay_level_travel_as_metadata(wire: WireClient, topic: str) -> None:
    wire.create_group(topic, 1)
    sent_ms = now_ms()
    request = wire_requests.send([message(topic, b"x", message_id="the-one")])
    response = wire.call(wire.messaging.SendMessage, request, (("latermq-delay-level", "1")))
    assert response.entries[0].recall_handle
    [got] = wire.receive(topic, topic).messages
    assert now_ms() - sent_ms >= 1_000
    told = failure_pb2.Failure(class_name="Poison", text="never again", rejected=True)
    handle = got.system_properties.receipt_handle
    status = wire.call(
        wire.messaging.ForwardMessageToDeadLetterQueue,
        wire_requests.forward(topic, topic, handle),
        ("latermq-failure-bin", told.SerializeToString()),
    ).status
    assert status.code == Code.OK
    [dead] = wire.receive(f"%DLQ%{topic}", "auditors").messages
    assert dead.system_properties.dead_letter_queue.topic == topic
    assert dead.system_properties.dead_letter_queue.message_id == "the-one"


def test_a_refused_change_gives_the_handle_back(wire: WireClient, topic: str) -> None:
    response = wire.change_invisible(topic, "g", "mine", 5)
    assert (response.status.code, response.receipt_handle) == (
        Code.INVALID_RECEIPT_HANDLE, "mine",
    )  # fmt: skip


def test_leases_and_handles_outlive_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()
        with WireClient(broker.endpoint) as wire:
            wire.send(*(message("orders", b"%d" % n) for n in range(3)))
            got = wire.receive("orders", "g", invisible_ms=60_000).messages
            handles = [one.system_properties.receipt_handle for one in got]
            broker.kill()
            broker.start()
            assert wire.receive("orders", "g", wait_ms=0).messages == []
            assert wire.ack("orders", "g", *handles[:2]).status.code == Code.OK
            changed = wire.change_invisible("orders", "g", handles[2], 0)
            assert changed.status.code == Code.OK
            [again] = wire.receive("orders", "g").messages
            assert again.system_properties.delivery_attempt == 2


def test_pull_waits_and_offsets_stay(broker: BrokerProcess, wire: WireClient, topic: str) -> None:
    wire.create_topic(topic, queue_count=1)
    queue = definition_pb2.MessageQueue(topic=wire_requests.resource(topic), id=0)
    request = service_pb2.PullMessageRequest(
        group=wire_requests.resource("readers"),
        message_queue=queue,
        long_polling_timeout=duration(20_000),
    )
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(raw, broker, "PullMessage", request.SerializeToString())
        time.sleep(0.3)
        wire.send(message(topic, b"x"))
        status, pulled, last = future.result(patient(10))
    assert (status.status.code, pulled.message.body, last.next_offset) == (Code.OK, b"x", 1)
    wire.create_group("readers", 3)
    update = service_pb2.UpdateOffsetRequest(
        group=wire_requests.resource("readers"), message_queue=queue, offset=1
    )
    assert wire.call(wire.messaging.UpdateOffset, update).status.code == Code.OK
    get = service_pb2.GetOffsetRequest(group=wire_requests.resource("readers"), message_queue=queue)
    assert wire.call(wire.messaging.GetOffset, get).offset == 1
    assert wire.receive(topic, "readers", wait_ms=0).messages == []
