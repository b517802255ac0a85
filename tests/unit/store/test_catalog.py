"""Topics and groups as they are stored: bytes that never change, and what was added to them."""

from dataclasses import replace
from typing import Final

from latermq_broker.catalog.catalog import (
    Catalog,
    Group,
    Topic,
    TopicType,
    decode_group,
    decode_topic,
    encode_group,
    encode_topic,
)

TOPIC: Final = Topic(
    id=1, name="orders", type=TopicType.MIXED, queue_count=4, created_ms=5, epoch="00000000000000aa"
)
TOPIC_BYTES: Final = (
    b'{"created_ms":5,"epoch":"00000000000000aa","id":1,"name":"orders","ordered_queue_count":0,'
    b'"queue_count":4,"type":7}'
)
TOPIC_MADE_BY_SHOP: Final = (
    b'{"created_ms":5,"epoch":"00000000000000aa","id":2,"made_by":"shop","name":"bills",'
    b'"ordered_queue_count":0,"queue_count":4,"type":7}'
)
GROUP_BYTES: Final = (
    b'{"backoff":null,"created_ms":5,"fifo":false,"id":1,"lite_exclusive":false,"lite_parent":"",'
    b'"max_attempts":3,"name":"billing","on_dead":1}'
)
GROUP_MADE_BY_SHOP: Final = GROUP_BYTES.replace(
    b'"max_attempts"', b'"made_by":"shop","max_attempts"'
)


def test_topics() -> None:
    assert encode_topic(TOPIC) == TOPIC_BYTES
    assert decode_topic(TOPIC_BYTES) == TOPIC
    made = decode_topic(TOPIC_MADE_BY_SHOP)
    assert (made.name, made.made_by) == ("bills", "shop")
    assert encode_topic(made) == TOPIC_MADE_BY_SHOP


def test_groups() -> None:
    group = Group(id=1, name="billing", fifo=False, max_attempts=3, backoff=None, created_ms=5)
    assert encode_group(group) == GROUP_BYTES
    assert decode_group(GROUP_BYTES) == group
    heavy = replace(group, weight=7)
    assert decode_group(encode_group(heavy)) == heavy
    made = decode_group(GROUP_MADE_BY_SHOP)
    assert made.made_by == "shop"
    assert encode_group(made) == GROUP_MADE_BY_SHOP


def test_what_users_made_is_counted_as_it_comes_and_goes() -> None:
    catalog = Catalog()
    for topic in (TOPIC, decode_topic(TOPIC_MADE_BY_SHOP), decode_topic(TOPIC_MADE_BY_SHOP)):
        catalog.put_topic(topic)
    catalog.put_group(decode_group(GROUP_MADE_BY_SHOP))
    assert (catalog.topics_made, catalog.groups_made) == ({"shop": 1}, {"shop": 1})
    again = Catalog()
    again.restore(catalog.snapshot())
    assert (again.topics_made, again.groups_made) == ({"shop": 1}, {"shop": 1})
    catalog.remove_topic(2)
    catalog.remove_group(1)
    assert (catalog.topics_made, catalog.groups_made) == ({}, {})
