"""What is read of an acknowledgement is what protobuf reads; what it refuses is refused."""

from typing import Any, Final

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from latermq_broker.errors import BadRequestError
from latermq_broker.services.call.field_counts import FIELDS_MAX
from latermq_broker.services.wire import wire_ack
from latermq_broker.services.wire.wire_ack import ENTRIES_COUNT_MAX, AckRequest, read_ack
from latermq_broker.services.wire.wire_fields import bytes_field, varint
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

OK: Final = definition_pb2.Status(code=definition_pb2.OK, message="OK")
WRONG: Final = definition_pb2.Status(code=definition_pb2.INVALID_RECEIPT_HANDLE, message="no ü")
TEXTS: Final = st.text(max_size=5) | st.sampled_from(["", "h" * 40, "i" * 127, "i" * 128, "ü" * 99])


def by_protobuf(data: bytes) -> AckRequest | None:
    """What protobuf reads; None: it refuses, or there is a namespace."""
    try:
        request = service_pb2.AckMessageRequest.FromString(data)
    except DecodeError:
        return None
    if request.group.resource_namespace or request.topic.resource_namespace:
        return None
    entries = request.entries
    results = [
        service_pb2.AckMessageResultEntry(
            message_id=entry.message_id, receipt_handle=entry.receipt_handle
        ).SerializeToString()
        for entry in entries
    ]
    handles = [entry.receipt_handle for entry in entries]
    return AckRequest(request.group.name, request.topic.name, handles, results)


def read(data: bytes) -> AckRequest | None:
    """Read an AckMessageRequest as the broker does, its entries as protobuf writes them.

    Returns:
        None: it is refused.
    """
    try:
        request = read_ack(data)
    except BadRequestError:
        return None
    parse = service_pb2.AckMessageResultEntry.FromString
    return request._replace(entries=[parse(each).SerializeToString() for each in request.entries])


def in_order(data: bytes) -> bool:
    """Tell whether the bytes of an AckMessageRequest are read without protobuf."""
    return wire_ack._read(data) is not None


def asked(entries: list[tuple[str, str]]) -> service_pb2.AckMessageRequest:
    request = service_pb2.AckMessageRequest()
    for message_id, handle in entries:
        request.entries.add(message_id=message_id, receipt_handle=handle)
    return request


@given(TEXTS, TEXTS, st.lists(st.tuples(TEXTS, TEXTS, st.none() | TEXTS), max_size=4))
def test_what_protobuf_writes_is_read_in_order(
    group: str, topic: str, entries: list[tuple[str, str, str | None]]
) -> None:
    request = asked([(message_id, handle) for message_id, handle, _ in entries])
    for entry, (_, _, lite_topic) in zip(request.entries, entries, strict=True):
        if lite_topic is not None:
            entry.lite_topic = lite_topic
    request.group.name, request.topic.name = group, topic
    data = request.SerializeToString()
    assert in_order(data)
    assert read(data) == by_protobuf(data) is not None


def fields(*tags: int) -> st.SearchStrategy[bytes]:
    """Fields of a message, as they may come, and as they must not."""
    texts = TEXTS.map(str.encode) | st.binary(max_size=4)
    lengths = st.builds(
        lambda tag, text: bytes_field(bytes((tag,)), text), st.sampled_from(tags), texts
    )
    numbers = st.builds(
        lambda tag, number: bytes((tag,)) + varint(number),
        st.sampled_from([0x08, 0x18, 0x28, 0x20]), st.integers(0, 1 << 40),
    )  # fmt: skip
    overlong = st.builds(
        lambda tag, text: bytes((tag, len(text) | 0x80, 0)) + text, st.sampled_from(tags), texts
    )
    rare = st.sampled_from(
        [b"\x0d1234", b"\x0912345678", b"\x0b\x0c", b"\x0b\x08\x01\x0c", b"\x0b", b"\x8a\x00\x01x",
         b"\x00\x00", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x80", b"\x3a\x01a", b"\x0e", b"\x07"]
    )  # fmt: skip
    return st.lists(lengths | numbers | overlong | rare, max_size=4).map(b"".join)


inner: Final = fields(0x0A, 0x12, 0x1A)


@settings(max_examples=600)
@given(
    st.lists(
        st.builds(lambda tag, data: bytes_field(bytes((tag,)), data),
                  st.sampled_from([0x0A, 0x12, 0x1A]), inner)
        | inner
        | st.binary(max_size=4),
        max_size=5,
    ).map(b"".join)
)  # fmt: skip
def test_what_comes_otherwise_is_read_or_refused_as_protobuf_does(data: bytes) -> None:
    assert read(data) == by_protobuf(data)


@settings(max_examples=600)
@given(st.binary(max_size=40))
def test_bytes_that_are_anything_are_read_or_refused_as_protobuf_does(data: bytes) -> None:
    assert read(data) == by_protobuf(data)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3), st.data())
def test_one_that_was_cut_or_changed_is_read_or_refused_as_protobuf_does(
    entries: list[tuple[str, str]], draw: Any
) -> None:
    whole = asked(entries)
    whole.group.name, whole.topic.name = "g", "t"
    data = bytearray(whole.SerializeToString())
    at = draw.draw(st.integers(0, len(data) - 1))
    assert read(bytes(data[:at])) == by_protobuf(bytes(data[:at]))
    data[at] = draw.draw(st.integers(0, 255))
    assert read(bytes(data)) == by_protobuf(bytes(data))


def test_the_number_of_entries_is_bounded() -> None:
    entry = bytes_field(b"\x1a", b"\x12\x01h")
    assert len(read_ack(entry * ENTRIES_COUNT_MAX).handles) == ENTRIES_COUNT_MAX
    with pytest.raises(BadRequestError, match="4097 entries in one request"):
        read_ack(entry * (ENTRIES_COUNT_MAX + 1))
    with pytest.raises(BadRequestError, match="fields and elements in one"):
        read_ack(b"\x1a\x00" * (FIELDS_MAX + 1))


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=5), st.data())
def test_it_is_answered_as_protobuf_does_it(entries: list[tuple[str, str]], draw: Any) -> None:
    read_entries = read_ack(asked(entries).SerializeToString()).entries
    count = len(entries)
    each = draw.draw(
        st.just([]) | st.lists(st.sampled_from([OK, WRONG]), min_size=count, max_size=count)
    )
    wanted = service_pb2.AckMessageResponse(status=WRONG)
    for index, (message_id, handle) in enumerate(entries):
        status = each[index] if each else WRONG
        wanted.entries.add(message_id=message_id, receipt_handle=handle, status=status)
    serialised = [status.SerializeToString() for status in each]
    made = wire_ack.ack_response(WRONG.SerializeToString(), read_entries, serialised)
    assert service_pb2.AckMessageResponse.FromString(made) == wanted
