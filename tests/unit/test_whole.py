"""What several shards say of a group or a topic, as one."""

from latermq_proto.latermq.v1 import group_pb2, topic_pb2
from latermq_text.whole import whole_group, whole_topic


def progress(topic: str = "", **fields: float) -> group_pb2.TopicProgress:
    made = group_pb2.TopicProgress(topic=topic)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def unequal(*topics: str) -> list[group_pb2.UnequalFilters]:
    return [group_pb2.UnequalFilters(topic=topic) for topic in topics]


def test_a_group_of_one_shard_is_as_it_is() -> None:
    alone = group_pb2.Group(name="billing", dead_letter_count=2)
    assert whole_group([alone]) is alone


def test_counts_and_rates_are_added_and_the_oldest_counts() -> None:
    parts = [
        group_pb2.Group(
            name="billing", max_attempts=3, dead_letter_count=2,
            progress=progress(ready_count=5, oldest_unread_at_ms=900, last_consumed_at_ms=7,
                              in_per_s=1.5, parked_message_group_count=1),
            topics=[progress("orders", ready_count=4, failed_per_s=0.5),
                    progress("returns", held_count=1)],
            unequal_filters=unequal("orders"),
        ),
        group_pb2.Group(
            name="billing", max_attempts=3, dead_letter_count=1,
            progress=progress(ready_count=1, oldest_unread_at_ms=800, last_consumed_at_ms=9,
                              in_per_s=0.5, blocked_message_group_count=2),
            topics=[progress("orders", ready_count=1, failed_per_s=1.0)],
            unequal_filters=unequal("orders", "returns"),
        ),
        group_pb2.Group(name="billing", max_attempts=3),
    ]  # fmt: skip
    before = [part.SerializeToString() for part in parts]
    assert whole_group(parts) == group_pb2.Group(
        name="billing", max_attempts=3, dead_letter_count=3,
        progress=progress(ready_count=6, oldest_unread_at_ms=800, last_consumed_at_ms=9,
                          in_per_s=2.0, parked_message_group_count=1,
                          blocked_message_group_count=2),
        topics=[progress("orders", ready_count=5, failed_per_s=1.5),
                progress("returns", held_count=1)],
        unequal_filters=unequal("orders", "returns"),
    )  # fmt: skip
    assert [part.SerializeToString() for part in parts] == before


def services(topic: str, **counts: int) -> group_pb2.TopicServices:
    uses = [
        group_pb2.ServiceUse(service=service, client_count=count)
        for service, count in counts.items()
    ]
    return group_pb2.TopicServices(topic=topic, services=uses)


def test_a_worker_is_connected_to_many_shards_and_is_one() -> None:
    parts = [
        group_pb2.Group(services=[services("orders", billing=2)]),
        group_pb2.Group(
            services=[services("orders", billing=1, shop=1), services("returns", shop=1)]
        ),
    ]
    assert list(whole_group(parts).services) == [
        services("orders", billing=2, shop=1), services("returns", shop=1),
    ]  # fmt: skip


def test_every_figure_of_progress_is_joined() -> None:
    fields = [each.name for each in group_pb2.TopicProgress.DESCRIPTOR.fields if each.number > 1]
    parts = [group_pb2.Group(), group_pb2.Group()]
    for value, part in enumerate(parts, 2):
        for name in fields:
            setattr(part.progress, name, value)
    whole = whole_group(parts).progress
    told = {name: getattr(whole, name) for name in fields}
    assert told.pop("oldest_unread_at_ms") == 2
    assert told.pop("last_consumed_at_ms") == 3
    assert set(told.values()) == {5}


def test_a_topic() -> None:
    parts = [
        topic_pb2.Topic(name="orders", message_count=3, oldest_at_ms=50, consumer_groups=["b"]),
        topic_pb2.Topic(name="orders", delayed_count=2, consumer_groups=["a", "b"]),
    ]
    assert whole_topic(parts) == topic_pb2.Topic(
        name="orders", message_count=3, delayed_count=2, oldest_at_ms=50, consumer_groups=["a", "b"]
    )
