"""Everything the engine knows: derived from the log, rebuilt by replay, saved in checkpoints.

Data and look-ups. Changed only by `journal/apply_*.py`, except what is marked "live": hints that
recovery may lose.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from latermq_broker.catalog.access import Users
from latermq_broker.catalog.catalog import Catalog
from latermq_broker.catalog.declarations import Declarations
from latermq_broker.catalog.limits import Limits
from latermq_broker.catalog.schedules import Schedules
from latermq_broker.config.config import Config, OnCorrupt
from latermq_broker.delivery.halves import HalfMessages
from latermq_broker.delivery.leases.lease import State
from latermq_broker.delivery.leases.leases import Leases
from latermq_broker.delivery.leases.receipt_handle import ReceiptHandles
from latermq_broker.delivery.leases.recently_done import RecentlyDone
from latermq_broker.delivery.order.fifo import FifoGate, Letter
from latermq_broker.delivery.order.lane import Lane, RankedLanes
from latermq_broker.delivery.order.lite import LiteParent, LiteReader
from latermq_broker.delivery.order.spans import Spans
from latermq_broker.engine.state.conditions import Conditions
from latermq_broker.engine.state.dedup_ids import DedupIds
from latermq_broker.engine.state.figures import Figures
from latermq_broker.engine.state.group_flow import Flow
from latermq_broker.engine.state.hearing import Hearing
from latermq_broker.engine.state.letter_states import LetterStates
from latermq_broker.engine.state.lives import Lives
from latermq_broker.engine.state.model import NOTHING_READY, Ready, Topic, TopicType
from latermq_broker.engine.state.rewinds import Rewinds
from latermq_broker.engine.state.segment_use import SegmentUses
from latermq_broker.engine.state.timers_moved import TimersMoved
from latermq_broker.engine.state.wall_clock import WallClock
from latermq_broker.errors import (
    CorruptRecordError,
    DamagedQueueError,
    StoreError,
    StoreReadOnlyError,
)
from latermq_broker.schedule.timer import Timer
from latermq_broker.store.derived.consume_queue import ConsumeQueue
from latermq_broker.store.records.kinds import check_read
from latermq_broker.store.records.lease_records import decode_client
from latermq_broker.store.records.message_records import NO_PRIORITY
from latermq_broker.store.records.record import Record, RecordType
from latermq_broker.store.records.retention_records import original
from latermq_broker.store.store import Store

log = logging.getLogger("latermq.engine")

DEDUP_SEGMENT_SHARE: Final = 4  # ids have a quarter: a BASE record has all, in one segment
DAMAGED_REMEMBERED_MAX: Final = 1 << 16  # positions; more damaged messages are not counted


class Stamp(NamedTuple):
    """What a record's header adds to its payload."""

    position: int
    store_ms: int
    length: int  # of the record: header and payload


class Applied(NamedTuple):
    """How records of one type change the state; each function takes a payload and its stamp.

    What it returns is for who wrote the record: what it made.
    """

    apply: Callable[[Any, Stamp], Any]
    headless: Callable[[Any, Stamp], Any] | None = None
    """What of it counts while replay has no state yet (`store/dropped.py`); None: nothing."""


Appliers = Mapping[RecordType, Applied]  # what an apply module says of the types it knows


class Subscription:
    """One group's progress on one topic."""

    __slots__ = (
        "_leased",
        "ahead",
        "counts",
        "cursors",
        "flow",
        "gate",
        "group_id",
        "last_consumed_ms",
        "lite",
        "looked",
        "owed",
        "ready",
        "rewinds",
        "topic_id",
        "turn",
        "wanted",
        "wanted_now",
    )

    def __init__(
        self, group_id: int, topic_id: int, ready: Lane | RankedLanes, leased: dict[int, int]
    ) -> None:
        self.group_id = group_id
        self.topic_id = topic_id
        self.gate: FifoGate | None = None  # once it had to keep an order
        self.lite: LiteReader | None = None  # its progress, if it reads lite topics
        self.cursors: dict[int, int] = {}  # queue id → next offset; absent: earliest retained
        self.ahead: dict[int, Spans] = {}
        """Queue id → what is done with behind the next offset, which another consumer wants."""
        self.wanted: tuple[str, ...] = ()  # filters of its consumers, as texts; (): everything
        self.ready = ready  # its deliveries that are READY, but those of a message group
        self.counts = {State.READY: 0, State.LEASED: 0, State.BACKOFF: 0, State.ACKED: 0}
        self._leased = leased  # the state's: its group's, of all topics
        self.last_consumed_ms = 0
        self.rewinds = Rewinds()
        self.flow: Flow | None = None  # live: once it did something since the start
        self.turn = 0  # live: which lane and which queue goes first
        self.owed: dict[int, int] = {}
        """Live: lower priority → thousandths of messages that higher ones took of its share."""
        self.wanted_now: object = None  # live: the filters that `wanted` was last compared with
        self.looked: dict[tuple[object, int], int] = {}
        """Live: (filter, queue id) → below it nothing is left that the filter wants; filter None:
        below it all that is left is wanted by some consumer."""

    def count(self, state: State, change: int) -> None:
        """Add to how many deliveries are in a state; what is leased is its group's as well."""
        self.counts[state] += change
        assert self.counts[state] >= 0
        if state is State.LEASED:
            held = self._leased.get(self.group_id, 0) + change
            assert held >= self.counts[state]
            if held:
                self._leased[self.group_id] = held
            else:
                self._leased.pop(self.group_id, None)

    def move(self, queue_id: int, offset: int) -> None:
        """Go on at `offset` of a queue, or behind what is done with there."""
        spans = self.ahead.get(queue_id)
        if spans is not None:
            offset = spans.after(offset)
            spans.drop_below(offset)
            if not len(spans):
                del self.ahead[queue_id]
        self.cursors[queue_id] = offset

    def pass_ahead(self, queue_id: int, start: int, end: int) -> None:
        """Be done with `start` … `end` - 1 of a queue, whatever stands before them."""
        self.ahead.setdefault(queue_id, Spans()).add(start, end)

    def count_unread(self, queue_id: int, cursor: int, end: int) -> int:
        """Count what the group was not given of a queue from its next offset on, below `end`."""
        spans = self.ahead.get(queue_id)
        done = spans.count_from(cursor) - spans.count_from(end) if spans is not None else 0
        return max(0, end - cursor - done)

    def begin_anew(self, queue_id: int, offset: int) -> None:
        """Go on at `offset` of a queue, and with all behind it, as if nothing had been given."""
        self.ahead.pop(queue_id, None)
        self.looked.clear()
        self.cursors[queue_id] = offset

    def unread_from(self, queue_id: int) -> int:
        """Find the oldest offset that the group may not have been given yet, as far as written."""
        if self.lite is not None:
            return self.lite.first_unread()
        cursor = self.cursors.get(queue_id, 0)
        held = self.gate.first_held(queue_id) if self.gate is not None else None
        return cursor if held is None else min(cursor, held)

    def flowing(self) -> Flow:
        """Return the figures of this life, made when there is something to count."""
        if self.flow is None:
            self.flow = Flow()
        return self.flow

    def ordered(self) -> FifoGate:
        """Return the gate, made when it is first needed."""
        if self.gate is None:
            self.gate = FifoGate()
        return self.gate


class Announced:
    """What became receivable since somebody asked last."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.topics: set[int] = set()  # for every group
        self.groups: set[str] = set()  # that were made
        self._pairs: set[tuple[int, int]] = set()

    def __bool__(self) -> bool:
        return bool(self.topics) or bool(self._pairs) or bool(self.groups)

    def add(self, subscription: Subscription) -> None:
        """Note that something became receivable for one group."""
        self._pairs.add((subscription.group_id, subscription.topic_id))

    def add_named(self, group_name: str, topic_name: str) -> None:
        """Note that something is receivable still for a group, if both are there."""
        group, topic = self._catalog.group(group_name), self._catalog.topic(topic_name)
        if group is not None and topic is not None:
            self._pairs.add((group.id, topic.id))

    def take(self) -> Ready:
        """Name what was announced since the last call."""
        if not self:
            return NOTHING_READY
        topics: set[str] = set()
        pairs: set[tuple[str, str]] = set()
        catalog = self._catalog
        for topic_id in self.topics:
            topic = catalog.topic_by_id(topic_id)
            if topic is not None:
                topics.add(topic.name)
        for group_id, topic_id in self._pairs:
            group, topic = catalog.group_by_id(group_id), catalog.topic_by_id(topic_id)
            if group is not None and topic is not None:
                pairs.add((group.name, topic.name))
        groups = frozenset(self.groups)
        self.topics.clear()
        self._pairs.clear()
        self.groups.clear()
        return Ready(topics, pairs, groups)


class Damaged:
    """Messages that cannot be read: each is said and counted once, the first so many."""

    def __init__(self, store: Store, on_corrupt: OnCorrupt) -> None:
        self._log = store.log
        self._on_corrupt = on_corrupt
        self._positions: set[int] = set()
        self._queues: set[str] = set()  # what of their files is damaged

    def __len__(self) -> int:
        return len(self._positions)

    def give_up(self, error: CorruptRecordError) -> None:
        """Say that nothing of a message is delivered; the others go on.

        Raises StoreReadOnlyError: the broker is to stop instead, `store.on_corrupt`.
        """
        self.note(error)
        if self._on_corrupt is OnCorrupt.STOP:
            self._log.void(f"stopped at a damaged message, as store.on_corrupt says: {error}")
            raise StoreReadOnlyError(str(error))

    def note(self, error: CorruptRecordError) -> None:
        """Say that a message is damaged, to whose reader the others are shown."""
        if error.position in self._positions:
            return
        if len(self._positions) < DAMAGED_REMEMBERED_MAX:
            self._positions.add(error.position)
        log.error(
            "message damaged, given up",
            extra={"position": error.position, "reason": error.reason},
        )

    def note_queue(self, error: DamagedQueueError) -> None:
        """Say that a queue cannot be read, and that it is left as it is."""
        if str(error) not in self._queues:
            self._queues.add(str(error))
            log.error(
                "queue damaged, left as it is until a restart makes it anew",
                extra={"reason": str(error)},
            )


class QueueTurns:
    """Which queue of a topic is next."""

    def __init__(self) -> None:
        self._turns: dict[int, int] = {}  # topic id → messages so far

    def next_queue(self, topic: Topic, order_key: int = 0, priority: int = NO_PRIORITY) -> int:
        """Take the queues in turn; a message group has its own, and so has a priority in a topic
        of that type."""
        if topic.type is TopicType.PRIORITY:
            return topic.queue_of_priority(priority)
        if order_key:
            return topic.queue_of(order_key)
        turn = self._turns.get(topic.id, 0)
        self._turns[topic.id] = turn + 1
        return turn % topic.queue_count

    def forget(self, topic_id: int) -> None:
        self._turns.pop(topic_id, None)


class Clients:
    """Client ids, and the positions of the CLIENT records that stand for them; bounded."""

    def __init__(self, store: Store, count_max: int) -> None:
        self._log = store.log
        self._count_max = count_max
        self._positions: OrderedDict[str, int] = OrderedDict()  # the oldest record first
        self._names: dict[int, str] = {}

    def position(self, client_id: str) -> int | None:
        return self._positions.get(client_id)

    def known(self, position: int) -> str:
        """Return the client id of a record; empty when it is not at hand."""
        return self._names.get(position, "")

    def name(self, position: int) -> str:
        """Look up the client id of a record, also in the log; empty when it is not there either."""
        name = self._names.get(position)
        if name is None:
            try:
                name = decode_client(self._log.read(position).payload)
            except StoreError:
                name = ""
        return name

    def put(self, client_id: str, position: int) -> None:
        """Remember a new record; at the bound the oldest is forgotten."""
        self._positions[client_id] = position
        self._names[position] = client_id
        if len(self._positions) > self._count_max:
            _, oldest = self._positions.popitem(last=False)
            self._names.pop(oldest, None)

    def snapshot(self) -> list[tuple[str, int]]:
        return list(self._positions.items())

    def restore(self, known: Mapping[str, int]) -> None:
        """Know what a snapshot knew, also beyond a bound that was lowered since."""
        for client_id, position in known.items():
            self._positions[client_id] = position
            self._names[position] = client_id


class EngineState:
    def __init__(self, store: Store, config: Config) -> None:
        self.store = store
        self.config = config
        self.catalog = Catalog()
        self.users = Users()
        self.limits = Limits()
        self.schedules = Schedules()
        self.declarations = Declarations()
        self.leases = Leases()
        self.timer = Timer(config.store.bounds.timer)
        self.lites: dict[int, LiteParent] = {}  # by topic id, once something was sent to one
        self.halves = HalfMessages(
            config.transaction.ended_remembered_max, config.transaction.checks_max
        )
        self.subscriptions: dict[tuple[int, int], Subscription] = {}
        self.leased: dict[int, int] = {}
        """Group id → messages that it holds leased, of all topics. None: absent."""
        self.dead: dict[int, LetterStates] = {}  # by dead-letter topic id
        self.parking: dict[Letter, tuple[int, int, int]] = {}
        """Letters that park a message group: group id, topic id, order key."""
        self.uses = SegmentUses(store.log)
        self.timers_moved = TimersMoved()
        self.delayed_counts: dict[int, int] = {}  # topic id → messages not yet due
        share = config.store.segment_bytes // DEDUP_SEGMENT_SHARE
        self.dedup = DedupIds(min(config.dedup.bytes_max, share))
        self.clients = Clients(store, config.delivery.client_names_max)
        self.recently_done = RecentlyDone(config.delivery.done_handles_max)
        self.handles = ReceiptHandles(store.log.uuid)
        self.lost_at = 0
        """Position of the last LOST record that replay met: there, records are missing. 0: none."""
        # live:
        self.counts_flow = False  # once replay is over
        self.timers_touched: set[int] | None = None
        """While a segment is rolled forward: positions whose timers fired or changed meanwhile."""
        self.announced = Announced(self.catalog)
        self.turns = QueueTurns()
        self.damaged = Damaged(store, config.store.on_corrupt)
        self.wall = WallClock()
        self.lives = Lives()
        self.hearing = Hearing()
        self.figures = Figures()
        self.conditions = Conditions()

    def queue(self, topic_id: int, queue_id: int) -> ConsumeQueue:
        return self.store.queue(topic_id, queue_id)

    def read(self, position: int) -> Record:
        """Read the record of a message, an attempt or a letter; of a moved message the original.

        Raises CorruptRecordError.
        """
        stored = self.store.log.read(position)
        if stored.epoch == self.store.log.epoch:
            record = original(stored)
        else:  # of an earlier life, or of somebody else
            check_read(stored)
            record = original(stored)
            check_read(record)
        if record.type is RecordType.LOST:
            raise CorruptRecordError(position, "it was damaged and is given up")
        return record

    def is_gone(self, position: int) -> bool:
        """Replay without a state: the record lies in a segment that was dropped."""
        return self.store.dropped.headless and position < self.store.log.start

    def subscription(self, group_id: int, topic_id: int) -> Subscription:
        key = (group_id, topic_id)
        subscription = self.subscriptions.get(key)
        if subscription is None:
            topic = self.catalog.topic_by_id(topic_id)
            ranked = topic is not None and topic.type is TopicType.PRIORITY
            lanes = RankedLanes(self.leases) if ranked else Lane(self.leases)
            subscription = Subscription(group_id, topic_id, lanes, self.leased)
            self.subscriptions[key] = subscription
        return subscription

    def cursor(self, subscription: Subscription, queue: ConsumeQueue) -> int:
        """Return the group's next offset on the queue, never below what is retained."""
        if (reader := lite_reader(self, subscription)) is not None:
            return reader.first_unread()
        queue_id = queue.queue_id
        read = max(queue.first, subscription.cursors.get(queue_id, 0))
        spans = subscription.ahead.get(queue_id)
        return read if spans is None else spans.after(read)


def is_done_ahead(subscription: Subscription, queue_id: int, offset: int) -> bool:
    """Tell whether a group was given an offset behind its next one, or nobody of it wants that."""
    spans = subscription.ahead.get(queue_id)
    return spans is not None and spans.holds(offset)


def lite_reader(state: EngineState, subscription: Subscription) -> LiteReader | None:
    """Find how far the group is on the lite topics of its topic.

    None: it reads whole topics, or nothing was ever sent to a lite topic of this one.
    """
    if subscription.lite is None and subscription.topic_id in state.lites:
        group = state.catalog.group_by_id(subscription.group_id)
        if group is not None and group.lite_parent:
            subscription.lite = state.lites[subscription.topic_id].reader(group.id)
    return subscription.lite


def first_unread(state: EngineState, subscription: Subscription, queue_id: int) -> int:
    """Find the oldest offset that the group was not given yet: the next, or the first held back."""
    cursor = state.cursor(subscription, state.queue(subscription.topic_id, queue_id))
    held = subscription.gate.first_held(queue_id) if subscription.gate is not None else None
    return cursor if held is None else min(cursor, held)
