"""Too many fields are refused before protobuf sees them; what may be many of is told apart."""

import struct
from collections.abc import Iterable
from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from latermq_broker.errors import BadRequestError
from latermq_broker.services.call import field_counts
from latermq_broker.services.call.field_counts import FIELDS_MAX, UNCOUNTED_BYTES, FieldCount
from latermq_broker.services.registry import FILES
from latermq_broker.services.wire.wire_fields import varint
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2

SEND = FieldCount(service_pb2.SendMessageRequest.DESCRIPTOR)
EMPTY = b"\x0a\x00"  # a message of SendMessageRequest


def field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def test_the_messages_of_a_request() -> None:
    SEND.check(EMPTY * FIELDS_MAX)
    with pytest.raises(BadRequestError, match=f"more than {FIELDS_MAX} fields and elements"):
        SEND.check(EMPTY * (FIELDS_MAX + 1))


def test_the_walk_ends_at_the_limit() -> None:
    group = b"\x2b"
    with pytest.raises(BadRequestError, match="fields and elements"):
        SEND.check(EMPTY * (FIELDS_MAX + 1) + group)
    with pytest.raises(BadRequestError, match="no groups"):
        SEND.check(EMPTY * (FIELDS_MAX - 1) + group)


@pytest.mark.parametrize(
    "element",
    [
        b"\x12\x00",  # user_properties
        field(3, b"\x12\x00" * 300),  # system_properties.keys
        b"\xf2\x7f\x00",  # a field that is not known
        b"\x80\x7f\x00",  # a number that is not known
        b"\x0d\x00\x00\x00\x00",
        b"\x09\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\x8a\x80\x80\x80\x00\x00",  # a tag in more bytes than it needs
    ],
)
def test_what_is_inside_of_one_message(element: bytes) -> None:
    with pytest.raises(BadRequestError, match="fields and elements"):
        SEND.check(field(1, element * (FIELDS_MAX + 1)))


def test_many_short_messages_are_let_be_until_they_are_many() -> None:
    full = field(1, b"\x12\x00" * 200)
    SEND.check(full * (UNCOUNTED_BYTES // 400))
    with pytest.raises(BadRequestError):
        SEND.check(full * 2_000)


@pytest.mark.parametrize("kind", [3, 4, 6, 7])
def test_groups(kind: int) -> None:
    with pytest.raises(BadRequestError, match=f"no groups .wire type {kind}."):
        SEND.check(bytes((5 << 3 | kind,)) + bytes(UNCOUNTED_BYTES))


def test_real_batches_pass() -> None:
    message = v2.Message(
        topic=v2.Resource(name="orders"),
        user_properties={f"key-{number}": "value" for number in range(8)},
        system_properties=v2.SystemProperties(message_id="x" * 34, keys=["a", "b"], tag="t"),
    )
    for count, body_bytes in ((1, 4 << 20), (32, 1 << 20), (4_096, 100), (1_000, 1_024)):
        message.body = bytes(body_bytes)
        request = service_pb2.SendMessageRequest(messages=[message] * count)
        SEND.check(request.SerializeToString())


def requests() -> Iterable[Any]:
    for file in FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                yield method.input_type


@pytest.mark.parametrize(
    "descriptor", list(requests()), ids=lambda descriptor: descriptor.full_name
)
def test_no_request_takes_much_memory_for_what_passes(descriptor: Any) -> None:
    """Whatever its field is that there may be many of, its empty elements are counted."""
    check = FieldCount(descriptor)
    assert GetMessageClass(descriptor).FromString(b"") is not None
    for each in descriptor.fields:
        if each.is_repeated and each.type in (each.TYPE_MESSAGE, each.TYPE_STRING):
            element = field(each.number, b"")
            with pytest.raises(BadRequestError, match=descriptor.name):
                check.check(element * (FIELDS_MAX + 1))


@given(st.binary(max_size=200), st.integers(0, 8))
def test_whatever_comes(data: bytes, kind: int) -> None:
    long = field(4 + kind, bytes(UNCOUNTED_BYTES))
    for whole in (data + long, long + data, field(1, data + long), struct.pack(">B", 10) + data):
        try:
            SEND.check(whole)
        except BadRequestError:
            assert kind >= 0


@given(st.integers(0, 60), st.integers(0, 3))
def test_it_counts_what_protobuf_finds(messages: int, keys: int) -> None:
    """With a limit of its own, so that the count is seen."""
    message = v2.Message(body=b"x" * 600, system_properties=v2.SystemProperties(keys=["k"] * keys))
    request = service_pb2.SendMessageRequest(messages=[message] * messages)
    data = request.SerializeToString()
    walk = field_counts._Walk(data, "x")
    walk._uncounted_left = 0
    walk.through(0, len(data), SEND._shape)
    assert FIELDS_MAX - walk._fields_left == messages * (3 + keys)
