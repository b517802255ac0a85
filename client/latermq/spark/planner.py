"""Decides what to read: where to start, how far a batch goes, which ranges that is.

Pure: what the queues hold comes in as `Ends`, offsets go out. The rules about lost data are here:

| the checkpoint says | the broker says | failOnDataLoss=false |
|---|---|---|
| offset p | the oldest is above p | goes on at the oldest |
| epoch a | epoch b: the topic was made anew | begins at the earliest of b |
| offset p | the queue ends below p | begins the topic again at its earliest, epoch `a~1` |
| life l before p | life m: another log's messages | begins the topic again at its earliest, `a~1` |
| a topic that is subscribed | no such topic | keeps the offset, reads nothing |

With failOnDataLoss=true each of these stops the query before anything is read. To begin again is
written down as another epoch, never as an offset below the one before: a batch that is planned
twice then gives the same ranges, whatever the queue's end is by then.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from latermq.spark.errors import OptionError, TopicNotFoundError
from latermq.spark.limits import share
from latermq.spark.losses import Losses
from latermq.spark.offsets import Offsets, begun_again, creation_id
from latermq.spark.options import Boundary, Edge, Subscription
from latermq.spark.places import topic_of
from latermq.spark.ranges import Ends, QueueEnds, QueueRange, TopicEnds


@dataclass(frozen=True, slots=True)
class Planner:
    subscription: Subscription
    losses: Losses

    def boundary(self, boundary: Boundary, ends: Ends, option: str) -> Offsets:
        """Find the offsets that `earliest`, `latest`, a time or offsets in JSON stand for now.

        Queues that the JSON leaves out are at the earliest at the start, at the latest at the end.

        Raises:
            TopicNotFoundError: a topic of the subscription does not exist.
            OptionError: the JSON names a topic or queue that is not there, or an offset beyond
                its end.
            DataLossError: the JSON names an offset below the oldest.
        """
        self._require_all(ends)
        edge = boundary.edge
        if edge is Edge.OFFSETS:
            edge = Edge.LATEST if option.startswith("ending") else Edge.EARLIEST
        topics = {
            topic: {queue_id: _at(edge, queue) for queue_id, queue in held.queues.items()}
            for topic, held in ends.items()
        }
        for topic, queues in (boundary.offsets or {}).items():
            if topic not in topics:
                raise OptionError(f"{option} names topic {topic}, which is not subscribed to")
            for queue_id, offset in queues.items():
                if queue_id not in topics[topic]:
                    raise OptionError(f"{option}: topic {topic} has no queue {queue_id}")
                held = ends[topic].queues[queue_id]
                topics[topic][queue_id] = self._named(topic, queue_id, offset, held, option)
        lives = {topic: _lives(held, topics[topic]) for topic, held in ends.items()}
        lives = {topic: queues for topic, queues in lives.items() if queues}
        return Offsets(topics, {topic: held.epoch for topic, held in ends.items()}, lives)

    def _named(self, topic: str, queue_id: int, offset: int, held: QueueEnds, option: str) -> int:
        if offset < 0:
            return held.next if offset == -1 else held.earliest
        if offset > held.next:
            raise OptionError(
                f"{option}: topic {topic} queue {queue_id} ends at {held.next}, not {offset}"
            )
        if offset < held.earliest and option.startswith("starting"):
            self.losses.retained(topic, queue_id, offset, held.earliest)
        return max(offset, held.earliest)

    def advance(
        self, start: Offsets, ends: Ends, limit: int | None, until: Ends | None = None
    ) -> tuple[Offsets, int]:
        """Find how far the next batch goes, and count the rows that wait altogether.

        Topics in `start` that are not subscribed to any more are carried along. A queue that
        `start` does not know begins at its earliest.

        Args:
            limit: rows at most; None for all there are.
            until: older ends, beyond which nothing counts.

        Raises:
            TopicNotFoundError: a topic was added to the subscription that does not exist.
            DataLossError: see the module's table.
        """
        for topic in start.topics:
            if topic in self.subscription and topic not in ends:
                self.losses.deleted(topic)
        self._require_all({**dict.fromkeys(start.topics), **ends})
        topics = dict(start.topics)
        epochs = dict(start.epochs)
        for topic, held in sorted(ends.items()):
            topics[topic], epochs[topic] = self._settle(topic, start, held)
        backlogs = {
            (topic, queue_id): backlog
            for topic, held in sorted(ends.items() if until is None else _capped(ends, until))
            for queue_id, queue in sorted(held.queues.items())
            if (backlog := queue.next - topics[topic][queue_id]) > 0
        }
        waiting = sum(backlogs.values())
        taken = share(backlogs, waiting if limit is None else limit)
        for (topic, queue_id), count in taken.items():
            topics[topic] = {**topics[topic], queue_id: topics[topic][queue_id] + count}
        lives = dict(start.lives)
        for topic, held in ends.items():
            if topics[topic] != start.topics.get(topic) or epochs[topic] != start.epochs.get(topic):
                lives[topic] = _lives(held, topics[topic])
        lives = {topic: queues for topic, queues in lives.items() if queues}
        return Offsets(topics, epochs, lives), waiting

    def _settle(self, topic: str, start: Offsets, held: TopicEnds) -> tuple[dict[int, int], str]:
        """Find where this topic's next batch starts, and under which epoch."""
        reached = dict(start.topics.get(topic, {}))
        epoch = start.epochs.get(topic, "")
        earliest = {queue_id: queue.earliest for queue_id, queue in held.queues.items()}
        if epoch and creation_id(epoch) != held.epoch:
            self.losses.made_anew(topic, creation_id(epoch), held.epoch)
            return earliest, held.epoch
        for queue_id, offset in sorted(reached.items()):
            queue = held.queues.get(queue_id, QueueEnds(0, 0))
            if offset > queue.next:
                self.losses.cut_short(topic, queue_id, offset, queue.next)
                return earliest, begun_again(epoch or held.epoch)
            if _is_another(queue, offset, start.lives.get(topic, {}).get(queue_id, 0)):
                self.losses.restored(topic, queue_id, offset)
                return earliest, begun_again(epoch or held.epoch)
            if offset < queue.earliest:
                self.losses.retained(topic, queue_id, offset, queue.earliest)
                reached[queue_id] = queue.earliest
        return {**earliest, **reached}, epoch or held.epoch

    def ranges(self, start: Offsets, end: Offsets, ends: Ends) -> list[QueueRange]:
        """List the rows between two offsets, as far as they are still there; by topic and queue.

        A start beyond its end is an empty range: a first batch whose `latest` was asked for again
        after a crash, when it was later.

        Raises:
            DataLossError: see the module's table.
        """
        return [
            planned
            for topic in sorted(end.topics)
            if topic in self.subscription
            for planned in self._topic_ranges(topic, start, end, ends.get(topic))
        ]

    def _topic_ranges(
        self, topic: str, start: Offsets, end: Offsets, held: TopicEnds | None
    ) -> Iterator[QueueRange]:
        epoch, old_epoch = end.epochs.get(topic, ""), start.epochs.get(topic, "")
        reached = start.topics.get(topic, {})
        if old_epoch and old_epoch != epoch:
            reached = {}
        wanted = {
            queue_id: (reached.get(queue_id), to)
            for queue_id, to in sorted(end.topics[topic].items())
            if to > reached.get(queue_id, 0)
        }
        if not wanted:
            return
        if held is None:
            self.losses.deleted(topic)
            return
        if epoch and creation_id(epoch) != held.epoch:
            self.losses.made_anew(topic, creation_id(epoch), held.epoch)
            return
        lives = end.lives.get(topic, {})
        for queue_id, (_, to) in wanted.items():
            queue = held.queues.get(queue_id, QueueEnds(0, 0))
            if _is_another(queue, to, lives.get(queue_id, 0)):
                self.losses.restored(topic, queue_id, to)
                return
        for queue_id, (offset, to) in wanted.items():
            queue = held.queues.get(queue_id, QueueEnds(0, 0))
            if to > queue.next:
                self.losses.cut_short(topic, queue_id, to, queue.next)
            if offset is not None and offset < queue.earliest:
                self.losses.retained(topic, queue_id, offset, queue.earliest, to)
            first, last = max(offset or 0, queue.earliest), min(to, queue.next)
            if first < last:
                yield QueueRange(topic, held.epoch, queue_id, first, last)

    def _require_all(self, places: Iterable[str]) -> None:
        topics = set(map(topic_of, places))
        missing = [topic for topic in self.subscription.topics if topic not in topics]
        if missing:
            raise TopicNotFoundError(
                f"the broker has no topic {', '.join(missing)} "
                f"(a group's %DLQ% topic exists once the group does)"
            )


def _capped(ends: Ends, until: Ends) -> Iterator[tuple[str, TopicEnds]]:
    """Yield `ends`, as far as they were there already when `until` was taken."""
    for topic, held in ends.items():
        older = until.get(topic)
        if older is not None and older.epoch == held.epoch:
            queues = {
                queue_id: queue._replace(next=min(queue.next, older.queues[queue_id].next))
                for queue_id, queue in held.queues.items()
                if queue_id in older.queues
            }
            yield topic, TopicEnds(held.epoch, queues)


def _lives(held: TopicEnds, offsets: Mapping[int, int]) -> dict[int, int]:
    """Find of which life the message before each offset is; queues where that is known."""
    lives = {
        queue_id: held.queues[queue_id].life_before(offset)
        for queue_id, offset in offsets.items()
        if queue_id in held.queues
    }
    return {queue_id: life for queue_id, life in lives.items() if life}


def _is_another(queue: QueueEnds, offset: int, life: int) -> bool:
    """Tell whether the message before `offset` is of another life than `life`, both known."""
    return life != 0 and queue.life_before(offset) not in (0, life)


def _at(edge: Edge, queue: QueueEnds) -> int:
    if edge is Edge.EARLIEST:
        return queue.earliest
    return queue.next if edge is Edge.LATEST else queue.at
