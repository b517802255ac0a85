"""The protocol facts, row by row: clause, request, code; a refusal stores nothing.

Against the whole method table, as a transport sees it. The rows of 4.1 (SendMessage) stand in
test_send.py, those of 2.2 (settings) in test_settings.py and test_telemetry.py.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pytest
from google.protobuf.message import Message

from latermq_broker.engine.state.model import TopicType
from latermq_broker.services.call.answers import MESSAGING
from latermq_broker.services.call.handler import MethodKind
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2
from latermq_proto.google.protobuf.duration_pb2 import Duration
from latermq_proto.google.protobuf.timestamp_pb2 import Timestamp
from support.fake_call import FakeCall
from support.v1_rig import V1Rig

Code: Final = v2.Code
BAD_FILTER: Final = Code.ILLEGAL_FILTER_EXPRESSION
BAD_LEASE: Final = Code.ILLEGAL_INVISIBLE_TIME
HOUR_S: Final = 3_600
NEW_CLIENT: Final = {"x-mq-client-version": "5.1.2"}
LONG: Final = "x" * 128


def seconds(count: int) -> Duration:
    return Duration(seconds=count)


def res(name: str) -> v2.Resource:
    return v2.Resource(name=name)


ORDERS, BILLING, NOWHERE = res("orders"), res("billing"), res("nowhere")
BAD: Final = res("a b")
QUEUE: Final = v2.MessageQueue(topic=ORDERS)


class World(NamedTuple):
    """What requests are about: a message leased to billing, one acknowledged, one half."""

    handle: str
    acked: str
    expired: str
    half: str


class Row(NamedTuple):
    clause: str
    rpc: str
    request: Callable[[World], Message]
    code: int
    call: Mapping[str, Any]


def row(clause: str, rpc: str, code: int, call: dict[str, Any] | None = None, **fields: Any) -> Row:
    """Fields that are functions are given the world."""
    request_class: Any = getattr(service_pb2, f"{rpc}Request")

    def request(world: World) -> Message:
        made = {key: each(world) if callable(each) else each for key, each in fields.items()}
        built: Message = request_class(**made)
        return built

    return Row(clause, rpc, request, code, call or {})


def receive(clause: str, code: int, call: dict[str, Any] | None = None, **fields: Any) -> Row:
    fields = {
        "group": BILLING,
        "message_queue": QUEUE,
        "invisible_duration": seconds(30),
        "long_polling_timeout": Duration(),
        "batch_size": 1,
        **fields,
    }
    return row(clause, "ReceiveMessage", code, call, **fields)


def change(clause: str, code: int, **fields: Any) -> Row:
    fields = {
        "topic": ORDERS,
        "group": BILLING,
        "receipt_handle": lambda world: world.handle,
        "invisible_duration": seconds(30),
        **fields,
    }
    return row(clause, "ChangeInvisibleDuration", code, **fields)


def forward(clause: str, code: int, **fields: Any) -> Row:
    fields = {
        "topic": ORDERS,
        "group": BILLING,
        "receipt_handle": lambda world: world.handle,
        **fields,
    }
    return row(clause, "ForwardMessageToDeadLetterQueue", code, **fields)


def ack(clause: str, code: int, *handles: Callable[[World], str], **fields: Any) -> Row:
    def entries(world: World) -> list[service_pb2.AckMessageEntry]:
        return [service_pb2.AckMessageEntry(receipt_handle=each(world)) for each in handles]

    fields = {"topic": ORDERS, "group": BILLING, "entries": entries, **fields}
    return row(clause, "AckMessage", code, **fields)


def end(clause: str, code: int, **fields: Any) -> Row:
    fields = {
        "topic": ORDERS,
        "message_id": "half",
        "transaction_id": lambda world: world.half,
        "resolution": v2.COMMIT,
        **fields,
    }
    return row(clause, "EndTransaction", code, **fields)


def offsets(clause: str, code: int, rpc: str, **fields: Any) -> Row:
    return row(clause, rpc, code, **{"message_queue": QUEUE, "group": BILLING, **fields})


def live(world: World) -> str:
    return world.handle


def tag(expression: str) -> v2.FilterExpression:
    return v2.FilterExpression(type=v2.TAG, expression=expression)


def sql(expression: str) -> v2.FilterExpression:
    return v2.FilterExpression(type=v2.SQL, expression=expression)


def names(clause: str, make: Callable[..., Row], **fields: Any) -> list[Row]:
    """Section 8 for an RPC that names a topic and a group."""
    rows = []
    for name in ("", " ", "a b", "ä", LONG, "TBW102", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"):
        topic: dict[str, Any] = {"topic": res(name)}
        if "message_queue" in fields:
            topic = {"message_queue": v2.MessageQueue(topic=res(name))}
        label = f"{clause} topic {name[:20]!r}"
        rows.append(make(label, Code.ILLEGAL_TOPIC, **{**fields, **topic}))
    for name in ("", "\t", "a b", "ä", LONG, "CID_RMQ_SYS_x"):
        label = f"{clause} group {name[:20]!r}"
        rows.append(make(label, Code.ILLEGAL_CONSUMER_GROUP, **{**fields, "group": res(name)}))
    return rows


def ack_of(clause: str, code: int, **fields: Any) -> Row:
    return ack(clause, code, live, **fields)


def pull(clause: str, code: int, **fields: Any) -> Row:
    return offsets(clause, code, "PullMessage", **fields)


def update(clause: str, code: int, **fields: Any) -> Row:
    return offsets(clause, code, "UpdateOffset", **fields)


def get(clause: str, code: int, **fields: Any) -> Row:
    return offsets(clause, code, "GetOffset", **fields)


def query(clause: str, code: int, **fields: Any) -> Row:
    fields = {"message_queue": QUEUE, **fields}
    return row(clause, "QueryOffset", code, **fields)


WITH_QUEUE: Final[dict[str, Any]] = {"message_queue": QUEUE}
UNKNOWN_QUEUE: Final[dict[str, Any]] = {"message_queue": v2.MessageQueue(topic=NOWHERE)}
NO_SUCH_QUEUE: Final[dict[str, Any]] = {"message_queue": v2.MessageQueue(topic=ORDERS, id=9)}

ROWS: Final[list[Row]] = [
    # 3: routes
    row("3.1 unknown topic", "QueryRoute", Code.TOPIC_NOT_FOUND, topic=NOWHERE),
    row("3.1 illegal topic", "QueryRoute", Code.ILLEGAL_TOPIC, topic=BAD),
    row("3.1 ok", "QueryRoute", Code.OK, topic=ORDERS),
    row("3.3 ok", "QueryAssignment", Code.OK, topic=ORDERS, group=BILLING),
    row("3.3 unknown", "QueryAssignment", Code.TOPIC_NOT_FOUND, topic=NOWHERE, group=BILLING),
    row("3.3 topic", "QueryAssignment", Code.ILLEGAL_TOPIC, topic=BAD, group=BILLING),
    row("3.3 group", "QueryAssignment", Code.ILLEGAL_CONSUMER_GROUP, topic=ORDERS, group=BAD),
    # 5.1: receive
    *names("5.1", receive, **WITH_QUEUE),
    receive("5.1 unknown topic", Code.TOPIC_NOT_FOUND, **UNKNOWN_QUEUE),
    receive("5.1 unknown group", Code.CONSUMER_GROUP_NOT_FOUND, group=NOWHERE),
    receive("5.1 batch 0 is 1", Code.OK, batch_size=0),
    receive("5.1 batch -1 is 1", Code.OK, batch_size=-1),
    receive("5.1 batch is capped", Code.OK, batch_size=2**31 - 1),
    receive("5.1 no lease", BAD_LEASE, invisible_duration=Duration()),
    receive("5.1 lease below 0", BAD_LEASE, invisible_duration=seconds(-1)),
    receive("5.1 lease of 12 h", Code.OK, invisible_duration=seconds(12 * HOUR_S)),
    receive(
        "5.1 lease above 12 h",
        BAD_LEASE,
        invisible_duration=Duration(seconds=12 * HOUR_S, nanos=1),
    ),
    receive("5.1 lease absurd", BAD_LEASE, invisible_duration=seconds(2**62)),
    receive("5.1 renewed: lease ignored", Code.OK, auto_renew=True, invisible_duration=Duration()),
    receive("5.1 filter only separators", BAD_FILTER, filter_expression=tag("||")),
    receive("5.1 filter type", BAD_FILTER, filter_expression={"type": 9}),
    receive("5.1 empty sql", BAD_FILTER, filter_expression=sql("")),
    receive("5.3 garbage after sql", BAD_FILTER, filter_expression=sql("a = 1 b")),
    receive("5.1 filter unset", Code.OK, filter_expression=v2.FilterExpression()),
    receive(
        "5.1 poll beyond a near deadline",
        Code.ILLEGAL_POLLING_TIME,
        {"remaining_ms": 4_000, "metadata": NEW_CLIENT},
        long_polling_timeout=seconds(20),
    ),
    receive(
        "5.1 the same for an old client",
        Code.BAD_REQUEST,
        {"remaining_ms": 4_000, "metadata": {"x-mq-client-version": "5.0.2"}},
        long_polling_timeout=seconds(20),
    ),
    receive("5.2 nothing there", Code.MESSAGE_NOT_FOUND, filter_expression=tag("other")),
    receive("1.1 no client id", Code.CLIENT_ID_REQUIRED, {"client_id": ""}),
    receive("1.1 blank client id", Code.CLIENT_ID_REQUIRED, {"client_id": " "}),
    # 6.1: ack
    *names("6.1", ack_of),
    ack("6.1 ok", Code.OK, live),
    ack("6.1 no entries", Code.BAD_REQUEST),
    ack("6.1 undecodable", Code.INVALID_RECEIPT_HANDLE, lambda _: "junk"),
    ack("6.1 expired", Code.INVALID_RECEIPT_HANDLE, lambda world: world.expired),
    ack("6.1 twice within the lease", Code.OK, lambda world: world.acked),
    ack("6.1 mixed", Code.MULTIPLE_RESULTS, live, lambda _: "junk"),
    ack("6.1 another group's", Code.INVALID_RECEIPT_HANDLE, live, group=res("shipping")),
    ack("6.1 another topic's", Code.INVALID_RECEIPT_HANDLE, live, topic=res("plain")),
    # 6.2: change
    *names("6.2", change),
    change("6.2 ok", Code.OK),
    change("6.2 at once", Code.OK, invisible_duration=Duration()),
    change("6.2 below 0", BAD_LEASE, invisible_duration=seconds(-1)),
    change("6.2 above 12 h", BAD_LEASE, invisible_duration=seconds(43_201)),
    change("6.2 expired", Code.INVALID_RECEIPT_HANDLE, receipt_handle=lambda w: w.expired),
    change("6.2 acknowledged", Code.INVALID_RECEIPT_HANDLE, receipt_handle=lambda w: w.acked),
    change("6.2 another topic's", Code.INVALID_RECEIPT_HANDLE, topic=res("plain")),
    change("6.2 junk", Code.INVALID_RECEIPT_HANDLE, receipt_handle="☃"),
    # 6.3: forward
    *names("6.3", forward),
    forward("6.3 ok", Code.OK),
    forward("6.3 unknown group", Code.CONSUMER_GROUP_NOT_FOUND, group=NOWHERE),
    forward("6.3 expired", Code.INVALID_RECEIPT_HANDLE, receipt_handle=lambda w: w.expired),
    forward("6.3 another topic's", Code.INVALID_RECEIPT_HANDLE, topic=res("plain")),
    forward("6.3 no handle", Code.INVALID_RECEIPT_HANDLE, receipt_handle=""),
    forward("6.3 again", Code.OK, receipt_handle=lambda w: w.acked),
    # 6.4: transactions
    end("6.4 commit", Code.OK),
    end("6.4 rollback", Code.OK, resolution=v2.ROLLBACK),
    end("6.4 unspecified", Code.OK, resolution=v2.TRANSACTION_RESOLUTION_UNSPECIFIED),
    end("6.4 illegal topic", Code.ILLEGAL_TOPIC, topic=BAD),
    end("6.4 blank id", Code.INVALID_TRANSACTION_ID, transaction_id=" "),
    end("6.4 unknown id", Code.INVALID_TRANSACTION_ID, transaction_id="nobody's"),
    end("6.4 another message's", Code.INVALID_TRANSACTION_ID, message_id="other"),
    end("6.4 resolution", Code.BAD_REQUEST, resolution=9),
    # 6.5: offsets
    *names("6.5 pull", pull, **WITH_QUEUE),
    *names("6.5 update", update, **WITH_QUEUE),
    *names("6.5 get", get, **WITH_QUEUE),
    pull("6.5 pull ok", Code.OK),
    pull("6.5 pull unknown topic", Code.TOPIC_NOT_FOUND, **UNKNOWN_QUEUE),
    pull("6.5 pull unknown queue", Code.BAD_REQUEST, **NO_SUCH_QUEUE),
    pull("6.5 pull below", Code.ILLEGAL_OFFSET, offset=-1),
    pull("6.5 pull beyond", Code.ILLEGAL_OFFSET, offset=99),
    pull("6.5 pull filter", BAD_FILTER, filter_expression=tag("||")),
    update("6.5 update ok", Code.OK, offset=1),
    update("6.5 update unknown topic", Code.TOPIC_NOT_FOUND, **UNKNOWN_QUEUE),
    update("6.5 update unknown group", Code.CONSUMER_GROUP_NOT_FOUND, group=NOWHERE),
    update("6.5 update unknown queue", Code.BAD_REQUEST, **NO_SUCH_QUEUE),
    update("6.5 update below", Code.ILLEGAL_OFFSET, offset=-1),
    update("6.5 update beyond", Code.ILLEGAL_OFFSET, offset=2**62),
    get("6.5 get ok", Code.OK),
    get("6.5 get never read", Code.OFFSET_NOT_FOUND, group=res("shipping")),
    get("6.5 get unknown topic", Code.TOPIC_NOT_FOUND, **UNKNOWN_QUEUE),
    get("6.5 get unknown group", Code.CONSUMER_GROUP_NOT_FOUND, group=NOWHERE),
    query("6.5 query ok", Code.OK, query_offset_policy=v2.END),
    query("6.5 query policy", Code.BAD_REQUEST, query_offset_policy=9),
    query("6.5 query no timestamp", Code.BAD_REQUEST, query_offset_policy=v2.TIMESTAMP),
    query(
        "6.5 query before the epoch",
        Code.OK,
        query_offset_policy=v2.TIMESTAMP,
        timestamp=Timestamp(seconds=-(2**62)),
    ),
    query("6.5 query unknown topic", Code.TOPIC_NOT_FOUND, **UNKNOWN_QUEUE),
    query("6.5 query illegal topic", Code.ILLEGAL_TOPIC, message_queue=v2.MessageQueue(topic=BAD)),
    # 6.6: recall
    row("6.6 unknown topic", "RecallMessage", Code.TOPIC_NOT_FOUND, topic=NOWHERE),
    row("6.6 illegal topic", "RecallMessage", Code.ILLEGAL_TOPIC, topic=BAD),
    row("6.6 no handle", "RecallMessage", Code.BAD_REQUEST, topic=ORDERS, recall_handle="junk"),
    row("6.6 gone", "RecallMessage", Code.NOT_FOUND, topic=ORDERS, recall_handle="d-1-1"),
    row(
        "6.6 not a delay topic",
        "RecallMessage",
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        topic=res("plain"),
        recall_handle="d-1-1",
    ),
    # 2.3, 2.6: a client nobody knows
    row("2.3 unknown client", "Heartbeat", Code.UNRECOGNIZED_CLIENT_TYPE, group=BILLING),
    row("2.6 unknown", "NotifyClientTermination", Code.UNRECOGNIZED_CLIENT_TYPE, group=BILLING),
]  # fmt: skip

RPCS: Final = sorted(
    rpc.name
    for rpc in service_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods
    if rpc.name != "Telemetry"
)


@pytest.fixture(scope="module")
def kept() -> Iterator[V1Rig]:
    """For refusals: they change nothing."""
    rig = V1Rig(auto_create=False)
    yield rig
    rig.close()


@pytest.fixture(scope="module")
def world(kept: V1Rig) -> World:
    return filled(kept)


def filled(rig: V1Rig) -> World:
    for name, kind in (("orders", TopicType.MIXED), ("plain", TopicType.NORMAL)):
        rig.engine.topics.create(name, kind, 1, rig.now_ms)
    rig.make_group("billing", attempts=9)
    rig.make_group("shipping", attempts=9)
    for number in range(4):
        rig.send_message(f"m{number}")
    (expired,) = rig.receive(count=1, lease_ms=1)
    rig.advance(10)
    acked, live = rig.receive(count=2, lease_ms=3_600_000)
    rig.ack(acked)
    half = rig.send_half("half")
    return World(live.handle, acked.handle, expired.handle, half.transaction_id)


def asked(rig: V1Rig, each: Row, world: World) -> list[Any]:
    """The parsed response, or elements of it."""
    path = f"{MESSAGING}/{each.rpc}"
    data, call = each.request(world).SerializeToString(), FakeCall(**each.call)
    response_class: Any = getattr(service_pb2, f"{each.rpc}Response")
    if rig.methods[path].kind is MethodKind.SERVER_STREAM:
        return [response_class.FromString(one) for one in rig.raw_stream(path, data, call)]
    return [response_class.FromString(rig.raw(path, data, call))]


REFUSALS: Final = [each for each in ROWS if each.code not in (Code.OK, Code.MULTIPLE_RESULTS)]
OTHERS: Final = [each for each in ROWS if each not in REFUSALS]


@pytest.mark.parametrize("each", REFUSALS, ids=[each.clause for each in REFUSALS])
def test_refused(kept: V1Rig, world: World, each: Row) -> None:
    before = kept.engine.store.log.end
    answers = asked(kept, each, world)
    status = answers[0].status
    assert status.code == each.code, status.message
    assert status.message
    assert kept.engine.store.log.end == before
    if each.rpc == "ReceiveMessage":  # 5.2: one status, the time last, also after errors
        kinds = [answer.WhichOneof("content") for answer in answers]
        assert kinds == ["status", "delivery_timestamp"]
    if each.rpc == "ChangeInvisibleDuration":  # 6.2: on every failure the request's handle
        assert answers[0].receipt_handle == each.request(world).receipt_handle  # type: ignore[attr-defined]
    if each.rpc == "AckMessage":  # 6.1: one entry for each, in order
        entries = each.request(world).entries  # type: ignore[attr-defined]
        assert [one.receipt_handle for one in answers[0].entries] == [
            one.receipt_handle for one in entries
        ]
        assert {one.status.code for one in answers[0].entries} <= {each.code}


@pytest.mark.parametrize("each", OTHERS, ids=[each.clause for each in OTHERS])
def test_answered(each: Row) -> None:
    rig = V1Rig(auto_create=False)
    try:
        world = filled(rig)
        answers = asked(rig, each, world)
        assert answers[0].status.code == each.code, answers[0].status.message
        if each.rpc == "AckMessage":
            assert len(answers[0].entries) == len(each.request(world).entries)  # type: ignore[attr-defined]
    finally:
        rig.close()


@pytest.mark.parametrize("rpc", RPCS)
def test_1_1_every_rpc_wants_a_client_id(kept: V1Rig, rpc: str) -> None:
    """Health probes and demos call without any header."""
    request_class: Any = getattr(service_pb2, f"{rpc}Request")
    for client_id in ("", "  "):
        bare = Row("1.1", rpc, lambda _: request_class(), 0, {"client_id": client_id})
        answers = asked(kept, bare, World("", "", "", ""))
        assert answers[0].status.code == Code.CLIENT_ID_REQUIRED


def test_10_every_code_that_requests_can_provoke_has_a_row() -> None:
    provoked = {each.code for each in ROWS}
    assert provoked >= {
        Code.OK, Code.MULTIPLE_RESULTS, Code.BAD_REQUEST, Code.ILLEGAL_TOPIC,
        Code.ILLEGAL_CONSUMER_GROUP, Code.ILLEGAL_FILTER_EXPRESSION, Code.ILLEGAL_INVISIBLE_TIME,
        Code.INVALID_RECEIPT_HANDLE, Code.INVALID_TRANSACTION_ID, Code.UNRECOGNIZED_CLIENT_TYPE,
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, Code.CLIENT_ID_REQUIRED,
        Code.ILLEGAL_POLLING_TIME, Code.ILLEGAL_OFFSET, Code.OFFSET_NOT_FOUND, Code.NOT_FOUND,
        Code.MESSAGE_NOT_FOUND, Code.TOPIC_NOT_FOUND, Code.CONSUMER_GROUP_NOT_FOUND,
    }  # fmt: skip
