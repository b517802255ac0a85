"""Taking messages apart and together again, against protobuf itself."""

import hashlib
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latermq_broker import errors
from latermq_broker.config.config import DeliveryConfig
from latermq_broker.delivery.filters.sql_filter import sql_filter
from latermq_broker.engine.state.model import EVERYTHING, Delivered, Outgoing, Sent, TagFilter
from latermq_broker.services.wire import (
    wire,
    wire_delivery,
    wire_fields,
    wire_messages,
    wire_stored,
)
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from latermq_proto.google.protobuf import duration_pb2, timestamp_pb2
from latermq_proto.latermq.v1 import failure_pb2
from support.fake_call import FakeCall

NOW_MS: Final = 1_700_000_000_123
PEER: Final = FakeCall().peer
LOCAL: Final = FakeCall().local

texts = st.text(st.characters(codec="utf-8"), max_size=40)
numbers = st.integers(-(2**63), 2**63 - 1)


@st.composite
def timestamps(draw: st.DrawFn) -> timestamp_pb2.Timestamp:
    return timestamp_pb2.Timestamp(
        seconds=draw(numbers), nanos=draw(st.integers(-(2**31), 2**31 - 1))
    )


@st.composite
def messages(draw: st.DrawFn) -> definition_pb2.Message:
    """Anything a client may say, also what it must not."""
    message = definition_pb2.Message(body=draw(st.binary(max_size=200)))
    message.topic.name = draw(texts)
    message.topic.resource_namespace = draw(texts)
    message.user_properties.update(draw(st.dictionaries(texts, texts, max_size=4)))
    system = message.system_properties
    system.message_id = draw(texts)
    system.keys.extend(draw(st.lists(texts, max_size=3)))
    system.body_encoding = draw(st.sampled_from([0, 1, 2, 77]))  # type: ignore[assignment]
    system.message_type = draw(st.sampled_from([0, 1, 2, 3, 5, 6, 99]))  # type: ignore[assignment]
    for name in ("born_timestamp", "store_timestamp"):
        if draw(st.booleans()):
            getattr(system, name).CopyFrom(draw(timestamps()))
    for name in (
        "tag", "born_host", "store_host", "receipt_handle", "message_group", "trace_context",
        "lite_topic",
    ):  # fmt: skip
        if draw(st.booleans()):
            setattr(system, name, draw(texts))
    for name in ("queue_id", "delivery_attempt", "priority"):
        if draw(st.booleans()):
            setattr(system, name, draw(st.integers(-(2**31), 2**31 - 1)))
    if draw(st.booleans()):
        system.queue_offset = draw(numbers)
        system.invisible_duration.seconds = 5
        system.dead_letter_queue.topic = "x"
        system.body_digest.checksum = "junk"
    return message


def split(message: definition_pb2.Message, **options: int) -> Outgoing:
    side = wire_messages.StoreSide(now_ms=NOW_MS, call=FakeCall())
    kind = wire_messages.message_type(message, options.get("delay_level", 0))
    return side.outgoing(
        "orders",
        message,
        kind,
        deliver_at_ms=options.get("deliver_at_ms", 0),
        delay_level=options.get("delay_level", 0),
    )


@given(messages())
def test_a_split_message_keeps_what_is_the_clients_and_nothing_else(
    message: definition_pb2.Message,
) -> None:
    sent = definition_pb2.Message.FromString(message.SerializeToString())
    outgoing = split(message)
    rest = definition_pb2.Message.FromString(outgoing.rest)
    stored = definition_pb2.SystemProperties.FromString(outgoing.sys)
    system, told = sent.system_properties, dict(sent.user_properties)
    kind = wire_messages.message_type(sent, 0)
    if system.message_group and stored.message_group:  # dropped where it means nothing
        told["__SHARDINGKEY"] = system.message_group
    if kind == wire_messages.TRANSACTION:
        told["__transactionId__"] = system.message_id
    assert (rest.body, dict(rest.user_properties)) == (sent.body, told)
    assert not rest.HasField("topic")
    assert not rest.HasField("system_properties")
    before = sent.system_properties
    assert (stored.tag, stored.message_id) == (before.tag, before.message_id)
    assert stored.trace_context == before.trace_context
    assert list(stored.keys) == [key for key in before.keys if key] == list(outgoing.keys)
    assert stored.body_digest.type == definition_pb2.MD5
    assert stored.body_digest.checksum == hashlib.md5(sent.body).hexdigest().upper()
    assert stored.body_encoding == (2 if before.body_encoding == 2 else 1)
    assert stored.message_type == kind
    assert stored.born_host == (before.born_host or PEER)
    assert wire.is_proper(stored.born_timestamp)
    assert wire.timestamp_ms(stored.store_timestamp) == NOW_MS
    assert stored.store_host == LOCAL
    for name in (
        "receipt_handle", "queue_offset", "invisible_duration", "delivery_attempt",
        "dead_letter_queue",
    ):  # fmt: skip
        assert not stored.HasField(name)
    assert stored.queue_id == 0


@settings(max_examples=300)
@given(
    messages(),
    texts,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(1, 2**31 - 1),
    st.sampled_from(["", "orders"]),
)
def test_splicing_equals_parse_set_and_serialise(
    message: definition_pb2.Message,
    namespace: str,
    queue_id: int,
    queue_offset: int,
    attempt: int,
    dead_origin_topic: str,
) -> None:
    outgoing = split(message)
    topic = definition_pb2.Resource(resource_namespace=namespace, name="orders")
    handle = "0123456789abcdef" * 10
    delivered = Delivered(
        handle, attempt, queue_id, queue_offset, outgoing.rest, outgoing.sys, 0, dead_origin_topic
    )
    [element] = wire_delivery.message_elements(topic, [delivered])

    expected = definition_pb2.Message.FromString(outgoing.rest)
    expected.topic.CopyFrom(topic)
    system = expected.system_properties
    system.MergeFromString(outgoing.sys)
    system.receipt_handle = handle
    system.queue_id = queue_id
    system.queue_offset = queue_offset
    system.delivery_attempt = attempt
    if dead_origin_topic:
        system.dead_letter_queue.topic = dead_origin_topic
        system.dead_letter_queue.message_id = outgoing.message_id
    assert service_pb2.ReceiveMessageResponse.FromString(element).message == expected
    assert service_pb2.PullMessageResponse.FromString(element).message == expected
    assert occurrences(element, field=3) == 1  # of system_properties


def occurrences(element: bytes, field: int) -> int:
    """How often a field stands in the message of a stream element, byte by byte."""

    def read_varint(at: int) -> tuple[int, int]:
        number = shift = 0
        while True:
            byte = element[at]
            number |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                return number, at

    tag, at = read_varint(0)
    assert tag == 0x12
    length, at = read_varint(at)
    assert at + length == len(element)
    found = 0
    while at < len(element):
        tag, at = read_varint(at)
        found += tag >> 3 == field
        length, at = read_varint(at)
        at += length
    return found


def test_a_pulled_message_has_a_place_but_no_handle() -> None:
    outgoing = split(definition_pb2.Message(body=b"x"))
    topic = definition_pb2.Resource(name="orders")
    element = wire_delivery.pulled_element(topic, 3, 7, outgoing.rest, outgoing.sys)
    system = service_pb2.PullMessageResponse.FromString(element).message.system_properties
    assert (system.queue_id, system.queue_offset) == (3, 7)
    assert not system.HasField("receipt_handle")


def test_the_other_elements_of_a_stream() -> None:
    response = service_pb2.ReceiveMessageResponse
    last = response.FromString(wire_delivery.delivery_timestamp_element(NOW_MS))
    assert last.WhichOneof("content") == "delivery_timestamp"
    assert wire.timestamp_ms(last.delivery_timestamp) == NOW_MS
    assert response.FromString(wire_delivery.OK_ELEMENT).status.code == definition_pb2.OK
    nothing = response.FromString(wire_delivery.NOTHING_ELEMENT)
    assert nothing.status.code == definition_pb2.MESSAGE_NOT_FOUND
    for offset in (0, 1, 2**40):
        pull = service_pb2.PullMessageResponse.FromString(wire_delivery.next_offset_element(offset))
        assert (pull.WhichOneof("content"), pull.next_offset) == ("next_offset", offset)


@given(numbers)
def test_varints_are_protobufs(number: int) -> None:
    encoded = service_pb2.GetOffsetResponse(offset=number).SerializeToString()
    assert encoded == (b"\x10" + wire_fields.varint(number) if number else b"")


@given(st.integers(0, 253_402_300_799_999))
def test_timestamps_are_protobufs(ms: int) -> None:
    expected = timestamp_pb2.Timestamp()
    wire.set_timestamp(expected, ms)
    assert wire_fields.timestamp(ms) == expected.SerializeToString()
    assert wire.timestamp_ms(expected) == ms


@pytest.mark.parametrize(
    ("seconds", "nanos", "ms"),
    [(0, 0, 0), (1, 0, 1_000), (0, 1, 1), (1, 999_999_999, 2_000), (-1, 0, -1_000), (0, -1, 0)],
)
def test_times_are_rounded_up(seconds: int, nanos: int, ms: int) -> None:
    assert wire.duration_ms(duration_pb2.Duration(seconds=seconds, nanos=nanos)) == ms
    assert wire.timestamp_ms(timestamp_pb2.Timestamp(seconds=seconds, nanos=nanos)) == ms


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, "NORMAL"),
        ({"message_type": "FIFO"}, "NORMAL"),
        ({"message_type": "TRANSACTION", "message_group": "g"}, "TRANSACTION"),
        ({"delivery_timestamp": timestamp_pb2.Timestamp(), "message_group": "g"}, "DELAY"),
        ({"message_group": "g", "priority": 1}, "FIFO"),
        ({"message_group": "", "priority": 0, "lite_topic": "l"}, "PRIORITY"),
        ({"lite_topic": "l"}, "LITE"),
        ({"lite_topic": ""}, "NORMAL"),
    ],
)
def test_the_message_type_is_what_the_message_carries(fields: dict[str, str], kind: str) -> None:
    message = definition_pb2.Message()
    message.system_properties.MergeFrom(definition_pb2.SystemProperties(**fields))  # type: ignore[arg-type]
    assert wire_messages.message_type(message, 0) == definition_pb2.MessageType.Value(kind)


def test_fields_of_another_type_are_dropped() -> None:
    message = definition_pb2.Message()
    message.system_properties.delivery_timestamp.seconds = 5
    message.system_properties.priority = 3
    message.system_properties.lite_topic = "l"
    message.system_properties.orphaned_transaction_recovery_duration.seconds = 9
    stored = definition_pb2.SystemProperties.FromString(split(message, deliver_at_ms=5_000).sys)
    assert stored.delivery_timestamp.seconds == 5
    assert stored.priority == 3  # for when it is due
    for name in ("lite_topic", "orphaned_transaction_recovery_duration"):
        assert not stored.HasField(name)


def test_a_delay_level_shows_as_delivery_timestamp() -> None:
    due_ms = NOW_MS + 10_000
    outgoing = split(definition_pb2.Message(), delay_level=3, deliver_at_ms=due_ms)
    assert (outgoing.delay_level, outgoing.deliver_at_ms) == (3, due_ms)
    assert wire_stored.stored_message(outgoing.rest, outgoing.sys).deliver_at_ms == due_ms


@given(timestamps())
def test_a_malformed_delivery_time_is_mended(timestamp: timestamp_pb2.Timestamp) -> None:
    message = definition_pb2.Message()
    message.system_properties.delivery_timestamp.CopyFrom(timestamp)
    horizon_ms = min(wire.timestamp_ms(timestamp), NOW_MS)
    stored = definition_pb2.SystemProperties.FromString(
        split(message, deliver_at_ms=horizon_ms).sys
    )
    assert wire.is_proper(stored.delivery_timestamp)


def test_a_stored_message_is_read_by_name() -> None:
    message = definition_pb2.Message(body=b"hello", user_properties={"a": "b"})
    system = message.system_properties
    system.tag, system.message_id, system.born_host = "T", "id", "there"
    system.keys.extend(["k1", "k 2"])
    system.body_encoding = definition_pb2.GZIP
    wire.set_timestamp(system.born_timestamp, NOW_MS - 5)
    outgoing = split(message)
    stored = wire_stored.stored_message(outgoing.rest, outgoing.sys)
    assert (stored.body, stored.properties) == (b"hello", {"a": "b"})
    assert (stored.tag, stored.keys, stored.message_id) == ("T", ("k1", "k 2"), "id")
    assert (stored.born_ms, stored.born_host) == (NOW_MS - 5, "there")
    assert (stored.stored_ms, stored.store_host) == (NOW_MS, LOCAL)
    assert (stored.body_encoding, stored.message_type) == ("gzip", "normal")
    assert (stored.deliver_at_ms, stored.message_group, stored.trace_context) == (0, "", "")
    assert stored.body_digest == hashlib.md5(b"hello").hexdigest().upper()


def test_a_send_is_answered_entry_by_entry() -> None:
    message = split(definition_pb2.Message())
    messages = [message._replace(message_id=f"id-{number}") for number in range(3)]
    places = [
        Sent(position=0, queue_id=1, queue_offset=0, due_ms=0, pending_id=""),
        Sent(position=1, queue_id=2, queue_offset=300, due_ms=0, pending_id=""),
        Sent(position=2, queue_id=-1, queue_offset=-1, due_ms=9, pending_id="wait-2"),
    ]
    response = service_pb2.SendMessageResponse.FromString(
        wire_messages.sent_response(messages, places)
    )
    assert response.status.code == definition_pb2.OK
    assert [e.message_id for e in response.entries] == ["id-0", "id-1", "id-2"]
    assert [e.transaction_id for e in response.entries] == ["id-0", "id-1", "id-2"]
    assert [e.offset for e in response.entries] == [0, 300, 0]
    assert [e.recall_handle for e in response.entries] == ["", "", "wait-2"]
    assert {e.status.code for e in response.entries} == {definition_pb2.OK}


@pytest.mark.parametrize("first", [0, 1, 100, 127, 128, 16_300, 16_383, 16_384, (1 << 40) - 7])
def test_a_send_of_now_is_answered_as_any(first: int) -> None:
    message = split(definition_pb2.Message())
    messages = [message._replace(message_id="i" * (1 + number % 150)) for number in range(300)]
    places = [Sent(0, 1, first + number, 0, "") for number in range(300)]
    ids = [message.message_id.encode() for message in messages]
    parse = service_pb2.SendMessageResponse.FromString
    assert parse(wire_messages.plain_response(ids, first)) == parse(
        wire_messages.sent_response(messages, places)
    )


@given(st.integers(0, (1 << 35) - 1), st.binary(max_size=3))
def test_lengths_are_read_as_they_are_written(number: int, after: bytes) -> None:
    encoded = wire_fields.varint(number)
    assert wire_fields.length_at(b"x" + encoded + after, 1) == (number, 1 + len(encoded))
    longer = encoded[:-1] + bytes((encoded[-1] | 128, 0))
    assert wire_fields.length_at(longer, 0)[0] == -1
    assert wire_fields.length_at(b"\xff" * 5 + b"\x01", 0)[0] == -1
    with pytest.raises(IndexError):
        wire_fields.length_at(encoded[:-1], 0)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("", EVERYTHING),
        ("*", EVERYTHING),
        (" * ", EVERYTHING),
        ("  ", EVERYTHING),
        ("a", TagFilter(frozenset({"a"}))),
        ("a || b||a", TagFilter(frozenset({"a", "b"}))),
        ("||a b||", TagFilter(frozenset({"a b"}))),
        ("a|b", TagFilter(frozenset({"a|b"}))),
    ],
)
def test_tag_expressions(expression: str, wanted: TagFilter) -> None:
    for kind in (definition_pb2.TAG, definition_pb2.FILTER_TYPE_UNSPECIFIED):
        given_ = definition_pb2.FilterExpression(type=kind, expression=expression)
        assert wire.message_filter(given_) == wanted


@pytest.mark.parametrize("expression", ["||", " || || "])
def test_only_separators_are_no_expression(expression: str) -> None:
    with pytest.raises(errors.IllegalFilterError):
        wire.message_filter(definition_pb2.FilterExpression(expression=expression))


def test_filters_that_are_not_served() -> None:
    sql = definition_pb2.FilterExpression(type=definition_pb2.SQL, expression="a > ")
    with pytest.raises(errors.IllegalFilterError, match="character 5"):
        wire.message_filter(sql)
    sql.expression = "a > 1"
    assert wire.message_filter(sql) == sql_filter("a > 1")
    unknown = definition_pb2.FilterExpression.FromString(b"\x08\x63")
    with pytest.raises(errors.IllegalFilterError, match="99"):
        wire.message_filter(unknown)
    with pytest.raises(errors.IllegalFilterError, match="16384"):
        wire.message_filter(definition_pb2.FilterExpression(expression="x" * 16_385))


def test_a_failure_is_cut_to_the_limits() -> None:
    config = DeliveryConfig(failure_class_bytes_max=8, failure_stack_bytes_max=3)
    told = failure_pb2.Failure(
        class_name="Überlauf", text="no", stack_hash="f" * 40, stack="日本", rejected=True
    )
    call = FakeCall(metadata_bin={"latermq-failure-bin": told.SerializeToString()})
    failure = wire.failure(call, config)
    assert failure is not None
    assert failure._asdict() == {
        "class_name": "Überlau",
        "text": "no",
        "stack_hash": "f" * 16,
        "stack": "日",
        "rejected": True,
    }


@pytest.mark.parametrize("junk", [b"", b"\xff\xff\xff"])
def test_a_failure_that_cannot_be_read_is_none(junk: bytes) -> None:
    call = FakeCall(metadata_bin={"latermq-failure-bin": junk})
    assert wire.failure(call, DeliveryConfig()) is None
    assert wire.failure(FakeCall(), DeliveryConfig()) is None


@pytest.mark.parametrize(("text", "level"), [(None, 0), ("0", 0), ("3", 3), ("018", 18)])
def test_delay_levels(text: str | None, level: int) -> None:
    call = FakeCall(metadata={} if text is None else {"latermq-delay-level": text})
    assert wire.delay_level(call) == level


@pytest.mark.parametrize("text", ["", "-1", "x", "1.5", "²", "9" * 30])
def test_what_is_no_delay_level(text: str) -> None:
    with pytest.raises(errors.IllegalDeliveryTimeError):
        wire.delay_level(FakeCall(metadata={"latermq-delay-level": text}))
