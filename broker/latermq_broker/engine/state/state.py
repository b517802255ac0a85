"""Everything the engine knows: derived from the log, rebuilt by replay, saved in checkpoints.

Changed only by `apply_*.py`, except what is marked "live": hints that recovery may lose.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from latermq_broker.catalog.access import Users
from latermq_broker.catalog.catalog import Catalog
from latermq_broker.catalog.limits import Limits
from latermq_broker.config.config import Config, OnCorrupt
from latermq_broker.delivery.halves import HalfMessages
from latermq_broker.delivery.leases.lease import IN_HAND, Delivery, State
from latermq_broker.delivery.leases.leases import Leases
from latermq_broker.delivery.leases.receipt_handle import ReceiptHandles
from latermq_broker.delivery.leases.recently_done import RecentlyDone
from latermq_broker.delivery.order.fifo import FifoGate, Letter
from latermq_broker.delivery.order.lane import Lane, RankedLanes
from latermq_broker.delivery.order.lite import LiteParent, LiteReader
from latermq_broker.engine.state.figures import Figures
from latermq_broker.engine.state.letter_states import LetterStates
from latermq_broker.engine.state.model import Ready, Topic, TopicType
from latermq_broker.engine.state.segment_use import SegmentUses
from latermq_broker.engine.state.timers_moved import TimersMoved
from latermq_broker.errors import CorruptRecordError, StoreError, StoreReadOnlyError
from latermq_broker.schedule.timer import Timer
from latermq_broker.store.derived.consume_queue import ConsumeQueue, Entry
from latermq_broker.store.records.lease_records import decode_client
from latermq_broker.store.records.message_records import NO_PRIORITY
from latermq_broker.store.records.record import Record, RecordType
from latermq_broker.store.records.retention_records import original
from latermq_broker.store.store import Store

log = logging.getLogger("latermq.engine")

DAMAGED_REMEMBERED_MAX: Final = 1 << 16  # positions; more damaged messages are not counted
MISSING_ENTRIES_MAX: Final = 1 << 20  # made up at the begin of a queue; more, and it begins later


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
        "counts",
        "cursors",
        "gate",
        "group_id",
        "last_consumed_ms",
        "lite",
        "ready",
        "scanned",
        "topic_id",
        "turn",
    )

    def __init__(self, group_id: int, topic_id: int, ready: Lane | RankedLanes) -> None:
        self.group_id = group_id
        self.topic_id = topic_id
        self.gate: FifoGate | None = None  # once it had to keep an order
        self.lite: LiteReader | None = None  # its progress, if it reads lite topics
        self.cursors: dict[int, int] = {}  # queue id → next offset; absent: earliest retained
        self.ready = ready  # its deliveries that are READY, but those of a message group
        self.counts = {State.READY: 0, State.LEASED: 0, State.BACKOFF: 0, State.ACKED: 0}
        self.last_consumed_ms = 0
        self.turn = 0  # live: which lane and which queue goes first
        self.scanned: dict[int, int] = {}  # live: queue id → what the filter has passed over

    def unread_from(self, queue_id: int) -> int:
        """The oldest offset that the group may not have been given yet, as far as is written."""
        if self.lite is not None:
            return self.lite.first_unread()
        cursor = self.cursors.get(queue_id, 0)
        held = self.gate.first_held(queue_id) if self.gate is not None else None
        return cursor if held is None else min(cursor, held)

    def ordered(self) -> FifoGate:
        """The gate, made when it is first needed."""
        if self.gate is None:
            self.gate = FifoGate()
        return self.gate


class WallClock:
    """The time of day, on which delivery times are; the edge sets `ahead_ms` when it jumps."""

    def __init__(self) -> None:
        self.ahead_ms = 0  # of `now_ms`

    def at(self, now_ms: int) -> int:
        return now_ms + self.ahead_ms


class EngineState:
    def __init__(self, store: Store, config: Config) -> None:
        self.store = store
        self.config = config
        self.catalog = Catalog()
        self.users = Users()
        self.limits = Limits()
        self.leases = Leases()
        self.timer = Timer()
        self.lites: dict[int, LiteParent] = {}  # by topic id, once something was sent to one
        self.halves = HalfMessages(
            config.transaction.ended_remembered_max, config.transaction.checks_max
        )
        self.subscriptions: dict[tuple[int, int], Subscription] = {}
        self.dead: dict[int, LetterStates] = {}  # by dead-letter topic id
        self.parking: dict[Letter, tuple[int, int, int]] = {}
        """Letters that park a message group: group id, topic id, order key."""
        self.uses = SegmentUses(store.log)
        self.timers_moved = TimersMoved()
        self.delayed_counts: dict[int, int] = {}  # topic id → messages not yet due
        self.client_positions: OrderedDict[str, int] = OrderedDict()  # least recently used first
        self.client_names: dict[int, str] = {}
        self.recently_done = RecentlyDone(config.delivery.done_handles_max)
        self.handles = ReceiptHandles(store.log.uuid)
        self.lost_at = 0
        """Position of the last LOST record that replay met: there, records are missing. 0: none."""
        # live:
        self.timers_touched: set[int] | None = None
        """While a segment is rolled forward: positions whose timers fired or changed meanwhile."""
        self.ready_topics: set[int] = set()  # where something became receivable for every group
        self._ready_pairs: set[tuple[int, int]] = set()
        self.round_robin: dict[int, int] = {}
        self.clients_seen: OrderedDict[str, int] = OrderedDict()
        self.damaged: set[int] = set()
        """Positions of messages that could not be read; at most DAMAGED_REMEMBERED_MAX."""
        self.wall = WallClock()
        self.figures = Figures()

    def give_up(self, error: CorruptRecordError) -> None:
        """A message cannot be read: nothing of it is delivered, the others go on. Says so.

        Raises StoreReadOnlyError: the broker is to stop instead, `store.on_corrupt`.
        """
        self.unreadable(error)
        if self.config.store.on_corrupt is OnCorrupt.STOP:
            self.store.log.void(f"stopped at a damaged message, as store.on_corrupt says: {error}")
            raise StoreReadOnlyError(str(error))

    def unreadable(self, error: CorruptRecordError) -> None:
        """Who looks at many is shown the others. A damaged message is said and counted once."""
        if error.position in self.damaged:
            return
        if len(self.damaged) < DAMAGED_REMEMBERED_MAX:
            self.damaged.add(error.position)
        log.error(
            "message damaged, given up",
            extra={"position": error.position, "reason": error.reason},
        )

    def queue(self, topic_id: int, queue_id: int) -> ConsumeQueue:
        return self.store.queue(topic_id, queue_id)

    def read(self, position: int) -> Record:
        """The record of a message, an attempt or a letter; of a moved message the original.

        Raises CorruptRecordError.
        """
        record = original(self.store.log.read(position))
        if record.type is RecordType.LOST:
            raise CorruptRecordError(position, "it was damaged and is given up")
        return record

    def is_gone(self, position: int) -> bool:
        """Replay without a state: the record lies in a segment that was dropped."""
        return self.store.dropped.headless and position < self.store.log.start

    def trim(self, topic_id: int, queue_id: int, first: int) -> None:
        """What lies below `first` in the queue has expired."""
        queue = self.queue(topic_id, queue_id)
        for entry in queue.scan(queue.first, first - queue.first):
            if entry.flags:
                self.uses.unrefer(entry.position, (topic_id, queue_id))
        if topic_id in self.dead:
            self.dead[topic_id].trim(first)
        if self.parking:
            for offset in range(queue.first, first):
                self.unpark((topic_id, offset))
        queue.trim(first)
        if topic_id in self.lites:
            self.lites[topic_id].trim(first)
        for (_, read_id), subscription in self.subscriptions.items():
            if read_id == topic_id and subscription.gate is not None:
                subscription.gate.trim(queue_id, first)

    def subscription(self, group_id: int, topic_id: int) -> Subscription:
        key = (group_id, topic_id)
        found = self.subscriptions.get(key)
        if found is None:
            topic = self.catalog.topic_by_id(topic_id)
            ranked = topic is not None and topic.type is TopicType.PRIORITY
            lanes = RankedLanes(self.leases) if ranked else Lane(self.leases)
            found = self.subscriptions[key] = Subscription(group_id, topic_id, lanes)
        return found

    def cursor(self, subscription: Subscription, queue_id: int) -> int:
        """The group's next offset on the queue, never below what is retained."""
        if (reader := lite_reader(self, subscription)) is not None:
            return reader.first_unread()
        first = self.queue(subscription.topic_id, queue_id).first
        durable = subscription.cursors.get(queue_id, first)
        return max(first, durable, subscription.scanned.get(queue_id, first))

    def client_name(self, position: int) -> str:
        """The client id behind a CLIENT record; empty when the record is gone."""
        name = self.client_names.get(position)
        if name is None:
            try:
                name = decode_client(self.store.log.read(position).payload)
            except StoreError:
                name = ""
        return name

    def announce(self, subscription: Subscription) -> None:
        """Something became receivable for one group."""
        self._ready_pairs.add((subscription.group_id, subscription.topic_id))

    def enqueue(self, topic_id: int, queue_id: int, entry: Entry, offset: int) -> None:
        queue = self.store.queue(topic_id, queue_id)
        if queue.next != offset:
            self.reach(topic_id, queue_id, offset, entry.time_ms)
            assert queue.next == offset
        queue.append(entry)
        if entry.flags:
            self.uses.refer(entry.position, (topic_id, queue_id), offset)
        self.ready_topics.add(topic_id)

    def reach(self, topic_id: int, queue_id: int, offset: int, time_ms: int) -> None:
        """In replay: the queue's next offset is at least this one, though the entries before it
        are not known. They were in dropped segments, or their records are lost."""
        queue = self.queue(topic_id, queue_id)
        missing = offset - queue.next
        if missing <= 0:
            return
        if not queue.next and (self.store.dropped.headless or missing > MISSING_ENTRIES_MAX):
            queue.begin_at(offset)
            return
        assert self.lost_at, "every entry of a queue has its record"
        for _ in range(missing):
            queue.append(Entry(self.lost_at, 0, 0, 0, 0, time_ms))

    def take_ready(self) -> Ready:
        """What was announced since the last call, by name."""
        ready = Ready()
        for topic_id in self.ready_topics:
            topic = self.catalog.topic_by_id(topic_id)
            if topic is not None:
                ready.topics.add(topic.name)
        for group_id, topic_id in self._ready_pairs:
            group, topic = self.catalog.group_by_id(group_id), self.catalog.topic_by_id(topic_id)
            if group is not None and topic is not None:
                ready.pairs.add((group.name, topic.name))
        self.ready_topics.clear()
        self._ready_pairs.clear()
        return ready

    def next_queue(self, topic: Topic, order_key: int = 0, priority: int = NO_PRIORITY) -> int:
        """Round robin over the topic's queues; a message group has its own, and so has a priority
        in a topic of that type."""
        if topic.type is TopicType.PRIORITY:
            return topic.queue_of_priority(priority)
        if order_key:
            return topic.queue_of(order_key)
        turn = self.round_robin.get(topic.id, 0)
        self.round_robin[topic.id] = turn + 1
        return turn % topic.queue_count

    def unpark(self, letter: Letter) -> None:
        """The letter is redriven, dropped or expired: what it stopped goes on."""
        parked = self.parking.pop(letter, None)
        if parked is not None:
            subscription = self.subscription(parked[0], parked[1])
            subscription.ordered().unpark(parked[2], letter)
            lite_may_go(self, subscription, parked[2])
            self.announce(subscription)

    def drop_subscription(self, key: tuple[int, int]) -> None:
        subscription = self.subscriptions.pop(key)
        if key[1] in self.lites:
            self.lites[key[1]].readers.pop(key[0], None)
        if subscription.gate is not None:
            for letter in subscription.gate.letters():
                del self.parking[letter]
        if any(subscription.counts.values()):
            for delivery in self.leases.of(*key):
                self.uses.release(delivery)
                self.leases.drop(delivery)
        subscription.ready.close()

    def live_delivery(
        self, group: str, handle: str, now_ms: int, topic: str | None = None
    ) -> Delivery | None:
        """The delivery a handle holds at `now_ms`; None: acked, expired, superseded, never ours,
        or of another topic than the one that is named."""
        (live,) = self.live_ids(group, (handle,), now_ms, topic)
        return self.leases.deliveries[live] if live else None

    def live_ids(
        self, group: str, handles: Sequence[str], now_ms: int, topic: str | None = None
    ) -> list[int]:
        """The same by id, for each handle; 0 for none."""
        owner = _ids_of(self.catalog, group, topic)
        if owner is None:
            return [0] * len(handles)
        return self.leases.deliveries.held(*self.handles.decode_all(handles), owner, now_ms)

    def was_done(self, group: str, handle: str, now_ms: int, topic: str | None = None) -> bool:
        """The handle's message is acknowledged or dead, and its lease would still last."""
        known = self.handles.decode(handle)
        owner = _ids_of(self.catalog, group, topic)
        if known is None or owner is None:
            return False
        if self.recently_done.holds(*known, owner, now_ms):
            return True
        delivery = self.leases.deliveries.get(known[0])
        return (
            delivery is not None
            and delivery.state is State.ACKED
            and delivery.generation == known[1]
            and delivery.place.is_of(owner)
            and delivery.deadline_ms > now_ms
        )


def _ids_of(catalog: Catalog, group: str, topic: str | None) -> tuple[int, int] | None:
    """Ids of both; the topic's is 0 if none is named. None: one of them does not exist."""
    owner = catalog.group(group)
    if owner is None:
        return None
    if topic is None:
        return owner.id, 0
    read = catalog.topic(topic)
    return None if read is None else (owner.id, read.id)


def lite_reader(state: EngineState, subscription: Subscription) -> LiteReader | None:
    """None: the group reads whole topics, or nothing was ever sent to a lite topic of this one."""
    if subscription.lite is None and subscription.topic_id in state.lites:
        group = state.catalog.group_by_id(subscription.group_id)
        if group is not None and group.lite_parent:
            subscription.lite = state.lites[subscription.topic_id].reader(group.id)
    return subscription.lite


def first_unread(state: EngineState, subscription: Subscription, queue_id: int) -> int:
    """Find the oldest offset that the group was not given yet: the next, or the first held back."""
    cursor = state.cursor(subscription, queue_id)
    held = subscription.gate.first_held(queue_id) if subscription.gate is not None else None
    return cursor if held is None else min(cursor, held)


def void(state: EngineState, subscription: Subscription, delivery: Delivery) -> None:
    """Forget a delivery, whatever its state: its handles are good for nothing."""
    before = delivery.state
    subscription.counts[before] -= 1
    if key := delivery.order_key:
        ready = before not in IN_HAND
        subscription.ordered().leave(key, delivery.offset, delivery.id, ready=ready)
    state.uses.release(delivery)
    state.leases.drop(delivery)


def lite_may_go(state: EngineState, subscription: Subscription, key: int) -> None:
    """Nothing of a lite topic is in the group's hands any more, or it is to be received again."""
    reader = lite_reader(state, subscription)
    if reader is not None:
        group = subscription.ordered().groups.get(key)
        if group is None or not group.blocked:
            reader.may_go(key, retries=group is not None)
            state.announce(subscription)
