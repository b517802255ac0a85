"""What a damaged CONFIG record still tells: never an error, and fields of the right types."""

import dataclasses
from collections.abc import Callable, Iterator

import pytest

from latermq_broker.catalog.catalog import (
    Backoff,
    BackoffKind,
    Group,
    Topic,
    TopicType,
    encode_group,
    encode_topic,
)
from latermq_broker.offline.mending.lost_catalog import group_of, topic_of

TOPIC = Topic(
    id=15,
    name="orders",
    type=TopicType.FIFO,
    queue_count=16,
    created_ms=1_700_000_000_000,
    epoch="56900508f398a73a",
    ordered_queue_count=16,
    retention_ms=86_400_000,
)
GROUP = Group(
    id=155,
    name="billing",
    fifo=True,
    max_attempts=155,
    backoff=Backoff(
        kind=BackoffKind.EXPONENTIAL,
        delays_ms=(155, 255),
        initial_ms=100,
        max_ms=1000,
        multiplier=2.5,
        jitter=0.25,
    ),
    created_ms=1_700_000_000_000,
    forgotten=((155, 1_700_000_000_000),),
)


def damaged(body: bytes) -> Iterator[bytes]:
    """One byte changed to each other, and each end cut off."""
    for at in range(len(body)):
        yield body[:at]
        for byte in range(256):
            yield body[:at] + bytes((byte,)) + body[at + 1 :]


def shape(value: object) -> object:
    """The types of a value, all the way down; of a sequence that of its first item."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        shapes = {name: shape(getattr(value, name)) for name in names}
        factors = {name for name in ("multiplier", "jitter") if shapes.get(name) is int}
        return shapes | dict.fromkeys(factors, float)
    if isinstance(value, tuple):
        return {str(shape(item)) for item in value} or {str(shape(0))}
    return type(value)


@pytest.mark.parametrize(
    ("read", "whole", "body"),
    [(topic_of, TOPIC, encode_topic(TOPIC)), (group_of, GROUP, encode_group(GROUP))],
    ids=["topic", "group"],
)
def test_whatever_byte_is_damaged(
    read: Callable[[bytes], Topic | Group | None], whole: Topic | Group, body: bytes
) -> None:
    assert read(body) == whole
    wrong = {
        bad
        for bad in damaged(body)
        if (found := read(bad)) is not None and shape(found) != shape(whole)
    }
    assert not wrong


def test_a_number_that_begins_with_a_nought_is_none() -> None:
    body = encode_topic(TOPIC).replace(b'"created_ms":17', b'"created_ms":07')
    found = topic_of(body)
    assert found == dataclasses.replace(TOPIC, created_ms=0)


@pytest.mark.parametrize("read", [topic_of, group_of])
def test_a_body_that_is_nested_without_end(read: Callable[[bytes], object]) -> None:
    assert read(b'{"name":' + b"[" * 60_000) is None
