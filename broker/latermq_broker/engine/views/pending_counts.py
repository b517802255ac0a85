"""How many of the retries that wait are ready: they wait for nothing but a receive."""

from collections import Counter

from latermq_broker.delivery.leases.lease import State
from latermq_broker.engine.state.model import PendingCount, PendingKind
from latermq_broker.engine.state.state import EngineState

Key = tuple[PendingKind, str, str]  # kind, topic, group


def ready_counts(state: EngineState) -> Counter[Key]:
    """By topic and group, from counters: nothing is looked at."""
    counts: Counter[Key] = Counter()
    for (group_id, topic_id), subscription in state.subscriptions.items():
        group, topic = state.catalog.group_by_id(group_id), state.catalog.topic_by_id(topic_id)
        if group is not None and topic is not None:
            key = PendingKind.BACKOFF, topic.name, group.name
            counts[key] = subscription.counts[State.READY]
    return counts


def pending_count(key: Key, count: int, next_due_ms: int, ready: int) -> PendingCount:
    kind, topic, group = key
    return PendingCount(
        kind=kind, topic=topic, group=group, count=count, next_due_ms=next_due_ms, ready=ready
    )
