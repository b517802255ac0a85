"""How far groups are on their topics, for those who look after them. Read only."""

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from latermq_broker.engine.state.model import Topic
from latermq_broker.engine.state.state import EngineState, Subscription, first_unread
from latermq_broker.store.derived.consume_queue import ConsumeQueue

RETRIES_LOOKED_AT_MAX: Final = 1_000


class TimeSpan(NamedTuple):
    """Tells the times of one queue's messages and how far a group is; 0 where there is none."""

    queue_id: int
    first_ms: int  # the oldest that is retained
    last_ms: int
    next_ms: int  # the one the group receives next; the newest where it has received all
    behind: bool  # it has not


class GroupProgress:
    def __init__(self, state: EngineState) -> None:
        self._state = state

    def subscriptions(
        self, group_name: str = "", topic_name: str = ""
    ) -> Iterator[tuple[tuple[str, str], int]]:
        """Yield ((group, topic), when it last received) of all that have read; "" for any.

        But for those that were forgotten since: see `GroupAdmin.forget`.
        """
        catalog = self._state.catalog
        for (group_id, topic_id), subscription in self._state.subscriptions.items():
            group, topic = catalog.group_by_id(group_id), catalog.topic_by_id(topic_id)
            if group is None or topic is None:
                continue
            if subscription.last_consumed_ms <= dict(group.forgotten).get(topic_id, -1):
                continue
            if group_name in ("", group.name) and topic_name in ("", topic.name):
                yield (group.name, topic.name), subscription.last_consumed_ms

    def wanted(self) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
        """Yield by group and topic what its consumers filter by, as `filter_text` writes it.

        (): one of them wants everything, or the group reads lite topics.
        """
        catalog = self._state.catalog
        for (group_id, topic_id), subscription in self._state.subscriptions.items():
            group, topic = catalog.group_by_id(group_id), catalog.topic_by_id(topic_id)
            if group is not None and topic is not None:
                yield (group.name, topic.name), subscription.wanted

    def oldest_ready_ms(self, group_name: str, topic_name: str) -> int:
        """Tell since when the oldest message that could be received waits; 0: none does.

        Of the retries that are ready it looks at a bounded number.
        Raises GroupNotFoundError, TopicNotFoundError.
        """
        topic, subscription = self._subscription(group_name, topic_name)
        state = self._state
        waiting: list[int] = []
        for queue in self._queues(topic):
            cursor = state.cursor(subscription, queue) if subscription else queue.first
            if cursor < queue.next:
                waiting.append(queue.get(cursor).time_ms)
        if subscription is not None:
            ready = islice(subscription.ready, RETRIES_LOOKED_AT_MAX)
            waiting += [delivery.deadline_ms for delivery in ready]
        return min(waiting, default=0)

    def time_spans(self, group_name: str, topic_name: str) -> Iterator[TimeSpan]:
        """Yield the time span of each queue. Raises GroupNotFoundError, TopicNotFoundError."""
        topic, subscription = self._subscription(group_name, topic_name)
        time_of_day = self._state.wall.time_of_day
        for queue in self._queues(topic):
            if queue.first == queue.next:
                yield TimeSpan(queue.queue_id, 0, 0, 0, behind=False)
                continue
            cursor = queue.first
            if subscription is not None:
                cursor = first_unread(self._state, subscription, queue.queue_id)
            yield TimeSpan(
                queue_id=queue.queue_id,
                first_ms=time_of_day(queue.get(queue.first).time_ms),
                last_ms=time_of_day(queue.get(queue.next - 1).time_ms),
                next_ms=time_of_day(queue.get(min(cursor, queue.next - 1)).time_ms),
                behind=cursor < queue.next,
            )

    def _queues(self, topic: Topic) -> Iterator[ConsumeQueue]:
        return (self._state.queue(topic.id, queue_id) for queue_id in range(topic.queue_count))

    def _subscription(self, group_name: str, topic_name: str) -> tuple[Topic, Subscription | None]:
        group = self._state.catalog.require_group(group_name)
        topic = self._state.catalog.require_topic(topic_name)
        return topic, self._state.subscriptions.get((group.id, topic.id))
