"""A receive: retries and fresh messages share it by weight, through the group's filter.

The retry lane holds what this group failed before and may have again; the fresh lane is each queue
from the group's cursor on, due messages included: they entered their queue when their time came. No
lane starves the other, and the queues take turns; but for topics of type PRIORITY, where a queue
stands for a priority: the highest first, but for the share of each lower one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from latermq_broker.delivery.filters.filter import MessageFilter, filter_text
from latermq_broker.delivery.history import decode_outline
from latermq_broker.delivery.leases.lease import Delivery
from latermq_broker.delivery.order.lane import Lane, RankedLanes
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.outcome.attempts import Attempts, stored_slices
from latermq_broker.engine.receive.entry_filter import Filters
from latermq_broker.engine.receive.leasing import (
    ReplyBudget,
    client_position,
    lease_flags,
)
from latermq_broker.engine.receive.lite_lane import LiteLane
from latermq_broker.engine.receive.ordered_lane import OrderedLane, Receive, ScanBudget
from latermq_broker.engine.receive.repeated_replies import RepeatedReplies
from latermq_broker.engine.receive.unread import Look, Wishes, look
from latermq_broker.engine.state.model import Delivered, Group, ReceiveRequest, Topic
from latermq_broker.engine.state.state import EngineState, Subscription
from latermq_broker.errors import CorruptRecordError, StoreBusyError, StoreFullError
from latermq_broker.store.derived.consume_queue import ConsumeQueue
from latermq_broker.store.log.read_ahead import read_ahead
from latermq_broker.store.records.catalog_records import (
    OffsetPayload,
    ResetPayload,
    WantedPayload,
)
from latermq_broker.store.records.lease_records import LeaseFreshPayload, LeaseRetryPayload
from latermq_broker.store.records.letter_records import dead_slices
from latermq_broker.store.records.record import Record, RecordType

tuple_new: Final = tuple.__new__  # as Delivered(...), without its keyword handling
_NONE: Final[Mapping[int, Record]] = {}
OWED_MAX: Final = 32_000  # thousandths of messages that a lower priority is owed


class Lanes:
    def __init__(self, state: EngineState, journal: Journal, attempts: Attempts) -> None:
        self._state = state
        self._journal = journal
        self._attempts = attempts
        self._ordered = OrderedLane(state, journal, attempts)
        self._lite = LiteLane(state, journal, attempts)
        self._replies = RepeatedReplies(state, journal)
        self._filters = Filters(state)
        self._bounds = state.config.delivery.bounds

    def receive(
        self, request: ReceiveRequest, group: Group, topic: Topic, now_ms: int
    ) -> list[Delivered]:
        config = self._state.config.delivery
        if (group.id, topic.id) not in self._state.subscriptions:
            # That the group reads the topic is to last, also if there is nothing for it yet.
            payload = ResetPayload(group.id, topic.id, ())
            self._journal.write(RecordType.RESET, payload, now_ms)
        subscription = self._state.subscription(group.id, topic.id)
        wishes = self._wishes(request, group, subscription, now_ms)
        count = min(request.count_max, config.receive_batch_max)
        reply_budget = ReplyBudget(count, min(config.receive_bytes_max, request.bytes_max))
        weights = config.fresh_weight + config.retry_weight
        turn = subscription.turn
        subscription.turn = turn + 1
        share = count * config.retry_weight // weights
        if not share and turn % weights < config.retry_weight:
            share = 1
        scan_budget = ScanBudget(self._bounds)
        receive = Receive(request, group, subscription, wishes, reply_budget, scan_budget, now_ms)
        taken: list[Delivery] = self._replies.again(receive) if request.attempt_id else []
        if taken:
            return self._deliver(receive, taken, topic, again=True)
        if group.lite_parent:
            return self._deliver(receive, self._lite.receive(receive, request.lite_keys), topic)
        mine: dict[int, bool] = {}
        owing = isinstance(subscription.ready, RankedLanes) and self._permille(topic)
        try:
            if owing:
                taken += self._take_owed(receive, topic, mine)
            for lane, queue_ids in self._ranks(subscription, topic):
                retried = self._take_retries(receive, lane, share)
                taken += retried
                if group.fifo:  # message groups are not cut at the share: the rest would wait
                    reply_budget.reserve(share - len(retried))
                    for more in self._take_fresh(receive, queue_ids, mine):
                        taken += more
                    reply_budget.release()
                    taken += self._ordered.take_waiting(receive, mine)
                for more in self._take_fresh(receive, queue_ids, mine):
                    taken += more
                taken += self._take_retries(receive, lane, reply_budget.count)
                if not reply_budget.count or receive.spent:
                    break
        except StoreFullError:
            if not taken:
                raise
            # What was leased before the log was full goes out: nobody else may have it now.
        if owing:
            taken.sort(key=lambda delivery: -delivery.queue_id)
            self._note_owed(subscription, topic, taken)
        if receive.spent or receive.scan_budget.spent:  # not all was looked at: ask again
            self._state.announced.add(subscription)
        return self._deliver(receive, taken, topic, receive.scan_budget.records)

    def _wishes(
        self, request: ReceiveRequest, group: Group, subscription: Subscription, now_ms: int
    ) -> Wishes:
        """Return what is wanted, once what the group's consumers filter by is written down."""
        wanted = request.wanted or (request.filter,)
        strict = self._state.config.compat.strict
        if strict or group.lite_parent:
            wanted = (request.filter,)
        elif wanted is not subscription.wanted_now and wanted != subscription.wanted_now:
            texts = wanted_texts(wanted)
            if texts != subscription.wanted:
                payload = WantedPayload(subscription.group_id, subscription.topic_id, texts)
                self._journal.write(RecordType.WANTED, payload, now_ms)
            subscription.looked.clear()
            subscription.wanted_now = wanted
        return Wishes(
            request.filter,
            self._filters.of(request.filter),
            self._filters.others(request.filter, wanted),
            passes=strict or not request.waits,
        )

    # --- priorities ----------------------------------------------------------------------------

    def _permille(self, topic: Topic) -> int:
        """Return the share of each lower priority; all of them together have at most half."""
        share = 10 * self._state.config.delivery.lower_priority_percent
        return min(share, 500 // max(1, topic.queue_count - 1))

    def _take_owed(self, receive: Receive, topic: Topic, mine: dict[int, bool]) -> list[Delivery]:
        """Take what lower priorities are owed, while higher ones have enough for the reply."""
        subscription, budget = receive.subscription, receive.reply_budget
        lanes = subscription.ready
        assert isinstance(lanes, RankedLanes)
        coming = budget.count * self._permille(topic)
        taken: list[Delivery] = []
        for queue_id in range(topic.queue_count - 1):
            owed = subscription.owed.get(queue_id, 0) + coming
            slots = min(owed // 1_000, budget.count)
            if not slots:
                continue
            budget.reserve(budget.count - slots)
            taken += self._take_retries(receive, lanes.lane(queue_id), budget.count)
            for more in self._take_fresh(receive, (queue_id,), mine):
                taken += more
            budget.release()
        return taken

    def _note_owed(
        self, subscription: Subscription, topic: Topic, taken: Sequence[Delivery]
    ) -> None:
        """Count what each lower priority is owed by what was given; one that is empty: nothing."""
        lanes = subscription.ready
        assert isinstance(lanes, RankedLanes)
        given = Counter(delivery.queue_id for delivery in taken)
        for queue_id in range(topic.queue_count - 1):
            queue = self._state.queue(topic.id, queue_id)
            waits = self._state.cursor(subscription, queue) < queue.next
            owed = subscription.owed.get(queue_id, 0) + self._permille(topic) * len(taken)
            owed = min(owed - 1_000 * given[queue_id], OWED_MAX)
            if owed > 0 and (waits or next(iter(lanes.lane(queue_id)), None) is not None):
                subscription.owed[queue_id] = owed
            else:
                subscription.owed.pop(queue_id, None)

    def _ranks(
        self, subscription: Subscription, topic: Topic
    ) -> Iterator[tuple[Lane, Sequence[int]]]:
        """Yield what is looked at before what: all of a topic at once, its queues taking turns; of
        type PRIORITY one priority after the other, from the highest."""
        lanes, count = subscription.ready, topic.queue_count
        if not isinstance(lanes, RankedLanes):
            yield lanes, [(subscription.turn + step) % count for step in range(count)]
            return
        for queue_id in range(count - 1, -1, -1):
            yield lanes.lane(queue_id), (queue_id,)

    def _take_retries(self, receive: Receive, ready: Lane, share: int) -> list[Delivery]:
        request, group, now_ms = receive.request, receive.group, receive.now_ms
        entry_filter, reply_budget = receive.wishes.entry_filter, receive.reply_budget
        mismatched: list[Delivery] = []
        taken: list[Delivery] = []
        spent: list[Delivery] = []  # no attempt is left: the policy was tightened
        scan_max = self._bounds.entries_max
        if share > 0:
            for delivery in islice(ready, scan_max):
                if entry_filter is not None and entry_filter.spent:
                    break
                if entry_filter is not None and not entry_filter(
                    delivery.tag_hash, delivery.position
                ):
                    mismatched.append(delivery)
                elif delivery.attempt >= group.max_attempts:
                    spent.append(delivery)
                elif reply_budget.take(delivery.length):
                    taken.append(delivery)
                else:
                    break
                if len(taken) == share:
                    break
        looked = len(mismatched) + len(spent) + len(taken)
        if looked == scan_max or (entry_filter is not None and entry_filter.spent):
            for delivery in mismatched:  # others may stand behind: they are first the next time
                ready.append(delivery)
        for delivery in spent:
            self._attempts.exhaust(delivery, now_ms)
        if taken:
            client = client_position(self._state, self._journal, request.client_id, now_ms)
            ids = tuple(delivery.id for delivery in taken)
            payload = LeaseRetryPayload(client, request.invisible_ms, lease_flags(request), ids)
            self._journal.write(RecordType.LEASE_RETRY, payload, now_ms)
        return taken

    def _take_fresh(
        self, receive: Receive, queue_ids: Iterable[int], mine: dict[int, bool]
    ) -> Iterator[list[Delivery]]:
        """Take what one queue after the other gives, as much as there is room for."""
        subscription, reply_budget = receive.subscription, receive.reply_budget
        for queue_id in queue_ids:
            if not reply_budget.count or receive.spent:
                break
            queue = self._state.queue(subscription.topic_id, queue_id)
            if receive.group.fifo:
                yield self._ordered.take_fresh(receive, queue, mine)
                continue
            cursor = self._state.cursor(subscription, queue)
            if cursor >= queue.next:
                continue
            letters = self._state.dead.get(queue.topic_id)
            simple = not letters and queue_id not in subscription.ahead
            if simple and receive.wishes.entry_filter is None:
                count = reply_budget.take_some(queue.columns(cursor, reply_budget.count)[1])
                if count:
                    yield self._lease_fresh(receive, queue_id, cursor, range(count), count)
                continue
            decided = look(
                receive.wishes,
                subscription,
                queue,
                cursor,
                letters,
                reply_budget,
                self._bounds.entries_max,
                self._state.config.delivery.held_messages_max,
            )
            yield self._settle(receive, queue, cursor, decided)

    def _settle(
        self, receive: Receive, queue: ConsumeQueue, cursor: int, decided: Look
    ) -> list[Delivery]:
        """Write down what was decided of a queue, in one record; what was leased by it."""
        subscription, queue_id = receive.subscription, queue.queue_id
        taken: list[Delivery] = []
        if decided.stays:
            if rows := decided.rows(queue_id):
                taken = self._ordered.write(receive, queue_id, cursor, rows, ahead=True)
        elif decided.taken:
            first = decided.taken[0]
            deltas = tuple(offset - first for offset in decided.taken)
            taken = self._lease_fresh(receive, queue_id, first, deltas, decided.end - first)
        elif decided.end > cursor:
            payload = OffsetPayload(
                subscription.group_id, subscription.topic_id, queue_id, decided.end
            )
            self._journal.write(RecordType.OFFSET, payload, receive.now_ms)
        if not taken and cursor < decided.end < queue.next and not decided.stalled:
            self._state.announced.add(subscription)  # not all was looked at: ask again
        return taken

    def _lease_fresh(
        self, receive: Receive, queue_id: int, first: int, deltas: Sequence[int], span: int
    ) -> list[Delivery]:
        """Lease messages from `first` on, and be done with `span` of the queue."""
        request, subscription = receive.request, receive.subscription
        fields = (
            self._state.leases.next_id,
            first,
            client_position(self._state, self._journal, request.client_id, receive.now_ms),
            subscription.group_id,
            subscription.topic_id,
            request.invisible_ms,
            queue_id,
            span,
            lease_flags(request),
            deltas,
        )
        payload = tuple_new(LeaseFreshPayload, fields)
        lent = self._journal.write(RecordType.LEASE_FRESH, payload, receive.now_ms)
        return self._state.leases.deliveries.many(lent)

    def _deliver(
        self,
        receive: Receive,
        taken: list[Delivery],
        topic: Topic,
        known: Mapping[int, Record] = _NONE,
        *,
        again: bool = False,
    ) -> list[Delivered]:
        """Read the messages that were leased; `known`: records read already, by position.

        Those behind the first whose file cannot be mapped now are given back, uncounted, unless
        their client may hold them from a reply before, `again`.
        Raises StoreBusyError: of that reply, or where no message could be read.
        """
        state = self._state
        internal, tell = topic.internal, state.leases.deliveries.tell
        spans = ((delivery.position, delivery.length) for delivery in taken)
        read_ahead(state.store.log, spans, known)
        delivered: list[Delivered] = []
        leased: list[int] | None = [] if receive.request.attempt_id else None
        for index, delivery in enumerate(taken):
            id, generation, attempt, queue_id, offset, position, deadline_ms = tell(delivery)
            try:
                record = known.get(position) or state.read(position)
            except CorruptRecordError as error:
                self._give_up(delivery, error, receive.now_ms)
                continue
            except StoreBusyError:
                if again:
                    raise
                self._give_back(taken[index:], receive.now_ms)
                if not delivered:
                    raise
                break
            rest, system = stored_slices(record)
            origin = _origin_topic(record) if internal else ""
            handle = state.handles.encode(id, generation)
            fields = (handle, attempt, queue_id, offset, rest, system, deadline_ms, origin)
            delivered.append(tuple_new(Delivered, fields))
            if leased is not None:
                leased += (id, generation)
        if delivered:
            if leased is not None:
                self._replies.remember(receive, leased)
            receive.subscription.flowing().delivered += len(delivered)
        return delivered

    def _give_back(self, unread: Sequence[Delivery], now_ms: int) -> None:
        """End leases that no client will hear of. Without room for that they end by themselves."""
        with suppress(StoreFullError):
            for delivery in unread:
                self._attempts.suspend(delivery, 0, now_ms)

    def _give_up(self, delivery: Delivery, error: CorruptRecordError, now_ms: int) -> None:
        """Give up what cannot be read. Others may stand behind it: a waiting receive asks again."""
        state = self._state
        state.damaged.give_up(error)
        state.announced.add(state.subscription(delivery.group_id, delivery.topic_id))
        self._journal.write(RecordType.ACK, (delivery.id,), now_ms)


def _origin_topic(record: Record) -> str:
    """Name the topic of a dead letter's message; empty for what was sent to the %DLQ% topic."""
    if record.type is not RecordType.DEAD:
        return ""
    return decode_outline(dead_slices(record.payload)[0]).origin_topic


def wanted_texts(wanted: Sequence[MessageFilter]) -> tuple[str, ...]:
    """Write down what consumers filter by, each once; () if one of them wants everything."""
    texts = sorted({filter_text(filter) for filter in wanted})
    return () if "" in texts else tuple(texts)
