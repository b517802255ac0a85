"""SendMessage, rule by rule: the request, the code, and that nothing is stored on refusal."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latermq_broker.config.config import CatalogConfig, DeliveryConfig, ServerConfig, StoreConfig
from latermq_broker.engine.state.model import TopicType
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from support.engine_rig import START_MS
from support.fake_call import FakeCall
from support.memory_files import MemoryFiles
from support.messaging import SMALL, Messaging
from support.wire_requests import message, send, timestamp, timestamp_ms

Code: Final = definition_pb2.Code
DAY_MS: Final = 86_400_000
BODY_MAX: Final = SMALL.store.message_body_bytes_max

Change = Callable[[definition_pb2.Message], Any]


async def refused(
    broker: Messaging,
    code: int,
    *messages: definition_pb2.Message,
    text: str = "",
    call: FakeCall | None = None,
) -> None:
    """The whole request is refused with `code`; the log has not grown, no topic was made."""
    before = broker.log_end
    response = await broker.send(*messages, call=call)
    assert (response.status.code, list(response.entries)) == (code, []), response.status.message
    assert text in response.status.message
    assert broker.log_end == before
    assert broker.engine.catalog.topic_count() == 0 or before > 0


def changed(change: Change) -> definition_pb2.Message:
    made = message("orders", b"body")
    change(made)
    return made


def with_system(**fields: Any) -> Change:
    def change(made: definition_pb2.Message) -> None:
        made.system_properties.MergeFrom(definition_pb2.SystemProperties(**fields))

    return change


def with_properties(**fields: str) -> Change:
    return lambda made: made.user_properties.update(fields)


def with_keys(*keys: str) -> Change:
    return lambda made: made.system_properties.keys.extend(keys)


def with_body(body: bytes) -> Change:
    return lambda made: setattr(made, "body", body)


def with_message_id(message_id: str) -> Change:
    return lambda made: setattr(made.system_properties, "message_id", message_id)


def with_half(dedup_id: str) -> Change:
    def change(made: definition_pb2.Message) -> None:
        made.system_properties.message_type = definition_pb2.TRANSACTION
        made.user_properties["LATERMQ_DEDUP_ID"] = dedup_id

    return change


# Row of the table in the protocol facts §4.1, what breaks it, the code, what the text says.
RULES: Final[list[tuple[str, Change, int, str]]] = [
    ("4 too large", with_body(b"x" * (BODY_MAX + 1)), Code.MESSAGE_BODY_TOO_LARGE, "65537"),
    ("4 empty", with_body(b""), Code.MESSAGE_BODY_EMPTY, "empty"),
    (
        "5 too many properties",
        with_properties(**{f"p{n}": "" for n in range(129)}),
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
        "129",
    ),
    ("6 reserved", with_properties(KEYS="x"), Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "'KEYS'"),
    ("6 control in key", with_properties(**{"a\n": "x"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "'a"),
    ("6 control in value", with_properties(a="x\0"), Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "'a'"),
    ("7 blank", with_system(tag=" "), Code.ILLEGAL_MESSAGE_TAG, "blanks"),
    ("7 separator", with_system(tag="a||b"), Code.ILLEGAL_MESSAGE_TAG, "'a||b'"),
    ("7 control", with_system(tag="a\x01"), Code.ILLEGAL_MESSAGE_TAG, "control"),
    ("8 blank", with_keys("ok", "\t"), Code.ILLEGAL_MESSAGE_KEY, "blanks"),
    ("8 control", with_keys("a\x9f"), Code.ILLEGAL_MESSAGE_KEY, "control"),
    ("8 too many", with_keys(*"k" * 256), Code.MESSAGE_PROPERTIES_TOO_LARGE, "256"),
    (
        "9 together",
        with_properties(a="x" * 16_384),
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
        "16385",
    ),
    ("9 blank dedup id", with_properties(LATERMQ_DEDUP_ID=" "), Code.BAD_REQUEST, "blank"),
    ("9 no dedup id", with_properties(LATERMQ_DEDUP_ID=""), Code.BAD_REQUEST, "blank"),
    ("9 long dedup id", with_properties(LATERMQ_DEDUP_ID="é" * 65), Code.BAD_REQUEST, "130"),
    ("10 blank", with_message_id("  "), Code.ILLEGAL_MESSAGE_ID, "blank"),
    ("10 missing", with_message_id(""), Code.ILLEGAL_MESSAGE_ID, "blank"),
    ("10 escape", with_message_id("\x1b[2J"), Code.ILLEGAL_MESSAGE_ID, "control"),
    ("10 newline", with_message_id("a\nb"), Code.ILLEGAL_MESSAGE_ID, "control"),
    ("10 C1", with_message_id("a\x9bb"), Code.ILLEGAL_MESSAGE_ID, "control"),
    ("10 born host", with_system(born_host="h\x1b[2J"), Code.BAD_REQUEST, "born host"),
    (
        "11 recovery",
        with_system(
            message_type="TRANSACTION",
            orphaned_transaction_recovery_duration={"seconds": 3_600, "nanos": 1},
        ),
        Code.BAD_REQUEST,
        "3600001",
    ),
    (
        "12 horizon",
        with_system(delivery_timestamp=timestamp(START_MS + DAY_MS + 1)),
        Code.ILLEGAL_DELIVERY_TIME,
        "1 days",
    ),
    ("13 blank", with_system(message_group=" "), Code.ILLEGAL_MESSAGE_GROUP, "blanks"),
    ("13 too long", with_system(message_group="g" * 64), Code.ILLEGAL_MESSAGE_GROUP, "64"),
    ("13 control", with_system(message_group="a\x02"), Code.ILLEGAL_MESSAGE_GROUP, "control"),
    ("14 blank", with_system(lite_topic=""), Code.ILLEGAL_LITE_TOPIC, "blank"),
    ("14 too long", with_system(lite_topic="l" * 65), Code.ILLEGAL_LITE_TOPIC, "65"),
    ("14 characters", with_system(lite_topic="a b"), Code.ILLEGAL_LITE_TOPIC, "'a b'"),
    (
        "15 ordered and delayed",
        with_system(message_group="g", delivery_timestamp=timestamp(START_MS + 1)),
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        "not both",
    ),
    (
        "15 transaction with a dedup id",
        with_half("once"),
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        "LATERMQ_DEDUP_ID",
    ),
    (
        "15 priority",
        with_system(priority=1),
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        "PRIORITY does not fit a new topic of type MIXED",
    ),
    ("15 negative", with_system(priority=-1), Code.BAD_REQUEST, "priority -1 is negative"),
    (
        "15 lite",
        with_system(lite_topic="l"),
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        "LITE does not fit a new topic of type MIXED",
    ),
    (
        "no single rule",
        with_system(trace_context="x" * 30_000),
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
        "everything but the body",
    ),
]
ONE_DAY: Final = replace(SMALL, delivery=DeliveryConfig(delay_ms_max=DAY_MS))


@pytest.mark.parametrize(
    ("change", "code", "text"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES]
)
async def test_a_broken_rule_refuses_the_request(change: Change, code: int, text: str) -> None:
    async with Messaging(ONE_DAY) as broker:
        await refused(broker, code, changed(change), text=text)


@pytest.mark.parametrize("position", [0, 2])
@pytest.mark.parametrize(
    ("change", "code"), [(rule[1], rule[2]) for rule in RULES], ids=[rule[0] for rule in RULES]
)
async def test_one_broken_message_refuses_its_batch(
    change: Change, code: int, position: int
) -> None:
    """No entries, nothing stored, no topic: also where the others look like earlier ones."""
    async with Messaging(ONE_DAY) as broker:
        await broker.send(message("others", b"body"))
        for _ in range(2):
            messages = [message("orders", b"body") for _ in range(3)]
            change(messages[position])
            await refused(broker, code, *messages)
        assert broker.engine.catalog.topic("orders") is None


async def test_rules_hold_in_their_order() -> None:
    """A message that breaks all of them is refused by the first; mended, by the next; …"""
    made = message("orders", b"")
    made.user_properties.update({f"p{n}": "" for n in range(128)} | {"TTL": ""})
    system = made.system_properties
    system.tag, system.message_id, system.message_group, system.lite_topic = "|", " ", " ", " "
    system.keys.append(" ")
    system.message_type = definition_pb2.TRANSACTION
    system.orphaned_transaction_recovery_duration.seconds = 3_601
    system.delivery_timestamp.CopyFrom(timestamp(START_MS + 2 * DAY_MS))
    steps: list[tuple[int, Callable[[], Any]]] = [
        (Code.MESSAGE_BODY_EMPTY, lambda: setattr(made, "body", b"x")),
        (Code.MESSAGE_PROPERTIES_TOO_LARGE, lambda: made.user_properties.pop("p0")),
        (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, lambda: made.user_properties.pop("TTL")),
        (Code.ILLEGAL_MESSAGE_TAG, lambda: setattr(system, "tag", "t" * 16_384)),
        (Code.ILLEGAL_MESSAGE_KEY, lambda: system.ClearField("keys")),
        (Code.MESSAGE_PROPERTIES_TOO_LARGE, lambda: setattr(system, "tag", "t")),
        (Code.ILLEGAL_MESSAGE_ID, lambda: setattr(system, "message_id", "id")),
        (
            Code.BAD_REQUEST,
            lambda: system.ClearField("orphaned_transaction_recovery_duration"),
        ),
        (Code.ILLEGAL_DELIVERY_TIME, lambda: system.ClearField("delivery_timestamp")),
        (Code.ILLEGAL_MESSAGE_GROUP, lambda: setattr(system, "message_group", "g")),
        (Code.ILLEGAL_LITE_TOPIC, lambda: setattr(system, "lite_topic", "l")),
        (Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, lambda: system.ClearField("message_type")),
    ]
    async with Messaging(ONE_DAY) as broker:
        broker.engine.topics.create("orders", TopicType.NORMAL, 1, START_MS)
        await broker.settle()
        for code, mend in steps:
            await refused(broker, code, made)
            mend()


async def test_rows_1_to_3_no_message_bad_topic_several_topics() -> None:
    async with Messaging() as broker:
        await refused(broker, Code.MESSAGE_CORRUPTED)
        for name in ("", " ", "a b", "x" * 128, "TBW102", "rmq_sys_x", "%RETRY%billing"):
            await refused(broker, Code.ILLEGAL_TOPIC, message(name, b"x"))
        other = message("invoices", b"x")
        await refused(broker, Code.MESSAGE_CORRUPTED, message("orders", b"x"), other, text="invoi")


@pytest.mark.parametrize("kind", [kind for kind in TopicType if kind is not TopicType.MIXED])
async def test_row_15_a_topic_takes_its_own_type(kind: TopicType) -> None:
    delayed = message("orders", b"x", deliver_at_ms=START_MS + 5_000)
    async with Messaging() as broker:
        broker.engine.topics.create("orders", kind, 1, START_MS)
        await broker.settle()
        for made, own in ((message("orders", b"x"), "NORMAL"), (delayed, "DELAY")):
            if kind.name == own:
                assert (await broker.send(made)).status.code == Code.OK
            else:
                await refused(
                    broker, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, made, text=kind.name
                )


async def test_row_15_is_skipped_for_mixed_and_for_dead_letter_topics() -> None:
    async with Messaging() as broker:
        broker.engine.ensure_group("billing", START_MS)
        for topic in ("orders", "%DLQ%billing"):
            delayed = message(topic, b"x", deliver_at_ms=START_MS + 5_000)
            assert (await broker.send(message(topic, b"x"))).status.code == Code.OK
            assert (await broker.send(delayed)).status.code == Code.OK


async def test_row_16_an_unknown_topic_is_made_or_refused() -> None:
    async with Messaging() as broker:
        assert (await broker.send(message("orders", b"x"))).status.code == Code.OK
        await refused(broker, Code.TOPIC_NOT_FOUND, message("%DLQ%nobody", b"x"), text="nobody")
    strict = replace(SMALL, catalog=CatalogConfig(auto_create=False))
    async with Messaging(strict) as broker:
        await refused(broker, Code.TOPIC_NOT_FOUND, message("orders", b"x"), text="orders")


async def test_row_17_a_disk_that_is_behind() -> None:
    config = replace(
        SMALL,
        store=StoreConfig(segment_bytes=1 << 20, message_body_bytes_max=1, unsynced_bytes_max=100),
    )
    async with Messaging(config) as broker:
        assert (await broker.send(message("orders", b"x"))).status.code == Code.OK
        await refused(broker, Code.TOO_MANY_REQUESTS, message("orders", b"x"), text="disk")


async def test_row_17_a_disk_that_is_full() -> None:
    async with Messaging() as broker:
        assert isinstance(broker.files, MemoryFiles)
        body = b"x" * BODY_MAX
        broker.files.disk.capacity_bytes = 0
        codes = [(await broker.send(message("orders", body))).status.code for _ in range(40)]
        assert codes[0] == Code.OK  # the first segment is there
        assert codes[-1] == Code.INTERNAL_SERVER_ERROR
        await refused(broker, Code.INTERNAL_SERVER_ERROR, message("orders", body))
        got = await broker.receive(count_max=32)
        assert len(got.messages) == codes.count(Code.OK)


async def test_a_batch_has_a_bound() -> None:
    config = replace(SMALL, server=ServerConfig(send_messages_max=2))
    three = [message("orders", b"x") for _ in range(3)]
    async with Messaging(config) as broker:
        await refused(broker, Code.BAD_REQUEST, *three, text="at most 2")
        assert (await broker.send(*three[:2])).status.code == Code.OK


async def test_a_batch_that_no_segment_can_hold_is_refused() -> None:
    async with Messaging() as broker:
        many = [message("orders", b"x" * BODY_MAX) for _ in range(16)]
        await refused(broker, Code.MESSAGE_BODY_TOO_LARGE, *many, text="together")
        assert (await broker.send(*many[:15])).status.code == Code.OK


async def test_the_answer_has_an_entry_per_message_in_order() -> None:
    async with Messaging() as broker:
        messages = [message("orders", b"x", message_id=f"id-{n}") for n in range(5)]
        response = await broker.send(*messages)
        assert response.status.code == Code.OK
        assert [entry.message_id for entry in response.entries] == [f"id-{n}" for n in range(5)]
        assert [entry.transaction_id for entry in response.entries] == [f"id-{n}" for n in range(5)]
        assert [entry.offset for entry in response.entries] == list(range(5))
        assert all(entry.status.code == Code.OK for entry in response.entries)
        assert not any(entry.recall_handle for entry in response.entries)
        assert [one.system_properties.message_id for one in (await broker.receive()).messages] == [
            f"id-{n}" for n in range(5)
        ]


async def test_what_was_sent_is_what_is_received() -> None:
    async with Messaging() as broker:
        made = message("orders", b"body", tag="T", keys=["a", "b c"], properties={"x": "ü"})
        made.system_properties.trace_context = "00-trace"
        made.system_properties.delivery_attempt = 77  # C++ writes its clock there
        made.system_properties.queue_id = 9
        made.system_properties.receipt_handle = "mine"
        await broker.send(made)
        [got] = (await broker.receive()).messages
        system = got.system_properties
        assert (got.body, dict(got.user_properties), system.tag) == (b"body", {"x": "ü"}, "T")
        assert (list(system.keys), system.trace_context) == (["a", "b c"], "00-trace")
        assert system.message_type == definition_pb2.NORMAL
        assert system.body_encoding == definition_pb2.IDENTITY
        assert (system.body_digest.type, len(system.body_digest.checksum)) == (
            definition_pb2.MD5,
            32,
        )
        assert (system.born_host, system.store_host) == ("test", "192.0.2.9:8081")
        assert timestamp_ms(system.born_timestamp) == timestamp_ms(system.store_timestamp)
        assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (0, 0, 1)
        assert system.receipt_handle not in ("", "mine")


async def test_a_delayed_message_has_a_recall_handle_and_comes_in_time() -> None:
    async with Messaging() as broker:
        due_ms = START_MS + 5_000
        response = await broker.send(message("orders", b"x", deliver_at_ms=due_ms))
        [entry] = response.entries
        assert entry.recall_handle
        assert entry.offset == 0
        await broker.advance(4_999)
        assert not (await broker.receive()).messages
        await broker.advance(1)
        [got] = (await broker.receive()).messages
        assert timestamp_ms(got.system_properties.delivery_timestamp) == due_ms
        assert got.system_properties.message_type == definition_pb2.DELAY


async def test_a_delivery_time_that_has_passed_means_now() -> None:
    async with Messaging() as broker:
        for at_ms in (START_MS, START_MS - DAY_MS):
            response = await broker.send(message("orders", b"x", deliver_at_ms=at_ms))
            assert not response.entries[0].recall_handle
        ancient = message("orders", b"x")
        ancient.system_properties.delivery_timestamp.seconds = -(2**63)
        ancient.system_properties.delivery_timestamp.nanos = 2**31 - 1
        assert (await broker.send(ancient)).status.code == Code.OK
        assert len((await broker.receive()).messages) == 3


@pytest.mark.parametrize(("level", "wait_ms"), [("1", 1_000), ("3", 10_000), ("99", 7_200_000)])
async def test_a_delay_level_delays_every_message(level: str, wait_ms: int) -> None:
    call = FakeCall(metadata={"latermq-delay-level": level})
    async with Messaging() as broker:
        early = message("orders", b"x", deliver_at_ms=START_MS + 1)
        response = await broker.send(message("orders", b"x"), early, call=call)
        assert all(entry.recall_handle for entry in response.entries)
        await broker.advance(wait_ms - 1)
        assert not (await broker.receive()).messages
        await broker.advance(1)
        got = (await broker.receive()).messages
        assert {timestamp_ms(one.system_properties.delivery_timestamp) for one in got} == {
            START_MS + wait_ms
        }
        assert len(got) == 2


async def test_a_delay_level_obeys_the_topics_type_and_is_a_number() -> None:
    async with Messaging() as broker:
        broker.engine.topics.create("orders", TopicType.NORMAL, 1, START_MS)
        await broker.settle()
        level = FakeCall(metadata={"latermq-delay-level": "2"})
        code = Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        await refused(broker, code, message("orders", b"x"), call=level)
        junk = FakeCall(metadata={"latermq-delay-level": "soon"})
        await refused(broker, Code.ILLEGAL_DELIVERY_TIME, message("orders", b"x"), call=junk)


async def test_without_a_client_id_nothing_is_stored() -> None:
    async with Messaging() as broker:
        for client_id in ("", "  "):
            call = FakeCall(client_id="", metadata={"x-mq-client-id": client_id})
            await refused(broker, Code.CLIENT_ID_REQUIRED, message("orders", b"x"), call=call)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.binary(max_size=200))
async def test_junk_bytes_are_answered(junk: bytes) -> None:
    async with Messaging() as broker:
        response = await broker.call("SendMessage", junk)
        assert Code.BAD_REQUEST <= response.status.code < Code.INTERNAL_ERROR


@settings(max_examples=200)
@given(data=st.data())
async def test_a_valid_request_with_flipped_bytes_is_answered(data: st.DataObject) -> None:
    request = bytearray(send([message("orders", b"body", tag="T", keys=["k"])]).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        request[data.draw(st.integers(0, len(request) - 1))] = data.draw(st.integers(0, 255))
    async with Messaging() as broker:
        response = await broker.call("SendMessage", bytes(request))
        assert isinstance(response, service_pb2.SendMessageResponse)
        assert Code.OK <= response.status.code != Code.INTERNAL_ERROR
