"""What several shards say of one thing, as one: counts and rates added, the oldest of ages. Pure.

Topics and groups are the same in all shards of a cluster; what is in them is each shard's own.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from latermq_proto.latermq.v1 import group_pb2, topic_pb2

_ADDED: Final = (
    "ready_count", "in_flight_count", "backoff_count", "held_count", "blocked_message_group_count",
    "parked_message_group_count", "in_per_s", "out_per_s", "failed_per_s",
)  # fmt: skip


def whole_group(parts: Sequence[group_pb2.Group]) -> group_pb2.Group:
    """Join what each shard has of a group; its policy is as the first says."""
    if len(parts) == 1:
        return parts[0]
    whole = group_pb2.Group()
    whole.CopyFrom(parts[0])
    whole.dead_letter_count = sum(part.dead_letter_count for part in parts)
    whole.progress.CopyFrom(whole_progress([part.progress for part in parts]))
    by_topic: dict[str, list[group_pb2.TopicProgress]] = {}
    for part in parts:
        for each in part.topics:
            by_topic.setdefault(each.topic, []).append(each)
    del whole.topics[:]
    whole.topics.extend(map(whole_progress, by_topic.values()))
    unequal = {each.topic: each for part in parts for each in part.unequal_filters}
    del whole.unequal_filters[:]
    whole.unequal_filters.extend(unequal.values())
    services = _services(parts)
    del whole.services[:]
    whole.services.extend(services)
    return whole


def _services(parts: Sequence[group_pb2.Group]) -> list[group_pb2.TopicServices]:
    """Join who shares each topic: a worker is connected to every shard, or to some."""
    shown: dict[str, dict[str, group_pb2.ServiceUse]] = {}
    for part in parts:
        for topic in part.services:
            uses = shown.setdefault(topic.topic, {})
            for use in topic.services:
                known = uses.get(use.service)
                if known is None or known.client_count < use.client_count:
                    uses[use.service] = use
    return [
        group_pb2.TopicServices(topic=topic, services=[use for _, use in sorted(uses.items())])
        for topic, uses in sorted(shown.items())
    ]


def whole_progress(parts: Sequence[group_pb2.TopicProgress]) -> group_pb2.TopicProgress:
    """Join how far a group is in each shard."""
    whole = group_pb2.TopicProgress(topic=parts[0].topic)
    for name in _ADDED:
        setattr(whole, name, sum(getattr(part, name) for part in parts))
    whole.oldest_unread_at_ms = _earliest(part.oldest_unread_at_ms for part in parts)
    whole.last_consumed_at_ms = max(part.last_consumed_at_ms for part in parts)
    return whole


def whole_topic(parts: Sequence[topic_pb2.Topic]) -> topic_pb2.Topic:
    """Join what each shard has of a topic, but for its queues, which are the first's."""
    whole = topic_pb2.Topic()
    whole.CopyFrom(parts[0])
    whole.message_count = sum(part.message_count for part in parts)
    whole.delayed_count = sum(part.delayed_count for part in parts)
    whole.oldest_at_ms = _earliest(part.oldest_at_ms for part in parts)
    readers = {name for part in parts for name in part.consumer_groups}
    whole.consumer_groups[:] = sorted(readers)
    return whole


def _earliest(instants: Iterable[int]) -> int:
    """Return the first of those that are set, 0: none is."""
    return min((each for each in instants if each), default=0)
