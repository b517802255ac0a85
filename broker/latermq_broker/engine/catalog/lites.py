"""Lite topics from outside the core: the groups that read them, where they begin, when they end."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from latermq_broker.catalog.access import User
from latermq_broker.catalog.shares import maker
from latermq_broker.delivery.filters.filter import hash64
from latermq_broker.delivery.order.lite import LiteParent
from latermq_broker.engine.catalog.groups import GroupAdmin
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.state.model import Group, Topic, TopicType
from latermq_broker.engine.state.state import EngineState, lite_reader
from latermq_broker.errors import (
    IllegalGroupError,
    IllegalTopicError,
    LiteTopicQuotaError,
)
from latermq_broker.store.records.lite_records import LITE_CURSOR, LITE_EXPIRED, LitePayload
from latermq_broker.store.records.record import RecordType

EXPIRED_AT_ONCE: Final = 256  # lite topics that one tick lets go
IDLE_LOOK_MS: Final = 1_000  # they are looked for so often


class Begin(Enum):
    """Where a new subscription begins."""

    FIRST = auto()  # the oldest message that is retained
    END = auto()  # with what is sent from now on
    LAST = auto()  # where the group is
    OFFSET = auto()  # at an offset of the parent's queue, its end at the latest
    TAIL = auto()  # so many messages before where the group is


@dataclass(frozen=True, slots=True)
class Beginning:
    begin: Begin
    number: int = 0  # of OFFSET and TAIL


class LiteTopicRow(NamedTuple):
    name: str
    unread_count: int
    live_count: int  # given to the group and not done
    oldest_ms: int  # since when the oldest unread one is there; 0: none is


def lite_key(name: str) -> int:
    """Compute what names a lite topic in the core; never 0 for a name that is not empty."""
    return hash64(name)


class Lites:
    def __init__(self, state: EngineState, journal: Journal, groups: GroupAdmin) -> None:
        self._state = state
        self._journal = journal
        self._groups = groups
        self._looked_ms = 0

    # --- topics and groups ---------------------------------------------------------------------

    def parent(self, name: str) -> Topic:
        """Return the parent. Raises TopicNotFoundError, IllegalTopicError (of another type)."""
        topic = self._state.catalog.require_topic(name)
        if topic.type is not TopicType.LITE:
            raise IllegalTopicError(
                f"topic {name} of type {topic.type.name} has no lite topics: "
                f"make one with type lite"
            )
        return topic

    def check_group(self, name: str, parent: str) -> Group | None:
        """Find the group, which must read lite topics of this parent; None: it is not there yet.

        Raises IllegalGroupError (one that reads whole topics), IllegalTopicError (bound to another
        parent).
        """
        group = self._state.catalog.group(name)
        if group is None:
            return None
        if not group.lite_parent:
            raise IllegalGroupError(f"group {name} reads whole topics, not lite topics")
        if group.lite_parent != parent:
            raise IllegalTopicError(
                f"group {name} reads lite topics of {group.lite_parent}, not of {parent}"
            )
        return group

    def bind(self, name: str, parent: str, now_ms: int, user: User | None = None) -> Group:
        """Find the group, or make it on first use, by `user`, where the configuration allows.

        Raises as `parent` and `check_group`; GroupNotFoundError, TooManyRequestsError.
        """
        group = self.check_bind(name, parent, user, now_ms)
        if group is not None:
            return group
        group = self._groups.create(
            name, fifo=True, max_attempts=0, backoff=None, now_ms=now_ms, lite_parent=parent,
            made_by=maker(user),
        )  # fmt: skip
        self._groups.fresh.note(group.made_by, now_ms)
        return group

    def check_bind(self, name: str, parent: str, user: User | None, now_ms: int) -> Group | None:
        """Find the group; None: first use may make it. Raises as `bind`, which then does not."""
        self.parent(parent)
        self._groups.check_use(name, user, now_ms)
        return self.check_group(name, parent)

    def check_room(self, topic: Topic, names: Iterable[str]) -> None:
        """Check that the parent has room for these lite topics. Raises LiteTopicQuotaError."""
        parent = self._state.lites.get(topic.id)
        known = parent.topics if parent is not None else {}
        limit = self._state.config.lite.topics_per_parent_max
        new = {name for name in names if lite_key(name) not in known}
        if new and len(known) + len(new) > limit:
            raise LiteTopicQuotaError(
                f"topic {topic.name} has {len(known)} lite topics, at most {limit} are allowed"
            )

    # --- progress ------------------------------------------------------------------------------

    def begin(self, group: Group, names: Iterable[str], beginning: Beginning, now_ms: int) -> None:
        """Begin these lite topics there for the group; what it was given and not done is void."""
        topic = self.parent(group.lite_parent)
        parent = self._state.lites.get(topic.id)
        if parent is None or beginning.begin is Begin.LAST:
            return
        rows: list[tuple[int, int]] = []
        for name in names:
            key = lite_key(name)
            offset = self._offset(group, parent, key, beginning)
            if offset is not None and key in parent.topics:
                rows.append((key, offset))
        if rows:
            payload = LitePayload(LITE_CURSOR, group.id, topic.id, tuple(rows))
            self._journal.write(RecordType.LITE, payload, now_ms)

    def _offset(
        self, group: Group, parent: LiteParent, key: int, beginning: Beginning
    ) -> int | None:
        """Find where in a lite topic a group is to begin; None: it stays where it is."""
        match beginning.begin:
            case Begin.FIRST:
                return 0
            case Begin.END:
                return parent.end
            case Begin.OFFSET:
                return min(beginning.number, parent.end)
            case _:
                reader = parent.readers.get(group.id)
                if reader is None or key not in reader.cursors or key not in parent.topics:
                    return None
                return parent.topics[key].before(reader.cursors[key], beginning.number)

    def waits(self, group_name: str, topic_name: str, keys: frozenset[int]) -> bool:
        """Tell whether something may be there for a client of the group that subscribes to them."""
        group = self._state.catalog.group(group_name)
        topic = self._state.catalog.topic(topic_name)
        if group is None or topic is None:
            return False  # a receive makes neither
        subscription = self._state.subscriptions.get((group.id, topic.id))
        if subscription is None:
            return True  # its first receive, which writes down that it reads the topic
        reader = lite_reader(self._state, subscription)
        return reader is not None and reader.waits(keys)

    def row(self, group: Group, name: str) -> LiteTopicRow | None:
        """Describe one lite topic as the group has it; None: there is no such lite topic."""
        topic = self._state.catalog.topic(group.lite_parent)
        parent = self._state.lites.get(topic.id) if topic is not None else None
        key = lite_key(name)
        if topic is None or parent is None or key not in parent.topics:
            return None
        subscription = self._state.subscriptions.get((group.id, topic.id))
        reader = parent.reader(group.id)
        first = next(parent.topics[key].since(reader.next(key)), -1)
        gate = subscription.gate if subscription is not None else None
        live = gate.groups[key].live if gate is not None and key in gate.groups else []
        return LiteTopicRow(
            name=name,
            unread_count=reader.unread(key),
            live_count=len(live),
            oldest_ms=self._state.queue(topic.id, 0).get(first).time_ms if first >= 0 else 0,
        )

    def count(self, topic: Topic) -> int:
        """Count the lite topics of a parent."""
        parent = self._state.lites.get(topic.id)
        return len(parent.topics) if parent is not None else 0

    # --- expiry --------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Let go of lite topics to which nothing was sent for too long, a bounded number."""
        idle_ms = self._state.config.lite.topic_idle_ms_max
        if not idle_ms or now_ms - self._looked_ms < IDLE_LOOK_MS:
            return
        left = EXPIRED_AT_ONCE
        for topic_id, parent in self._state.lites.items():
            rows = parent.idle(now_ms - idle_ms, left)
            if rows:
                payload = LitePayload(LITE_EXPIRED, 0, topic_id, tuple(rows))
                self._journal.write(RecordType.LITE, payload, now_ms)
                left -= len(rows)
            if not left:
                return
        self._looked_ms = now_ms

    def next_deadline_ms(self) -> int | None:
        """Tell when the next lite topic may have been idle for too long; None: never."""
        idle_ms = self._state.config.lite.topic_idle_ms_max
        if not idle_ms or not any(parent.topics for parent in self._state.lites.values()):
            return None
        return self._looked_ms + IDLE_LOOK_MS
