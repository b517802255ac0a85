"""What goes into the engine and what comes out of it.

Plain data; no behaviour. What services need of the rooms below the engine they import from here,
so that they know the engine alone. Times are milliseconds since the epoch, `_ms` durations
milliseconds.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from latermq_broker.catalog.access import User
from latermq_broker.catalog.catalog import Backoff as Backoff
from latermq_broker.catalog.catalog import Group as Group
from latermq_broker.catalog.catalog import OnDead as OnDead
from latermq_broker.catalog.catalog import Topic as Topic
from latermq_broker.catalog.catalog import TopicType as TopicType
from latermq_broker.delivery.failure import Failure as Failure
from latermq_broker.delivery.filters.filter import EVERYTHING as EVERYTHING
from latermq_broker.delivery.filters.filter import MessageFilter as MessageFilter
from latermq_broker.delivery.filters.filter import TagFilter as TagFilter
from latermq_broker.delivery.filters.filter import filter_of as filter_of
from latermq_broker.delivery.filters.filter import filter_text as filter_text
from latermq_broker.delivery.filters.filter import hash64 as hash64
from latermq_broker.delivery.filters.sql_filter import sql_filter as sql_filter
from latermq_broker.delivery.halves import HalfEvent as HalfEvent
from latermq_broker.delivery.history import Attempt as Attempt
from latermq_broker.delivery.history import Life, last_failure
from latermq_broker.delivery.retry import LADDER_STEPS_MAX as LADDER_STEPS_MAX
from latermq_broker.delivery.retry import backoff_ms as backoff_ms
from latermq_broker.schedule.levels import level_ms as level_ms
from latermq_broker.store.records.letter_records import DeadState as DeadState
from latermq_broker.store.records.message_records import NO_PRIORITY as NO_PRIORITY


class Outgoing(NamedTuple):
    """One message to store.

    rest: serialised v2.Message without topic (1) and system_properties (3).
    sys: serialised v2.SystemProperties with the store-side fields set and none of the delivery-only
        ones: receipt_handle, queue_id, queue_offset, invisible_duration, delivery_attempt,
        dead_letter_queue.
    """

    topic: str
    rest: bytes
    sys: bytes
    message_id: str
    tag: str = ""
    keys: tuple[str, ...] = ()
    deliver_at_ms: int = 0  # 0, past or now: at once
    delay_level: int = 0  # 1…: now + level, wins over deliver_at_ms
    first_check_ms: int = 0  # of a half message: from now; 0: the broker's default
    message_group: str = ""  # delivered in order to groups that keep it
    priority: int = NO_PRIORITY  # of a message without a message group
    lite_topic: str = ""  # of a topic of type LITE
    dedup_id: str = ""  # its sender's: of each, one message of the topic is stored in a window


class PlainMessages(NamedTuple):
    """Messages to store of one topic that enter a queue at once, in columns.

    They have no delay level, priority, lite topic or transaction.
    """

    topic: str
    ids: list[bytes]  # of the messages; UTF-8, as all texts here
    tags: list[bytes]  # empty: none
    keys: list[tuple[bytes, ...]]
    rest_bytes: list[int]
    sys_bytes: list[int]
    stored: list[bytes]  # `Outgoing.rest`, then `Outgoing.sys`
    message_groups: Sequence[str] = ()  # of each, as in `Outgoing`; (): none has one
    deliver_at_ms: Sequence[int] = ()  # likewise


class PlainSent(NamedTuple):
    """They stand one after another in one queue."""

    queue_id: int
    queue_offset: int  # of the first
    positions: Sequence[int]


class Sent(NamedTuple):
    position: int
    queue_id: int  # -1 while delayed
    queue_offset: int  # -1 while delayed
    due_ms: int  # 0: delivered at once
    pending_id: str  # names the wait; "" unless delayed
    transaction_id: str = ""  # of a half message
    first_id: str = ""  # it was not stored: the message id of the one that has its dedup id


class OrphanCheck(NamedTuple):
    """A question for a producer: how did this transaction end?"""

    transaction_id: str
    rest: bytes
    sys: bytes
    check: int  # the how manieth, from 1
    asked_client: str  # the producer asked before; ""


class ReceiveRequest(NamedTuple):
    group: str
    topic: str
    client_id: str
    count_max: int
    invisible_ms: int
    auto_renew: bool = False
    filter: MessageFilter = EVERYTHING
    attempt_id: str = ""  # names the try: the same again is answered with the same, if ordered
    user: User | None = None  # who asks, and makes what is not there yet
    single_file: bool = False  # at most one of each message group in a reply, if ordered
    lite_keys: frozenset[int] = frozenset()  # what the client of a group for lite topics reads
    bytes_max: int = 1 << 62  # of the messages together, if there are several
    wanted: tuple[MessageFilter, ...] = ()
    """Filters of the live consumers of the group on the topic; (): the receive's own alone."""
    waits: bool = False  # a later look of a receive that waits: it passes nothing over


class Delivered(NamedTuple):
    handle: str
    attempt: int
    queue_id: int
    queue_offset: int
    rest: bytes
    sys: bytes
    deadline_ms: int
    dead_origin_topic: str  # set when read from a %DLQ% topic; the message id is in `sys`


class Ready:
    """What may have become receivable; the edge wakes parked receives with it."""

    __slots__ = ("groups", "pairs", "topics")

    def __init__(
        self,
        topics: AbstractSet[str] = frozenset(),
        pairs: AbstractSet[tuple[str, str]] = frozenset(),
        groups: AbstractSet[str] = frozenset(),
    ) -> None:
        self.topics = topics  # for every group
        self.groups = groups  # that were made: on every topic
        self.pairs = pairs  # (group, topic)

    def __bool__(self) -> bool:
        return bool(self.topics or self.pairs or self.groups)


NOTHING_READY: Final = Ready()


class PendingKind(IntEnum):
    """Numbers are latermq.v1.PendingKind's."""

    DELAYED = 1
    BACKOFF = 2
    IN_FLIGHT = 3
    HALF = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingFilter:
    topic: str = ""
    group: str = ""
    kind: PendingKind | None = None
    due_before_ms: int = 0
    delay_level: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingItem:
    kind: PendingKind
    pending_id: str
    topic: str
    group: str
    due_ms: int
    stored_ms: int
    attempt: int
    max_attempts: int
    delay_level: int
    rest: bytes
    sys: bytes
    failure: Failure | None
    checks: int = 0  # of a half message: how often producers were asked
    checks_max: int = 0
    ready: bool = False  # of a retry: its wait is over, or it was given back
    client_id: str = ""  # who holds it, or had it last
    redriven_ms: int = 0  # of one without a due time, that nobody has held since; 0: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCount:
    kind: PendingKind
    topic: str
    group: str
    count: int
    next_due_ms: int = 0
    ready: int = 0  # of retries: those that are ready


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadFilter:
    message_ids: frozenset[str] = frozenset()
    queue_offsets: frozenset[int] = frozenset()
    signature: str = ""
    failure_class: str = ""
    origin_topic: str = ""
    reason: str = ""
    dead_after_ms: int = 0  # inclusive
    dead_before_ms: int = 0  # exclusive; 0: no bound
    state: DeadState | None = DeadState.DEAD  # None: any


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One letter. What its history tells is decoded when it is asked for."""

    group: str
    queue_offset: int
    origin_queue_id: int
    origin_offset: int
    reason: str  # attempts_exhausted | forwarded | rejected | filtered | sent
    attempt_count: int
    max_attempts: int
    dead_ms: int
    redrive_count: int
    redriven_ms: int
    parks: bool  # its message group stands still until it is redriven or dropped
    state: DeadState
    rest: bytes
    sys: bytes
    life: Life

    @property
    def origin_topic(self) -> str:
        return self.life.outline.origin_topic

    @property
    def signature(self) -> str:
        return self.life.outline.signature

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Return all attempts with their stacks, oldest first."""
        return self.life.whole

    @property
    def failure(self) -> Failure | None:
        """Return the last failure that was told, without its stack."""
        return last_failure(self.life.short)

    @property
    def first_failure_ms(self) -> int:
        return self.life.short[0].ended_ms if self.life.short else 0

    @property
    def last_failure_ms(self) -> int:
        return self.life.short[-1].ended_ms if self.life.short else 0


class QueueRow(NamedTuple):
    """One row of a bulk read."""

    queue_offset: int
    time_ms: int  # when it entered the queue
    rest: bytes
    sys: bytes
    dead: DeadLetter | None  # in %DLQ% topics, for letters the broker itself put there


class QueueEnds(NamedTuple):
    queue_id: int
    earliest_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    topic: Topic
    queues: tuple[QueueEnds, ...]
    delayed_count: int
    groups: tuple[str, ...]  # that have read it

    @property
    def message_count(self) -> int:
        return sum(ends.next_offset - ends.earliest_offset for ends in self.queues)


class TopicProgress(NamedTuple):
    topic: str
    ready_count: int
    in_flight_count: int
    backoff_count: int
    last_consumed_ms: int
    held_count: int = 0  # of `ready_count`: messages behind blocked message groups
    blocked_count: int = 0  # message groups that are in flight, in backoff or parked
    parked_count: int = 0  # of those
    oldest_unread_ms: int = 0  # when the oldest not given yet came into its queue; 0: there is none
    in_per_s: float = 0.0  # into the topic, over the last minute
    out_per_s: float = 0.0  # acknowledged by the group
    failed_per_s: float = 0.0  # its attempts that failed


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    group: Group
    topics: tuple[TopicProgress, ...]
    dead_letter_count: int
