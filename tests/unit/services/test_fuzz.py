"""Every RPC with nonsense in it: never a bug of ours, always a code that clients know.

What was accepted of it is the same after a crash.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, cast

import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latermq_broker.catalog.catalog import TopicType
from latermq_broker.services.call.answers import MESSAGING
from latermq_broker.services.call.handler import BidiStream, CallAborted, MethodKind
from latermq_broker.services.registry import FILES
from latermq_h2.grpc_code import GrpcCode
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2.service_pb2 import TelemetryCommand
from support.fake_call import FakeCall
from support.nonsense import broken, headers, message_of
from support.v1_rig import V1Rig

RPCS: Final = {
    f"/{service.full_name}/{rpc.name}": rpc
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for rpc in service.methods
    if rpc.name != "Telemetry"
}
CODES: Final = frozenset(v2.Code.values()) - {v2.CODE_UNSPECIFIED, v2.INTERNAL_ERROR}
NO_STATUS: Final = {"ChangeLogLevel"}


@pytest.fixture(scope="module")
def rig() -> Iterator[V1Rig]:
    rig = V1Rig()
    for name, kind in (("orders", TopicType.MIXED), ("plain", TopicType.NORMAL)):
        rig.engine.topics.create(name, kind, 1, rig.now_ms)
    rig.die("dead")
    rig.send_message("m1")
    rig.send_message("m2", wait_ms=100_000)
    rig.send_half("half")
    yield rig
    before = kept(rig)
    rig.crash()
    assert kept(rig) == before
    rig.close()


def kept(rig: V1Rig) -> dict[str, object]:
    state = rig.engine._state
    return {
        "catalog": state.catalog.snapshot(),
        "limits": state.limits.snapshot(),
        "deliveries": {id: one.key() for id, one in state.leases.deliveries.items()},
        "timer": sorted(state.timer.in_order()),
        "halves": [half.key() for half in state.halves],
        "delayed": {topic: count for topic, count in state.delayed_counts.items() if count},
    }


def check(elements: list[bytes], rpc: Any) -> None:
    """Each parses, and the first that has a status has one that clients know."""
    response_class: Any = GetMessageClass(rpc.output_type)
    answers = [response_class.FromString(element) for element in elements]
    assert answers
    if rpc.name in NO_STATUS:
        return
    told = [answer.status for answer in answers if answer.HasField("status")]
    assert told
    for status in told:
        assert status.code in CODES, (status.code, status.message)


@pytest.mark.parametrize("path", sorted(RPCS))
@settings(max_examples=12, suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_every_rpc(rig: V1Rig, path: str, data: st.DataObject) -> None:
    rpc = RPCS[path]
    request: Any = message_of(GetMessageClass(rpc.input_type), data.draw)
    if "long_polling_timeout" in rpc.input_type.fields_by_name:
        request.long_polling_timeout.Clear()  # nobody waits here
        request.long_polling_timeout.SetInParent()
    body = broken(request.SerializeToString(), data.draw)
    call = FakeCall(
        metadata=headers(data.draw),
        metadata_bin={"latermq-failure-bin": data.draw(st.binary(max_size=40))},
        remaining_ms=100,
    )
    if rig.methods[path].kind is MethodKind.SERVER_STREAM:
        check(rig.raw_stream(path, body, call), rpc)
    else:
        check([rig.raw(path, body, call)], rpc)


@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_telemetry(rig: V1Rig, data: st.DataObject) -> None:
    sent = [
        broken(message_of(TelemetryCommand, data.draw).SerializeToString(), data.draw)
        for _ in range(data.draw(st.integers(1, 3)))
    ]

    ended: list[GrpcCode] = []

    async def requests() -> AsyncIterator[bytes]:
        for each in sent:
            yield each

    async def run() -> None:
        call = FakeCall(metadata=headers(data.draw), client_id=data.draw(st.sampled_from("ab")))
        handler = cast(BidiStream, rig.methods[f"{MESSAGING}/Telemetry"].handler)
        try:
            async for command in handler(requests(), call):
                status = TelemetryCommand.FromString(command).status
                assert status.code in CODES
        except CallAborted as aborted:
            ended.append(aborted.code)

    rig.loop.run_until_complete(run())
    assert set(ended) <= {GrpcCode.INVALID_ARGUMENT}


class TestSizes:
    """Much of what is allowed little of."""

    @pytest.mark.parametrize(
        ("expression", "code"),
        [
            ("||".join(f"t{number}" for number in range(10_000)), v2.ILLEGAL_FILTER_EXPRESSION),
            ("||".join("abcdefghijklmnopqrstuvwxyz" * 150), v2.OK),
            ("|" * 16_384, v2.ILLEGAL_FILTER_EXPRESSION),
            ("☃ || 注文 || \U0001d546", v2.MESSAGE_NOT_FOUND),
        ],
    )
    def test_ten_thousand_tags(self, expression: str, code: int) -> None:
        rig = V1Rig()
        rig.send_message("m1", tag="a")
        assert self.received(rig, v2.FilterExpression(type=v2.TAG, expression=expression)) == code
        rig.close()

    @pytest.mark.parametrize(
        "expression",
        [
            "(" * 5_000 + "a = 1" + ")" * 5_000,
            " OR ".join(["a = 1"] * 2_000),
            "NOT " * 3_000 + "a",
            "a IN (" + ",".join("'x'" for _ in range(5_000)) + ")",
            "-" * 8_000 + "1 = a",
            "'" * 8_191,
        ],
    )
    def test_sql_without_end(self, expression: str) -> None:
        rig = V1Rig()
        code = self.received(rig, v2.FilterExpression(type=v2.SQL, expression=expression))
        assert code == v2.ILLEGAL_FILTER_EXPRESSION
        rig.close()

    def received(self, rig: V1Rig, wanted: v2.FilterExpression) -> int:
        rpc = RPCS[f"{MESSAGING}/ReceiveMessage"]
        request: Any = GetMessageClass(rpc.input_type)()
        request.group.name, request.message_queue.topic.name = "billing", "orders"
        request.invisible_duration.seconds = 30
        request.long_polling_timeout.SetInParent()
        request.filter_expression.CopyFrom(wanted)
        elements = rig.raw_stream(
            f"{MESSAGING}/ReceiveMessage", request.SerializeToString(), FakeCall()
        )
        check(elements, rpc)
        response: Any = GetMessageClass(rpc.output_type)
        return int(response.FromString(elements[0]).status.code)
