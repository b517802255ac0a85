"""Acknowledgements that look alike are taken apart as protobuf does it, or not at all."""

from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from latermq_broker.services.wire.lookalike_acks import acks_of
from latermq_broker.services.wire.wire_messages import acked_response
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

HANDLES = st.text("0123456789abcdef", min_size=40, max_size=40)
IDS = st.text(st.characters(max_codepoint=0x7F), max_size=83)
NAMES = st.text("ab%", max_size=9)


def request(
    ids: list[str], handles: list[str], group: str = "g", topic: str = "t", space: str = ""
) -> service_pb2.AckMessageRequest:
    entries = [
        service_pb2.AckMessageEntry(message_id=id, receipt_handle=handle)
        for id, handle in zip(ids, handles, strict=True)
    ]
    return service_pb2.AckMessageRequest(
        group=definition_pb2.Resource(name=group, resource_namespace=space),
        topic=definition_pb2.Resource(name=topic),
        entries=entries,
    )


@given(id=IDS, handles=st.lists(HANDLES, min_size=1, max_size=5), group=NAMES, space=NAMES)
def test_the_same_as_protobuf_makes_of_it(
    id: str, handles: list[str], group: str, space: str
) -> None:
    if not id:
        return  # protobuf leaves out a text that is empty
    ids = [id[at:] + id[:at] for at in range(len(handles))]
    asked = request(ids, handles, group, "topic", space)
    found = acks_of(asked.SerializeToString(), 5)
    assert found is not None
    assert found.handles == handles
    assert found.response == acked_response(asked.entries)
    named = service_pb2.AckMessageRequest.FromString(found.resources)
    assert (named.group, named.topic, len(named.entries)) == (asked.group, asked.topic, 0)


def test_others_take_the_whole_way() -> None:
    handle = "0a" * 20
    plain = request(["id", "di"], [handle, handle])
    assert acks_of(plain.SerializeToString(), 2) is not None
    lite = request(["id"], [handle])
    lite.entries[0].lite_topic = "x"
    others = [
        request([], []), request(["id", "longer"], [handle, handle]), lite,
        request(["é"], [handle]), request(["id"], [handle + "0"]), request(["id"], [""]),
        request(["x" * 84], [handle]), request(["id"] * 3, [handle] * 3), request([""], [handle]),
        service_pb2.AckMessageRequest(entries=plain.entries), request(["id"], [handle], "g" * 130),
    ]  # fmt: skip
    for other in others:
        assert acks_of(other.SerializeToString(), 2) is None, other


@given(
    id=IDS,
    handles=st.lists(HANDLES, min_size=1, max_size=3),
    cut=st.integers(0, 400),
    at=st.integers(0, 400),
    byte=st.integers(0, 255),
)
def test_whatever_is_found_in_any_bytes_is_what_protobuf_finds(
    id: str, handles: list[str], cut: int, at: int, byte: int
) -> None:
    data = bytearray(request([id] * len(handles), handles).SerializeToString())
    data[at : at + 1] = bytes((byte,))
    whole = bytes(data[: cut or None])
    found = acks_of(whole, 3)
    if found is None:
        return
    try:
        names = service_pb2.AckMessageRequest.FromString(found.resources)
    except DecodeError:
        return  # the service refuses the names, and takes the whole way
    if names.entries:
        return  # the same
    asked = service_pb2.AckMessageRequest.FromString(whole)
    assert [entry.receipt_handle for entry in asked.entries] == found.handles
    assert acked_response(asked.entries) == found.response
