"""Topics, and consumer groups on topics, as whoever watches the broker counts them.

What is shown stays shown until it is deleted: series that come and go would be taken for restarts.
So the first `count_max` are, in the order in which they came to be known; how many are left out is
told. The work of one look grows with `count_max`, not with what there is.
"""

from collections.abc import Iterator
from typing import NamedTuple

from latermq_broker.delivery.leases.lease import State
from latermq_broker.engine.state.group_flow import Flow
from latermq_broker.engine.state.lag import Lag, lag_of
from latermq_broker.engine.state.letter_states import letters_of
from latermq_broker.engine.state.state import EngineState


class WatchedPair(NamedTuple):
    """One group on one topic."""

    group: str
    topic: str
    lag: Lag
    in_flight: int
    backoff: int
    retries_ready: int
    flow: Flow | None  # None: nothing happened since the start


class WatchedTopic(NamedTuple):
    topic: str
    entered: int  # messages that ever came into its queues
    stored: int  # those that are still there
    delayed: int


class WatchedGroup(NamedTuple):
    group: str
    dead_letters: int  # neither redriven nor dropped


class Watched:
    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._pairs: dict[tuple[int, int], None] = {}
        self.pairs_left_out = 0
        self.topics_left_out = 0
        self.groups_left_out = 0

    def pairs(self, count_max: int) -> Iterator[WatchedPair]:
        """Yield groups on topics; others may be made and deleted between two of them."""
        state = self._state
        for key in self._chosen(count_max):
            subscription = state.subscriptions.get(key)
            group, topic = state.catalog.group_by_id(key[0]), state.catalog.topic_by_id(key[1])
            if subscription is not None and group is not None and topic is not None:
                yield WatchedPair(
                    group.name,
                    topic.name,
                    lag_of(state, subscription, topic),
                    subscription.counts[State.LEASED],
                    subscription.counts[State.BACKOFF],
                    subscription.counts[State.READY],
                    subscription.flow,
                )

    def _chosen(self, count_max: int) -> list[tuple[int, int]]:
        known = self._state.subscriptions
        chosen = self._pairs
        for key in [key for key in chosen if key not in known]:
            del chosen[key]
        if len(chosen) < min(count_max, len(known)):
            for key in known:
                if len(chosen) >= count_max:
                    break
                chosen.setdefault(key)
        self.pairs_left_out = len(known) - len(chosen)
        return list(chosen)

    def topics(self, count_max: int) -> list[WatchedTopic]:
        """List topics, those of dead letters left out, the first that were made."""
        state = self._state
        rows: list[WatchedTopic] = []
        known = [topic for topic in state.catalog.topics() if not topic.internal]
        known.sort(key=lambda topic: topic.id)
        self.topics_left_out = max(0, len(known) - count_max)
        for topic in known[:count_max]:
            entered = stored = 0
            for queue_id in range(topic.queue_count):
                queue = state.queue(topic.id, queue_id)
                entered += queue.next
                stored += queue.next - queue.first
            delayed = state.delayed_counts.get(topic.id, 0)
            rows.append(WatchedTopic(topic.name, entered, stored, delayed))
        return rows

    def groups(self, count_max: int) -> list[WatchedGroup]:
        """List groups that have dead letters or had some, the first that were made."""
        state = self._state
        rows: list[WatchedGroup] = []
        self.groups_left_out = 0
        for group in sorted(state.catalog.groups(), key=lambda group: group.id):
            topic = state.catalog.topic(group.dead_letter_topic)
            if topic is not None and len(rows) >= count_max:
                self.groups_left_out += 1
            elif topic is not None:
                queue = state.queue(topic.id, 0)
                letters = queue.next - queue.first - len(letters_of(state.dead, topic.id))
                rows.append(WatchedGroup(group.name, letters))
        return rows
