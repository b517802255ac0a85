"""Topics: make, alter, delete, describe; and what is made on first use."""

import hashlib
from dataclasses import replace
from typing import Final

from latermq_broker.catalog.access import User
from latermq_broker.catalog.catalog import (
    AS_THEY_ARE,
    RETRY_PREFIX,
    UNSET,
    TopicTimes,
    consumer_group_of,
    encode_topic,
)
from latermq_broker.catalog.shares import Shares, key_of, maker
from latermq_broker.engine.catalog.fresh_shares import FreshShares
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.state.model import Group, QueueEnds, Topic, TopicInfo, TopicType
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import (
    BadRequestError,
    ForbiddenError,
    TooManyRequestsError,
    TopicNotFoundError,
    unknown_topic,
)
from latermq_broker.store.records.catalog_records import (
    CONFIG_DELETE,
    CONFIG_PUT,
    CONFIG_TOPIC,
    ConfigPayload,
)
from latermq_broker.store.records.record import RecordType

TIME_MS_MAX: Final = 100 * 365 * 86_400_000
PRIORITIES: Final = 10  # queues of a topic of type PRIORITY, if nothing else is asked for
_RANKED: Final = (TopicType.PRIORITY, TopicType.LITE)  # what their queues hold is by their type


class TopicAdmin:
    """Names are checked by the edge; here only what the catalogue knows."""

    def __init__(self, state: EngineState, journal: Journal) -> None:
        self._state = state
        self._journal = journal
        self._shares = Shares(state.config.auth)
        self._fresh = FreshShares(state.limits)

    def ensure(self, name: str, now_ms: int, user: User | None = None) -> Topic:
        """Find the topic, or make it on first use where the configuration allows.

        Args:
            user: who uses it; has a share of all topics there may be.

        Raises TopicNotFoundError, TooManyRequestsError (topic_count_max).
        """
        topic = self._state.catalog.topic(name)
        if topic is None:
            topic = self.planned(name, now_ms, user)
            self._put(topic, now_ms)
            self._fresh.note(topic.made_by, now_ms)
        return topic

    def check_read(self, name: str) -> None:
        """Check that a topic is there, or will be when somebody sends to it. TopicNotFoundError."""
        if self._state.catalog.topic(name) is None:
            self._check_name(name)

    def planned(self, name: str, now_ms: int, user: User | None = None) -> Topic:
        """Find the topic, or plan what its first use will make: nothing is stored.

        Raises as `ensure`.
        """
        topic = self._state.catalog.topic(name)
        if topic is not None:
            return topic
        self._check_name(name)
        if consumer_group_of(name) is not None:
            return self._plan(name, TopicType.NORMAL, 1, now_ms, counted=False)
        self._check_share(user, now_ms)
        return self._plan(name, TopicType.MIXED, 0, now_ms, made_by=maker(user))

    def _check_name(self, name: str) -> None:
        """Check that first use makes a topic of this name. Raises TopicNotFoundError."""
        owner, config = consumer_group_of(name), self._state.config
        if owner is not None:
            may_be = self._state.catalog.group(owner) is not None
        else:
            may_be = config.catalog.auto_create and not config.compat.strict
            may_be &= not name.startswith(RETRY_PREFIX)
        if not may_be:
            raise self._unknown(name)

    def _unknown(self, name: str) -> TopicNotFoundError:
        return unknown_topic(name, strict=self._state.config.compat.strict)

    def dead_letter_topic(self, group: Group, now_ms: int) -> Topic:
        """Find `%DLQ%group`, a topic of one queue, or make it when it is first needed."""
        return self.ensure(group.dead_letter_topic, now_ms)

    def create(
        self,
        name: str,
        type: TopicType,
        queue_count: int,
        now_ms: int,
        times: TopicTimes = AS_THEY_ARE,
        made_by: str = "",
    ) -> Topic:
        """Make the topic; queue_count 0: the default. The same again is OK.

        Args:
            made_by: in whose share it counts, a user's access key; "": in nobody's.

        Raises BadRequestError when it exists otherwise, or queue_count or a time is out of bounds.
        """
        existing = self._state.catalog.topic(name)
        if existing is None:
            topic = self._timed(self._plan(name, type, queue_count, now_ms, made_by=made_by), times)
            self._put(topic, now_ms)
            return topic
        if self._timed(existing, times) != existing:
            raise BadRequestError(
                f"topic {name} exists and keeps its messages or dedup ids for another time; alter "
                "it"
            )
        if existing.type is not type or queue_count not in (0, existing.queue_count):
            raise BadRequestError(
                f"topic {name} exists with type {existing.type.name.lower()} and "
                f"{existing.queue_count} queues; alter it or delete it first"
            )
        return existing

    def alter(
        self,
        name: str,
        type: TopicType | None,
        queue_count: int,
        now_ms: int,
        times: TopicTimes = AS_THEY_ARE,
    ) -> Topic:
        """Alter the topic: None and 0 leave as it is; queues may grow, never shrink."""
        topic = self._state.catalog.require_topic(name)
        if topic.internal:
            raise ForbiddenError(f"{name} is kept by the broker and cannot be altered")
        if queue_count:
            self._check_queue_count(queue_count)
            _check_lite(name, topic.type, queue_count)
            if queue_count < topic.queue_count:
                raise BadRequestError(
                    f"queues of topic {name} cannot shrink from {topic.queue_count} to "
                    f"{queue_count}"
                )
        type = type or topic.type
        if type is not topic.type and (type in _RANKED or topic.type in _RANKED):
            raise BadRequestError(
                f"topic {name} of type {topic.type.name.lower()} cannot become "
                f"{type.name.lower()}: make another topic"
            )
        changed = self._timed(replace(topic, type=type), times)
        if queue_count not in (0, topic.queue_count):
            ordered = topic.ordered_queue_count or topic.queue_count
            changed = replace(changed, queue_count=queue_count, ordered_queue_count=ordered)
        if changed != topic:
            self._put(changed, now_ms)
        return changed

    def _timed(self, topic: Topic, times: TopicTimes) -> Topic:
        """Give the topic times of its own. Raises BadRequestError."""
        if times == AS_THEY_ARE:
            return topic
        read_ms = topic.retention_ms if times.read_ms is None else times.read_ms
        unread_ms = topic.unread_retention_ms if times.unread_ms is None else times.unread_ms
        if min(read_ms, unread_ms) < UNSET or max(read_ms, unread_ms) > TIME_MS_MAX:
            raise BadRequestError(f"a retention is from 0 to {TIME_MS_MAX} ms")
        effective_ms = self._state.config.store.retention_ms if read_ms == UNSET else read_ms
        asked = (times.read_ms, times.unread_ms) != (None, None)
        if asked and unread_ms > 0 and not 0 < effective_ms <= unread_ms:
            raise BadRequestError(
                f"what is unread in topic {topic.name} must stay at least as long as what is read"
            )
        window_ms = times.dedup_window_ms
        if window_ms is None:
            window_ms = topic.dedup_window_ms
        elif window_ms != UNSET and not 1 <= window_ms <= TIME_MS_MAX:
            raise BadRequestError(f"a dedup window is from 1 to {TIME_MS_MAX} ms")
        return replace(
            topic,
            retention_ms=read_ms,
            unread_retention_ms=unread_ms,
            dedup_window_ms=window_ms,
        )

    def delete(self, name: str, now_ms: int) -> None:
        """Delete the topic, its messages, what is delayed for it and every group's progress."""
        topic = self._state.catalog.require_topic(name)
        payload = ConfigPayload(CONFIG_TOPIC, CONFIG_DELETE, topic.id, b"")
        self._journal.write(RecordType.CONFIG, payload, now_ms)

    def describe(self, name: str) -> TopicInfo:
        """Describe the topic. Raises TopicNotFoundError."""
        topic = self._state.catalog.require_topic(name)
        state = self._state
        groups = (
            state.catalog.group_by_id(group_id)
            for group_id, topic_id in state.subscriptions
            if topic_id == topic.id
        )
        return TopicInfo(
            topic=topic,
            queues=self.ends(topic),
            delayed_count=state.delayed_counts.get(topic.id, 0),
            groups=tuple(sorted(group.name for group in groups if group is not None)),
        )

    def ends(self, topic: Topic) -> tuple[QueueEnds, ...]:
        queues = (self._state.queue(topic.id, queue_id) for queue_id in range(topic.queue_count))
        return tuple(QueueEnds(queue.queue_id, queue.first, queue.next) for queue in queues)

    def oldest_ms(self, topic: Topic) -> int:
        """Return the time of day at which the oldest message in its queues was stored; 0: none."""
        queues = (self._state.queue(topic.id, queue_id) for queue_id in range(topic.queue_count))
        times = (queue.entered_ms(queue.first) for queue in queues if queue.first < queue.next)
        return self._state.wall.time_of_day(min(filter(None, times), default=0))

    def delayed_count(self, topic: Topic) -> int:
        """Count the messages accepted for the topic and not yet due."""
        return self._state.delayed_counts.get(topic.id, 0)

    def _check_share(self, user: User | None, now_ms: int) -> None:
        """Check a share. TooManyRequestsError: the user has its part, or the rest is for admins."""
        catalog = self._state.catalog
        most = self._state.config.catalog.topic_count_max
        self._shares.check(
            user, "topics", "catalog.topic_count_max", most, catalog.topic_count(),
            catalog.topics_made.get(key_of(user), 0) + self._fresh.unseen(key_of(user), now_ms),
        )  # fmt: skip

    def _plan(
        self,
        name: str,
        type: TopicType,
        queue_count: int,
        now_ms: int,
        *,
        counted: bool = True,
        made_by: str = "",
    ) -> Topic:
        state = self._state
        limit = state.config.catalog.topic_count_max
        if counted and state.catalog.topic_count() >= limit:
            raise TooManyRequestsError(f"topic {name} not created: {limit} topics is the limit")
        if queue_count:
            self._check_queue_count(queue_count)
            _check_lite(name, type, queue_count)
        topic_id = state.catalog.next_topic_id
        birth = state.store.log.uuid + topic_id.to_bytes(8, "little")
        return Topic(
            id=topic_id,
            name=name,
            type=type,
            queue_count=queue_count or self._queue_count(type),
            created_ms=state.wall.at(now_ms),
            epoch=hashlib.blake2b(birth, digest_size=8).hexdigest(),
            made_by=made_by,
        )

    def _queue_count(self, type: TopicType) -> int:
        catalog = self._state.config.catalog
        if type is TopicType.LITE:
            return 1
        if type is TopicType.PRIORITY:
            return min(PRIORITIES, catalog.queue_count_max)
        return catalog.default_queue_count

    def _put(self, topic: Topic, now_ms: int) -> None:
        payload = ConfigPayload(CONFIG_TOPIC, CONFIG_PUT, topic.id, encode_topic(topic))
        self._journal.write(RecordType.CONFIG, payload, now_ms)

    def _check_queue_count(self, queue_count: int) -> None:
        limit = self._state.config.catalog.queue_count_max
        if not 1 <= queue_count <= limit:
            raise BadRequestError(f"queue count {queue_count} is not within 1 to {limit}")


def _check_lite(name: str, type: TopicType, queue_count: int) -> None:
    if type is TopicType.LITE and queue_count != 1:
        raise BadRequestError(f"topic {name} of type lite has one queue, not {queue_count}")
