"""Single fields out of stored bytes, against protobuf itself."""

from hypothesis import given
from hypothesis import strategies as st

from latermq_broker.store.records.message_fields import (
    body_bytes,
    message_keys,
    message_tag,
    user_properties,
    well_formed,
)
from latermq_proto.apache.rocketmq.v2 import definition_pb2

TEXT = st.text(st.characters(codec="utf-8"), max_size=200)


@given(st.dictionaries(TEXT, TEXT, max_size=5), st.binary(max_size=300))
def test_user_properties(properties: dict[str, str], body: bytes) -> None:
    rest = definition_pb2.Message(user_properties=properties, body=body).SerializeToString()
    assert user_properties(rest) == properties
    assert body_bytes(rest) == len(body)
    assert well_formed(rest)


@given(TEXT, st.lists(TEXT, max_size=5), TEXT, st.integers(0, 2**31 - 1))
def test_tag_and_keys(tag: str, keys: list[str], message_id: str, queue_id: int) -> None:
    system = definition_pb2.SystemProperties(
        tag=tag, keys=keys, message_id=message_id, queue_id=queue_id
    )
    system.born_timestamp.FromMilliseconds(5)
    sys = system.SerializeToString()
    assert message_tag(sys) == tag
    assert message_keys(sys) == tuple(keys)
    assert well_formed(sys)
    assert not well_formed(sys[:-1])


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message(data: bytes) -> None:
    assert isinstance(user_properties(data), dict)
    assert isinstance(message_tag(data), str)
    assert isinstance(message_keys(data), tuple)
    assert body_bytes(data) <= len(data)
    assert isinstance(well_formed(data), bool)
