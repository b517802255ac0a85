"""Topics and consumer groups: what exists, under which id, with which policy.

Owns the in-memory catalogue. It is changed only by CONFIG records, live and in replay alike; no id
is ever given twice. Never creates anything by itself: that is the engine's.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from latermq_broker.callbacks import ignore
from latermq_broker.catalog.shares import count_up
from latermq_broker.errors import GroupNotFoundError, TopicNotFoundError

DLQ_PREFIX: Final = "%DLQ%"
RETRY_PREFIX: Final = "%RETRY%"  # names what a group will be given again; no topic stands behind
INTERNAL_PREFIXES: Final = (DLQ_PREFIX, RETRY_PREFIX)
UNSET: Final = -1  # of a topic's setting: what holds for all of them
TOPICS: Final = "topics"
GROUPS: Final = "groups"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"  # the classic name of what is delayed


class TopicType(IntEnum):
    """Numbers are latermq.v1.TopicType's and, up to PRIORITY, those of v2.MessageType."""

    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    LITE = 5
    PRIORITY = 6
    MIXED = 7


class OnDead(IntEnum):
    """What a message group does, in a group that keeps the order, when one of it dies."""

    SKIP = 1  # goes on with the next
    PARK = 2  # stands still until the letter is redriven or dropped


class BackoffKind(IntEnum):
    LADDER = 1
    EXPONENTIAL = 2
    FIXED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long a failed message waits before its next attempt; `delivery/retry.py` computes it."""

    kind: BackoffKind
    delays_ms: tuple[int, ...] = ()  # ladder; fixed: one entry
    initial_ms: int = 0
    max_ms: int = 0
    multiplier: float = 0.0
    jitter: float = 0.0  # 0…1


WEIGHT_MAX: Final = 100


class TopicTimes(NamedTuple):
    """How long a topic's messages are to stay, and their dedup ids to count.

    None leaves a time as it is, UNSET takes it away.
    """

    read_ms: int | None = None
    unread_ms: int | None = None
    dedup_window_ms: int | None = None


AS_THEY_ARE: Final = TopicTimes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    id: int
    name: str
    type: TopicType
    queue_count: int
    created_ms: int
    epoch: str  # creation id, 16 hex digits: another one when a topic is deleted and made anew
    ordered_queue_count: int = 0  # as many as at its creation; 0: it never got more
    made_by: str = ""  # access key of the user whose first use made it; "": nobody's share
    retention_ms: int = UNSET  # of what every group has read; 0: for ever
    unread_retention_ms: int = UNSET  # of what one has not; 0: until the disk is nearly full
    dedup_window_ms: int = UNSET  # of ids that are given from now on

    @property
    def internal(self) -> bool:
        return self.name.startswith(DLQ_PREFIX)

    def dedup_window(self, usual_ms: int) -> int:
        """Tell for how long a dedup id counts that is given now; `usual_ms`: the broker's."""
        return usual_ms if self.dedup_window_ms == UNSET else self.dedup_window_ms

    def queue_of(self, order_key: int) -> int:
        """Pick a message group's queue: the same for ever, when the topic gets more queues too."""
        return order_key % (self.ordered_queue_count or self.queue_count)

    def queue_of_priority(self, priority: int) -> int:
        """Pick a priority's queue in a topic of type PRIORITY; those above the last share it."""
        return min(max(priority, 0), self.queue_count - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    id: int
    name: str
    fifo: bool
    max_attempts: int  # deliveries, the first included
    backoff: Backoff | None  # None: the broker's ladder, offered to push consumers
    created_ms: int
    on_dead: OnDead = OnDead.SKIP  # in a fifo group
    lite_parent: str = ""  # the topic whose lite topics it reads; it is a fifo group then
    lite_exclusive: bool = False  # a lite topic goes to the client that subscribed last
    forgotten: tuple[tuple[int, int], ...] = ()
    """(topic id, when its subscription was deleted), the oldest first; see `GroupAdmin.forget`."""
    made_by: str = ""  # as of a topic
    weight: int = 1  # its share of a turn beside those of other groups, to WEIGHT_MAX

    @property
    def dead_letter_topic(self) -> str:
        return DLQ_PREFIX + self.name


def encode_topic(topic: Topic) -> bytes:
    """Encode the JSON body of a CONFIG record that puts a topic."""
    return _dump(_topic_fields(topic))


def decode_topic(body: bytes) -> Topic:
    fields = json.loads(body)
    return Topic(**{**fields, "type": TopicType(fields["type"])})


def encode_group(group: Group) -> bytes:
    """Encode the JSON body of a CONFIG record that puts a group."""
    return _dump(_group_fields(group))


def decode_group(body: bytes) -> Group:
    fields = json.loads(body)
    backoff = fields["backoff"]
    if backoff is not None:
        kind = BackoffKind(backoff["kind"])
        delays_ms = tuple(backoff["delays_ms"])
        fields["backoff"] = Backoff(**{**backoff, "kind": kind, "delays_ms": delays_ms})
    on_dead = OnDead(fields.get("on_dead", OnDead.SKIP))
    forgotten = tuple((topic_id, at_ms) for topic_id, at_ms in fields.get("forgotten", ()))
    return Group(**{**fields, "on_dead": on_dead, "forgotten": forgotten})


def _topic_fields(topic: Topic) -> dict[str, Any]:
    fields = asdict(topic)
    if not topic.made_by:
        del fields["made_by"]
    for name in ("retention_ms", "unread_retention_ms", "dedup_window_ms"):
        if fields[name] == UNSET:
            del fields[name]
    return fields


def _group_fields(group: Group) -> dict[str, Any]:
    fields = asdict(group)
    if not group.forgotten:
        del fields["forgotten"]
    if not group.made_by:
        del fields["made_by"]
    if group.weight == 1:
        del fields["weight"]
    return fields


def _dump(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


class Catalog:
    """All topics and groups, by name and by id.

    `on_change` is told the kind, TOPICS or GROUPS, and the name of each that is put or removed.
    """

    def __init__(self) -> None:
        self.on_change: Callable[[str, str], None] = ignore
        self._topics: dict[int, Topic] = {}
        self._topic_names: dict[str, Topic] = {}
        self._groups: dict[int, Group] = {}
        self._group_names: dict[str, Group] = {}
        self.topics_made: dict[str, int] = {}  # by access key
        self.groups_made: dict[str, int] = {}
        self.next_topic_id = 1
        self.next_group_id = 1
        self.version = 0  # another one after every change

    def topic(self, name: str) -> Topic | None:
        return self._topic_names.get(name)

    def require_topic(self, name: str) -> Topic:
        """Find a topic that is asked for by name. Raises TopicNotFoundError."""
        topic = self._topic_names.get(name)
        if topic is None:
            raise TopicNotFoundError(name)
        return topic

    def topic_by_id(self, topic_id: int) -> Topic | None:
        return self._topics.get(topic_id)

    def topics(self) -> list[Topic]:
        """Return the topics by name."""
        return sorted(self._topics.values(), key=lambda topic: topic.name)

    def topic_count(self) -> int:
        return len(self._topics)

    def group(self, name: str) -> Group | None:
        return self._group_names.get(name)

    def require_group(self, name: str) -> Group:
        """Find a group that is asked for by name. Raises GroupNotFoundError."""
        group = self._group_names.get(name)
        if group is None:
            raise GroupNotFoundError(name)
        return group

    def group_by_id(self, group_id: int) -> Group | None:
        return self._groups.get(group_id)

    def groups(self) -> list[Group]:
        """Return the groups by name."""
        return sorted(self._groups.values(), key=lambda group: group.name)

    def group_count(self) -> int:
        return len(self._groups)

    def put_topic(self, topic: Topic) -> None:
        if (known := self._topics.get(topic.id)) is not None:
            count_up(self.topics_made, known.made_by, -1)
        count_up(self.topics_made, topic.made_by)
        self._topics[topic.id] = topic
        self._topic_names[topic.name] = topic
        self.next_topic_id = max(self.next_topic_id, topic.id + 1)
        self._changed(TOPICS, topic.name)

    def remove_topic(self, topic_id: int) -> Topic | None:
        topic = self._topics.pop(topic_id, None)
        if topic is not None:
            del self._topic_names[topic.name]
            count_up(self.topics_made, topic.made_by, -1)
            self._changed(TOPICS, topic.name)
        return topic

    def put_group(self, group: Group) -> None:
        if (known := self._groups.get(group.id)) is not None:
            count_up(self.groups_made, known.made_by, -1)
        count_up(self.groups_made, group.made_by)
        self._groups[group.id] = group
        self._group_names[group.name] = group
        self.next_group_id = max(self.next_group_id, group.id + 1)
        self._changed(GROUPS, group.name)

    def remove_group(self, group_id: int) -> Group | None:
        group = self._groups.pop(group_id, None)
        if group is not None:
            del self._group_names[group.name]
            count_up(self.groups_made, group.made_by, -1)
            self._changed(GROUPS, group.name)
        return group

    def _changed(self, kind: str, name: str) -> None:
        self.version += 1
        self.on_change(kind, name)

    def snapshot(self) -> bytes:
        return _dump(
            {
                "topics": [_topic_fields(topic) for topic in self.topics()],
                "groups": [_group_fields(group) for group in self.groups()],
                "next_topic_id": self.next_topic_id,
                "next_group_id": self.next_group_id,
            }
        )

    def restore(self, section: bytes) -> None:
        fields = json.loads(section)
        for topic in fields["topics"]:
            self.put_topic(decode_topic(_dump(topic)))
        for group in fields["groups"]:
            self.put_group(decode_group(_dump(group)))
        self.next_topic_id = fields["next_topic_id"]
        self.next_group_id = fields["next_group_id"]


def consumer_group_of(dlq_topic: str) -> str | None:
    """Name the group whose dead letters a `%DLQ%` topic holds; None: it is no such topic."""
    return dlq_topic[len(DLQ_PREFIX) :] if dlq_topic.startswith(DLQ_PREFIX) else None
