"""apache.rocketmq.v2.Admin: each RPC, and each of its codes (protocol.md 9)."""

import json
import logging
from collections.abc import Iterator
from typing import Any, Final

import pytest

from latermq_broker.config.config import AdminConfig, Config, ServerConfig
from latermq_broker.engine.state.model import TopicType
from latermq_broker.services.auth.admin_gate import admin_served
from latermq_broker.services.registry import assemble
from latermq_proto.apache.rocketmq.v2 import admin_pb2
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.google.protobuf import timestamp_pb2
from latermq_text.version import own_version
from support.admin_rig import AdminRig, resource

Code = v2.Code
BILLING, ORDERS, GONE = resource("billing"), resource("orders"), resource("gone")


@pytest.fixture
def rig() -> Iterator[AdminRig]:
    rig = AdminRig(queues=2)
    rig.make_group()
    yield rig
    rig.close()


def instant(ms: int) -> timestamp_pb2.Timestamp:
    stamp = timestamp_pb2.Timestamp()
    stamp.FromMilliseconds(ms)
    return stamp


REFUSED: list[tuple[str, dict[str, Any], int]] = [
    ("DescribeTopicStatus", {}, Code.BAD_REQUEST),
    ("DescribeTopicStatus", {"topic": GONE}, Code.TOPIC_NOT_FOUND),
    ("DescribeTopicStatus", {"topic": resource("a b")}, Code.ILLEGAL_TOPIC),
    ("ListSubscription", {}, Code.BAD_REQUEST),
    ("DescribeSubscription", {}, Code.BAD_REQUEST),
    ("DeleteSubscription", {}, Code.BAD_REQUEST),
    ("DeleteSubscription", {"topic": ORDERS}, Code.BAD_REQUEST),
    ("DeleteSubscription", {"group": BILLING}, Code.BAD_REQUEST),
    ("DeleteSubscription", {"group": BILLING, "topic": ORDERS}, Code.NOT_FOUND),
    ("DescribeGroupAccumulation", {}, Code.BAD_REQUEST),
    ("DescribeGroupAccumulation", {"group": GONE}, Code.CONSUMER_GROUP_NOT_FOUND),
    ("DescribeGroupAccumulation", {"group": BILLING, "topics": [GONE]}, Code.TOPIC_NOT_FOUND),
    ("DescribeGroupAccumulation", {"group": BILLING, "lite_topic": "x"}, Code.NOT_FOUND),
    ("ListConsumerConnection", {}, Code.BAD_REQUEST),
    ("ListConsumerConnection", {"group": GONE}, Code.CONSUMER_GROUP_NOT_FOUND),
    ("ResetGroupOffset", {"topic": ORDERS, "reset_timestamp": instant(9)}, Code.BAD_REQUEST),
    ("ResetGroupOffset", {"group": BILLING, "reset_timestamp": instant(9)}, Code.BAD_REQUEST),
    ("ResetGroupOffset", {"group": BILLING, "topic": ORDERS}, Code.BAD_REQUEST),
    (
        "ResetGroupOffset",
        {"group": GONE, "topic": ORDERS, "reset_timestamp": instant(9)},
        Code.CONSUMER_GROUP_NOT_FOUND,
    ),
    (
        "ResetGroupOffset",
        {"group": BILLING, "topic": GONE, "reset_timestamp": instant(9)},
        Code.TOPIC_NOT_FOUND,
    ),
    ("QueryMessage", {"message_id": "m"}, Code.BAD_REQUEST),
    ("QueryMessage", {"topic": ORDERS}, Code.BAD_REQUEST),
    ("QueryMessage", {"topic": ORDERS, "message_id": ""}, Code.BAD_REQUEST),
    ("QueryMessage", {"topic": ORDERS, "subscription": "x"}, Code.BAD_REQUEST),
    (
        "QueryMessage",
        {"topic": ORDERS, "message_id": "m", "max_message_nums": -1},
        Code.BAD_REQUEST,
    ),
    (
        "QueryMessage",
        {"topic": ORDERS, "message_id": "m", "scroll_id": "eA"},
        Code.BAD_REQUEST,
    ),
    ("QueryMessage", {"topic": GONE, "message_id": "m"}, Code.TOPIC_NOT_FOUND),
    ("QueryMessage", {"topic": ORDERS, "message_id": "x"}, Code.MESSAGE_NOT_FOUND),
    ("QueryMessage", {"topic": ORDERS, "message_key": "x"}, Code.MESSAGE_NOT_FOUND),
    ("PrintThreadStackTrace", {}, Code.BAD_REQUEST),
    ("PrintThreadStackTrace", {"client_id": "nobody"}, Code.NOT_FOUND),
    ("VerifyMessage", {"client_id": "c", "topic": ORDERS, "message_id": "m"}, Code.BAD_REQUEST),
    ("VerifyMessage", {"group": BILLING, "client_id": "c", "message_id": "m"}, Code.BAD_REQUEST),
    ("VerifyMessage", {"group": BILLING, "topic": ORDERS, "message_id": "m"}, Code.BAD_REQUEST),
    (
        "VerifyMessage",
        {"group": BILLING, "client_id": "c", "topic": ORDERS, "message_id": "m"},
        Code.NOT_FOUND,
    ),
    ("AdminSendMessage", {"body": b"x"}, Code.BAD_REQUEST),
    ("AdminSendMessage", {"topic": ORDERS}, Code.MESSAGE_BODY_EMPTY),
    (
        "AdminSendMessage",
        {"topic": ORDERS, "body": b"x", "user_properties": {"KEYS": "x"}},
        Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
    ),
    (
        "AdminSendMessage",
        {
            "topic": ORDERS,
            "body": b"x",
            "system_properties": v2.SystemProperties(delivery_timestamp=instant(9)),
        },
        Code.ILLEGAL_DELIVERY_TIME,
    ),
    (
        "AdminSendMessage",
        {
            "topic": ORDERS,
            "body": b"x",
            "system_properties": v2.SystemProperties(message_type=v2.TRANSACTION),
        },
        Code.BAD_REQUEST,
    ),
    ("GetConsumerRunningInfo", {}, Code.BAD_REQUEST),
    ("GetConsumerRunningInfo", {"client_id": "nobody"}, Code.NOT_FOUND),
    ("GetTopicRoute", {}, Code.BAD_REQUEST),
    ("GetTopicRoute", {"topic": GONE}, Code.TOPIC_NOT_FOUND),
    ("QueryTimeSpan", {"topics": [ORDERS]}, Code.BAD_REQUEST),
    ("QueryTimeSpan", {"group": BILLING}, Code.BAD_REQUEST),
    ("QueryTimeSpan", {"group": GONE, "topics": [ORDERS]}, Code.CONSUMER_GROUP_NOT_FOUND),
    ("QueryTimeSpan", {"group": BILLING, "topics": [GONE]}, Code.TOPIC_NOT_FOUND),
]


@pytest.mark.parametrize(("rpc", "fields", "code"), REFUSED)
def test_refusals(rig: AdminRig, rpc: str, fields: dict[str, Any], code: int) -> None:
    rig.send_message("m")
    response = rig.admin(rpc, **fields)
    assert response.status.code == code, response.status.message
    assert response.status.message


def test_change_log_level(rig: AdminRig) -> None:
    logger = logging.getLogger("latermq")
    before = logger.level
    try:
        assert "error" in rig.admin("ChangeLogLevel", level=4).remark
        assert logger.level == logging.ERROR
        rig.admin("ChangeLogLevel")  # TRACE, as zero is
        assert logger.level == logging.DEBUG
    finally:
        logger.setLevel(before)
    unknown = admin_pb2.ChangeLogLevelRequest.FromString(b"\x08\x63")
    assert "99" in rig.admin("ChangeLogLevel", level=unknown.level).remark


def test_describe_topic_status(rig: AdminRig) -> None:
    rig.engine.topics.create("plain", TopicType.NORMAL, 3, rig.now_ms)
    rig.send_message("m")
    told = rig.admin("DescribeTopicStatus", topic=resource("plain"))
    assert (told.topic_message_type, told.status.code) == (v2.NORMAL, Code.OK)
    assert told.create_timestamp.ToMilliseconds() == rig.now_ms
    told = rig.admin("DescribeTopicStatus", topic=ORDERS)
    assert told.topic_message_type == v2.MESSAGE_TYPE_UNSPECIFIED
    assert told.description == "2 queues, 1 messages, 0 delayed, 0 groups"


def test_get_topic_route_and_stats(rig: AdminRig) -> None:
    rig.send_message("m")
    route = json.loads(rig.admin("GetTopicRoute", topic=ORDERS).topic_route_data)
    assert route["queueDatas"][0]["readQueueNums"] == 2
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "192.0.2.9:8081"}
    stats = rig.admin("GetProxyRuntimeStats")
    assert (stats.proxy_name, stats.connections, stats.consumers) == ("latermq-0", 0, 0)
    assert stats.version == own_version()


def test_accumulation_counts_what_is_ready_and_what_is_held(rig: AdminRig) -> None:
    started_ms = rig.now_ms
    for n in range(6):
        rig.send_message(f"m{n}")
    rig.fail()  # waits for its next attempt, or is ready at once
    rig.advance(990)
    assert len(rig.receive(count=2)) == 2
    told = rig.admin("DescribeGroupAccumulation", group=BILLING)
    each = told.topic_accumulation["orders"]
    assert each == told.accumulation
    assert (each.inflight_messages, each.ready_messages, each.accumulation) == (2, 4, 6)
    assert each.last_consume_timestamp == rig.now_ms
    assert each.deliver_delay_time.ToMilliseconds() == rig.now_ms - started_ms
    none = rig.admin("DescribeGroupAccumulation", group=BILLING, topics=[ORDERS])
    assert none.topic_accumulation["orders"] == each


def test_time_spans_and_reset(rig: AdminRig) -> None:
    times = []
    for n in range(6):
        times.append(rig.now_ms)
        rig.send_message(f"m{n}")
        rig.now_ms += 1_000
    rig.ack(*rig.receive())
    request = {"group": BILLING, "topics": [ORDERS]}
    first, second = rig.admin("QueryTimeSpan", **request).queue_time_span_list
    assert (first.min_timestamp, first.max_timestamp) == (times[0], times[4])
    assert (second.min_timestamp, second.consume_timestamp) == (times[1], times[5])
    assert (first.delay_time_ms, second.delay_time_ms) == (0, 0)
    reset = rig.admin(
        "ResetGroupOffset", group=BILLING, topic=ORDERS, reset_timestamp=instant(times[3])
    )
    assert reset.status.code == Code.OK
    first, second = rig.admin("QueryTimeSpan", **request).queue_time_span_list
    assert (first.consume_timestamp, second.consume_timestamp) == (times[4], times[3])
    assert second.delay_time_ms == rig.now_ms - times[3]
    assert len(rig.receive()) == 3
    rig.engine.topics.create("empty", TopicType.NORMAL, 1, rig.now_ms)
    (empty,) = rig.admin(
        "QueryTimeSpan", group=BILLING, topics=[resource("empty")]
    ).queue_time_span_list
    assert (empty.min_timestamp, empty.max_timestamp, empty.delay_time_ms) == (0, 0, 0)


def test_query_message(rig: AdminRig) -> None:
    times = []
    for n in range(40):
        times.append(rig.now_ms)
        rig.send_message(f"m{n}", keys=("all",), body=b"%d" % n, tag="t")
        rig.now_ms += 10
    (one,) = rig.admin("QueryMessage", topic=ORDERS, message_id="m7", scroll_id="").messages
    system = one.system_properties
    assert (one.body, one.topic.name, system.message_id, system.tag) == (b"7", "orders", "m7", "t")
    assert (system.queue_id, system.queue_offset) == (1, 3)
    newest = rig.admin("QueryMessage", topic=ORDERS, message_key="all")
    assert [m.body for m in newest.messages] == [b"%d" % n for n in range(39, 7, -1)]
    rest = rig.admin("QueryMessage", topic=ORDERS, message_key="all", scroll_id=newest.scroll_id)
    assert [m.body for m in rest.messages] == [b"%d" % n for n in range(7, -1, -1)]
    some = rig.admin(
        "QueryMessage",
        topic=ORDERS,
        message_key="all",
        max_message_nums=3,
        begin_timestamp=instant(times[5]),
        end_timestamp=instant(times[6]),
    )
    assert [m.body for m in some.messages] == [b"6", b"5"]
    assert some.scroll_id == ""


def test_query_message_finds_dead_letters_and_splits_what_is_large(
    rig: AdminRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.die("m")
    (letter,) = rig.admin("QueryMessage", topic=resource("%DLQ%billing"), message_id="m").messages
    assert letter.system_properties.dead_letter_queue.topic == "orders"
    monkeypatch.setattr("latermq_broker.services.admin.admin_messages.REPLY_BYTES_MAX", 1_000)
    for n in range(3):
        rig.send_message(f"big{n}", keys=("big",), body=bytes(600))
    scroll, count = "", 0
    while True:
        page = rig.admin("QueryMessage", topic=ORDERS, message_key="big", scroll_id=scroll)
        assert len(page.messages) == 1
        count += 1
        if page.scroll_id == scroll or not page.scroll_id or count > 5:
            break
        scroll = page.scroll_id
    assert count == 3


ONCE: Final = {"LATERMQ_DEDUP_ID": "order-17"}


def test_admin_send_message(rig: AdminRig) -> None:
    sent = rig.admin(
        "AdminSendMessage",
        topic=ORDERS,
        tag="t",
        key="k 1",
        body=b"hello",
        user_properties={"p": "v"},
    )
    assert (sent.status.code, len(sent.message_id)) == (Code.OK, 34)
    (found,) = rig.admin("QueryMessage", topic=ORDERS, message_key="k 1").messages
    assert (found.body, dict(found.user_properties)) == (b"hello", {"p": "v"})
    assert found.system_properties.message_id == sent.message_id
    assert found.system_properties.body_digest.checksum
    first, second = (
        rig.admin("AdminSendMessage", topic=ORDERS, body=b"x", user_properties=ONCE)
        for _ in range(2)
    )
    assert first == second
    later = v2.SystemProperties(delivery_timestamp=instant(rig.now_ms + 60_000), message_id="mine")
    sent = rig.admin("AdminSendMessage", topic=ORDERS, body=b"x", system_properties=later)
    assert sent.message_id == "mine"
    assert rig.engine.topics.describe("orders").delayed_count == 1


def test_it_is_served_on_loopback_and_else_where_it_is_told() -> None:
    def served(listen: str, *, beyond: bool = False) -> bool:
        admin = AdminConfig(beyond_loopback=beyond)
        return admin_served(Config(server=ServerConfig(listen=listen), admin=admin))

    assert served("127.0.0.1:1")
    assert served("[::1]:1")
    assert served("localhost:1")
    assert not served("0.0.0.0:1")
    assert not served("192.0.2.1:1")
    assert not served("broker:1")
    assert served("0.0.0.0:1", beyond=True)


def test_switched_off_it_says_so(rig: AdminRig) -> None:
    config = Config(server=ServerConfig(listen="0.0.0.0:1"))

    async def methods() -> Any:
        return assemble(rig.engine, rig.committer, config).methods

    rig.methods = rig.loop.run_until_complete(methods())
    response = rig.admin("GetProxyRuntimeStats")
    assert response.status.code == Code.FORBIDDEN
    assert "admin.beyond_loopback" in response.status.message
    assert "admin.beyond_loopback" in rig.admin("ChangeLogLevel").remark
