"""What RocketMQ's clients and test suites rely on, against a broker in a process of its own."""

import gzip
import hashlib
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient
from support.nonsense import broken, message_of
from support.wire_client import WireClient, now_ms
from support.wire_requests import message, resource

Code: Final = v2.Code
SERVICE: Final = service_pb2.DESCRIPTOR.services_by_name["MessagingService"]
STREAMS: Final = frozenset({"ReceiveMessage", "PullMessage"})
CODES: Final = frozenset(Code.values()) - {v2.CODE_UNSPECIFIED, v2.INTERNAL_ERROR}
PLAIN: Final = b"a body that is long enough to be worth it " * 100


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("compat") / "data") as process:
        yield process.start()


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.endpoint) as client:
        yield client


def cli(broker: BrokerProcess, *words: str) -> str:
    command = [sys.executable, "-m", "latermq_broker", *words, "--endpoint", broker.endpoint]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(60), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (PLAIN, v2.IDENTITY),
        (gzip.compress(PLAIN), v2.GZIP),
        (zlib.compress(PLAIN), v2.GZIP),  # C++ calls deflate so
        (b"no gzip at all", v2.GZIP),
    ],
    ids=["plain", "gzip", "deflate", "neither"],
)
def test_4_2_bodies_pass_as_they_are_with_their_digest(
    wire: WireClient, body: bytes, encoding: Any
) -> None:
    topic = f"bodies-{hashlib.md5(body).hexdigest()}"
    sent = message(topic, body)
    sent.system_properties.body_encoding = encoding
    assert wire.send(sent).status.code == Code.OK
    [got] = wire.receive(topic, "g").messages
    system = got.system_properties
    assert (got.body, system.body_encoding) == (body, encoding)
    assert (system.body_digest.type, system.body_digest.checksum) == (
        v2.MD5, hashlib.md5(body).hexdigest().upper(),
    )  # fmt: skip


def test_4_5_and_6_1_one_entry_per_message(wire: WireClient) -> None:
    made = [message("entries", b"%d" % number) for number in range(20)]
    sent = wire.send(*made)
    ids = [one.system_properties.message_id for one in made]
    assert [one.message_id for one in sent.entries] == ids
    assert {one.status.code for one in sent.entries} == {Code.OK}
    handles: list[str] = []
    while len(handles) < 20:
        handles += [
            one.system_properties.receipt_handle for one in wire.receive("entries", "g").messages
        ]
    handles[3] = handles[11] = "none of ours"
    acked = wire.ack("entries", "g", *handles)
    assert acked.status.code == Code.MULTIPLE_RESULTS
    refused = [at for at, one in enumerate(acked.entries) if one.status.code != Code.OK]
    assert refused == [3, 11]
    assert [one.receipt_handle for one in acked.entries] == handles


def test_6_5_offsets_outlive_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()
        with WireClient(broker.endpoint) as wire:
            wire.create_topic("orders", queue_count=1)
            wire.create_group("readers", 3)
            wire.send(*(message("orders", b"%d" % number) for number in range(5)))
            queue = v2.MessageQueue(topic=resource("orders"), id=0)
            about: dict[str, Any] = {"group": resource("readers"), "message_queue": queue}
            update = service_pb2.UpdateOffsetRequest(**about, offset=3)
            assert wire.call(wire.messaging.UpdateOffset, update).status.code == Code.OK
            broker.kill()
            broker.start()
            got = wire.call(wire.messaging.GetOffset, service_pb2.GetOffsetRequest(**about))
            assert (got.status.code, got.offset) == (Code.OK, 3)
            assert [one.body for one in wire.receive("orders", "readers").messages] == [b"3", b"4"]


def test_limits_hold_at_once_and_after_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()
        with WireClient(broker.endpoint, "greedy") as wire:
            assert wire.send(message("orders", b"x")).status.code == Code.OK
            cli(broker, "limit", "set", "client", "greedy", "--sends", "1")
            cli(broker, "limit", "set", "group", "g", "--in-flight", "1")
            codes = [wire.send(message("orders", b"x")).status.code for _ in range(5)]
            assert Code.TOO_MANY_REQUESTS in codes
            broker.kill()
            broker.start()
            answers = [wire.send(message("orders", b"x")).status for _ in range(5)]
            refused = [one for one in answers if one.code == Code.TOO_MANY_REQUESTS]
            assert "client greedy may send 1 messages per second" in refused[0].message
            assert len(wire.receive("orders", "g").messages) == 1
            assert wire.receive("orders", "g").status.code == Code.TOO_MANY_REQUESTS
            with WireClient(broker.endpoint, "modest") as other:
                assert other.send(message("orders", b"x")).status.code == Code.OK
            cli(broker, "limit", "unset", "client", "greedy")
            codes = [wire.send(message("orders", b"x")).status.code for _ in range(5)]
            assert set(codes) == {Code.OK}


def test_strict_by_configuration(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", config="[compat]\nstrict = true\n") as broker:
        broker.start()
        with WireClient(broker.endpoint) as wire:
            route = wire.route("orders")
            assert (route.status.code, route.status.message) == (
                Code.TOPIC_NOT_FOUND,
                "CODE: 17  DESC: No topic route info in name server for the topic: orders",
            )
            wire.create_topic("orders")
            assert wire.send(message("orders", b"x")).status.code == Code.OK
            status = wire.receive("orders", "g", invisible_ms=9_999).status
            assert status.message == "the invisibleTime is too small. min is 10000"
            late = message("orders", b"x", deliver_at_ms=now_ms() + 25 * 3_600_000)
            assert wire.send(late).status.code == Code.ILLEGAL_DELIVERY_TIME


@settings(max_examples=150, suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_nonsense_over_the_wire(broker: BrokerProcess, data: st.DataObject) -> None:
    """gRPC ends OK, the code is one that clients know, and the broker goes on."""
    rpc = data.draw(st.sampled_from([one for one in SERVICE.methods if one.name != "Telemetry"]))
    request: Any = message_of(GetMessageClass(rpc.input_type), data.draw)
    if "long_polling_timeout" in rpc.input_type.fields_by_name:
        request.long_polling_timeout.Clear()
        request.long_polling_timeout.SetInParent()
    body = broken(request.SerializeToString(), data.draw)
    path = f"/{SERVICE.full_name}/{rpc.name}"
    response_class: Any = GetMessageClass(rpc.output_type)
    junk = data.draw(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40))
    more = (("x-mq-date-time", junk.strip()), ("latermq-failure-bin", data.draw(st.binary())))
    options: dict[str, Any] = {
        "metadata": wire_requests.metadata("nonsense", *more),
        "timeout": 4.0,  # too near for a wait that a broken request asks for
        "wait_for_ready": True,
    }
    with grpc.insecure_channel(broker.endpoint) as channel:
        if rpc.name in STREAMS:
            elements = list(channel.unary_stream(path)(body, **options))
        else:
            elements = [channel.unary_unary(path)(body, **options)]
    status = response_class.FromString(elements[0]).status
    assert status.code in CODES, status.message
    assert broker.running
