"""Receives of a group that keeps the order: what each message group may give.

A message is taken if nothing before it in its message group is out of this very reply and not done.
A reply may hold several messages of one message group, in order; they come back together when
nothing of them is leased or waits any more. Since the first of them may be what fails, the last
allowed attempt of a message, and every one from the third on, goes alone: those behind would use up
their attempts without having been tried. A group that parks gets them one at a time in any case, so
does a client that asks for single file.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final

from latermq_broker.config.core_bounds import ScanBounds
from latermq_broker.delivery.leases.lease import Delivery, State
from latermq_broker.delivery.order.fifo import FifoGate, MessageGroup
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.outcome.attempts import Attempts, stored_order_key
from latermq_broker.engine.receive.leasing import (
    ReplyBudget,
    client_position,
    lease_flags,
)
from latermq_broker.engine.receive.unread import Wishes, unread
from latermq_broker.engine.state.letter_states import letters_of
from latermq_broker.engine.state.model import Group, OnDead, ReceiveRequest
from latermq_broker.engine.state.state import EngineState, Subscription
from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.derived.consume_queue import ConsumeQueue, Entry
from latermq_broker.store.records.lease_records import (
    NO_QUEUE,
    ORDERED_HOLD,
    ORDERED_PASS,
    ORDERED_TAKE,
    LeaseOrderedPayload,
    LeaseRetryPayload,
    OrderedRow,
)
from latermq_broker.store.records.record import Record, RecordType

tuple_new: Final = tuple.__new__  # as OrderedRow(...), without its keyword handling
ALONE_FROM: Final = 3  # attempt
STAY: Final = 0  # as an act: nothing is done with it


class ScanBudget:
    """How much one receive may still look at that it does not deliver: all its queues share it."""

    __slots__ = ("_bytes", "_entries", "_reads", "records")

    def __init__(self, bounds: ScanBounds) -> None:
        self._entries = bounds.ordered_entries_max
        self._reads = bounds.held_reads_max
        self._bytes = bounds.held_read_bytes_max
        self.records: dict[int, Record] = {}
        """By position: what was read of messages that go out, which need not be read again."""

    @property
    def spent(self) -> bool:
        return self._entries <= 0 or self._reads <= 0 or self._bytes <= 0

    def count_entry(self) -> None:
        """Count an entry that was looked at."""
        self._entries -= 1

    def held(self, length: int) -> None:
        """Count an entry that was looked at, and whose message was read."""
        self._entries -= 1
        self._reads -= 1
        self._bytes -= length


class Receive:
    """One receive, as the lanes need it."""

    __slots__ = (
        "group", "now_ms", "reply_budget", "request", "scan_budget", "subscription", "wishes",
    )  # fmt: skip

    def __init__(
        self,
        request: ReceiveRequest,
        group: Group,
        subscription: Subscription,
        wishes: Wishes,
        reply_budget: ReplyBudget,
        scan_budget: ScanBudget,
        now_ms: int,
    ) -> None:
        self.request = request
        self.group = group
        self.subscription = subscription
        self.wishes = wishes
        self.reply_budget = reply_budget
        self.now_ms = now_ms
        self.scan_budget = scan_budget  # of the fresh lane

    def wants(self, message: Delivery | Entry) -> bool:
        entry_filter = self.wishes.entry_filter
        return entry_filter is None or entry_filter(message.tag_hash, message.position)

    def others_want(self, message: Delivery | Entry) -> bool:
        """Tell whether another consumer of the group wants a message that this one does not."""
        return self.wishes.others(message.tag_hash, message.position)

    @property
    def spent(self) -> bool:
        """Tell whether filters have looked at as much as they may in one receive."""
        return self.wishes.spent

    def alone(self, attempt: int) -> bool:
        group = self.group
        if self.request.single_file or group.on_dead is OnDead.PARK:
            return True
        return attempt >= min(ALONE_FROM, group.max_attempts)


class OrderedLane:
    def __init__(self, state: EngineState, journal: Journal, attempts: Attempts) -> None:
        self._state = state
        self._journal = journal
        self._attempts = attempts
        self._bounds = state.config.delivery.bounds

    # --- what waits in message groups that may go on -------------------------------------------

    def take_waiting(self, receive: Receive, mine: dict[int, bool]) -> list[Delivery]:
        """Take messages that come again or were held back, as many as there is room for.

        `mine`: whether a message group that this reply has something of may go on in it.
        """
        gate = receive.subscription.gate
        if gate is None or not gate.runnable:
            return []
        again: list[int] = []
        rows: list[OrderedRow] = []
        turned: list[int] = []
        scan_budget = ScanBudget(self._bounds)  # its own: what is fresh must not keep these waiting
        for key in list(islice(gate.runnable, self._bounds.ordered_entries_max)):
            if not receive.reply_budget.count or receive.spent or scan_budget.spent:
                break
            self._end_unwanted(receive, gate, key)
            group = gate.groups.get(key)
            if group is None or group.blocked:
                continue  # its last one died
            before = receive.reply_budget.count
            count = self._again(receive, group, again)
            if count == len(group.live) and not self._was_alone(receive, again, count):
                held = len(rows)
                self._held(receive, scan_budget, key, group, rows, first=not count)
                mine[key] = len(rows) - held == len(group.held) and not receive.alone(1)
            if receive.reply_budget.count == before:
                scan_budget.count_entry()
                turned.append(key)
        if scan_budget.spent:
            self._state.announced.add(receive.subscription)
        for key in turned:  # nothing of it is wanted: the others first, the next time
            if key in gate.runnable:
                del gate.runnable[key]
                gate.runnable[key] = None
        return [*self._lease_again(receive, again), *self.write(receive, NO_QUEUE, 0, rows)]

    def _end_unwanted(self, receive: Receive, gate: FifoGate, key: int) -> None:
        """End its first ones that nobody is to have, so that they withhold none behind them.

        No attempt is left: the policy was tightened. Or no consumer of the group wants it, nor did
        one that could have had it since it has waited: the group's filter was changed.
        """
        deliveries = self._state.leases.deliveries
        while key in gate.runnable and gate.groups[key].live:
            delivery = deliveries[gate.groups[key].live[0][1]]
            if delivery.attempt >= receive.group.max_attempts:
                self._attempts.exhaust(delivery, receive.now_ms)
            elif (
                receive.spent
                or not receive.wishes.passes
                or receive.wants(delivery)
                or receive.others_want(delivery)
                or not self._waited(delivery, receive.now_ms)
            ):
                return
            else:
                self._attempts.filter_out(delivery, receive.now_ms)

    def _waited(self, delivery: Delivery, now_ms: int) -> bool:
        """Tell whether it has waited for as long as one may that is not wanted."""
        wait_ms = self._state.config.delivery.unwanted_retry_ms_max
        return now_ms - self._attempts.ready_since_ms(delivery) >= wait_ms

    def _again(self, receive: Receive, group: MessageGroup, again: list[int]) -> int:
        """Add deliveries from its first one on; how many."""
        deliveries = self._state.leases.deliveries
        taken = 0
        for _, delivery_id in group.live:
            delivery = deliveries[delivery_id]
            alone = receive.alone(delivery.attempt + 1)
            if (
                not receive.wants(delivery)
                or (alone and taken)
                or not receive.reply_budget.take(delivery.length)
            ):
                break
            again.append(delivery_id)
            taken += 1
            if alone:
                break
        return taken

    def _was_alone(self, receive: Receive, again: list[int], taken: int) -> bool:
        """Tell whether nothing may follow what was taken last of a message group."""
        if not taken:
            return False
        return receive.alone(self._state.leases.deliveries[again[-1]].attempt + 1)

    def _held(
        self,
        receive: Receive,
        scan_budget: ScanBudget,
        key: int,
        group: MessageGroup,
        rows: list[OrderedRow],
        *,
        first: bool,
    ) -> None:
        """Add what is held, behind all its deliveries."""
        if not len(group.held):
            return
        queue = self._state.queue(receive.subscription.topic_id, group.queue_id)
        letters = letters_of(self._state.dead, queue.topic_id)
        for offset in group.held:
            if receive.spent or scan_budget.spent:
                break
            entry = queue.get(offset)
            is_over = offset in letters
            if not is_over and not receive.wants(entry):
                if not receive.wishes.passes or receive.others_want(entry):
                    break
                is_over = True
            if is_over:
                rows.append(OrderedRow(key, offset, group.queue_id, ORDERED_PASS))
                scan_budget.count_entry()
                continue
            if (receive.alone(1) and not first) or not receive.reply_budget.take(entry.length):
                break
            rows.append(OrderedRow(key, offset, group.queue_id, ORDERED_TAKE))
            first = False

    def _lease_again(self, receive: Receive, ids: list[int]) -> list[Delivery]:
        if not ids:
            return []
        request = receive.request
        client = client_position(self._state, self._journal, request.client_id, receive.now_ms)
        payload = LeaseRetryPayload(client, request.invisible_ms, lease_flags(request), tuple(ids))
        self._journal.write(RecordType.LEASE_RETRY, payload, receive.now_ms)
        return self._state.leases.deliveries.many(ids)

    # --- fresh messages ------------------------------------------------------------------------

    def take_fresh(
        self, receive: Receive, queue: ConsumeQueue, mine: dict[int, bool]
    ) -> list[Delivery]:
        """Take messages from the group's next offset on; `mine` as for `take_waiting`.

        When the looks are spent it ends early: the receive is to announce that there is more.
        """
        subscription, wishes, queue_id = receive.subscription, receive.wishes, queue.queue_id
        cursor = self._state.cursor(subscription, queue)
        spans = subscription.ahead.get(queue_id)
        held_max = self._state.config.delivery.held_messages_max
        full = spans is not None and len(spans) >= held_max
        start = cursor if full else wishes.start(subscription, queue_id, cursor)
        end, stays, stalled = start, start > cursor, False
        rows: list[OrderedRow] = []
        pass_rows: list[OrderedRow] = []
        entries_max, count = self._bounds.ordered_entries_max, receive.reply_budget.count
        for offset, entry in unread(subscription, queue, start, entries_max, count):
            if receive.spent or receive.scan_budget.spent:
                break
            row = self._choose(receive, queue, offset, entry, mine, len(rows))
            if row is None:
                break
            if row.act == STAY:
                if stalled := full:
                    break
                stays = True
            else:
                (pass_rows if row.act == ORDERED_PASS else rows).append(row)
            end = offset + 1
            if not receive.reply_budget.count:
                break
        wishes.note(subscription, queue_id, end)
        taken: list[Delivery] = []
        if stays and (rows or pass_rows):
            pass_rows = [row._replace(order_key=1) for row in pass_rows]
            taken = self.write(receive, queue_id, cursor, [*rows, *pass_rows], ahead=True)
        elif not stays and (rows or end > cursor):
            taken = self.write(receive, queue_id, end, rows)
        if not taken and start < end < queue.next and not stalled:  # not all was looked at
            self._state.announced.add(subscription)
        return taken

    def _choose(
        self,
        receive: Receive,
        queue: ConsumeQueue,
        offset: int,
        entry: Entry,
        mine: dict[int, bool],
        decided: int,
    ) -> OrderedRow | None:
        """Decide what becomes of a fresh message; None: the reply ends before it."""
        letters = self._state.dead.get(queue.topic_id)
        if letters and offset in letters:
            receive.scan_budget.count_entry()
            return OrderedRow(0, offset, queue.queue_id, ORDERED_PASS)
        if not receive.wants(entry):
            return self._leave(receive, queue, offset, entry, mine, decided)
        record = self._read(entry)
        key = stored_order_key(record) if record is not None else 0
        gate = receive.subscription.ordered()
        if key and not mine.get(key, key not in gate.groups):
            if self._holds_enough(receive, decided):
                return None
            receive.scan_budget.held(entry.length)
            return OrderedRow(key, offset, queue.queue_id, ORDERED_HOLD)
        if not receive.reply_budget.take(entry.length):
            return None
        if record is not None:
            receive.scan_budget.records[entry.position] = record
        if key:
            mine[key] = not receive.alone(1)
        return tuple_new(OrderedRow, (key, offset, queue.queue_id, ORDERED_TAKE))

    def _leave(
        self,
        receive: Receive,
        queue: ConsumeQueue,
        offset: int,
        entry: Entry,
        mine: dict[int, bool],
        decided: int,
    ) -> OrderedRow | None:
        """Decide what becomes of a fresh message that the receive does not want.

        What another consumer wants stops its message group until that one has it.
        """
        if not receive.others_want(entry):
            receive.scan_budget.count_entry()
            act = ORDERED_PASS if receive.wishes.passes else STAY
            return OrderedRow(0, offset, queue.queue_id, act)
        record = self._read(entry)
        key = stored_order_key(record) if record is not None else 0
        receive.scan_budget.held(entry.length)
        if not key:
            return OrderedRow(0, offset, queue.queue_id, STAY)
        if self._holds_enough(receive, decided):
            return None
        mine[key] = False
        return OrderedRow(key, offset, queue.queue_id, ORDERED_HOLD)

    def _holds_enough(self, receive: Receive, decided: int) -> bool:
        """Tell whether the group may hold back no more of the topic."""
        subscription = receive.subscription
        kept = subscription.counts[State.READY]  # and what waits anyway
        held_max = self._state.config.delivery.held_messages_max
        return subscription.ordered().held_count + kept + decided >= held_max

    def _read(self, entry: Entry) -> Record | None:
        try:
            return self._state.read(entry.position)
        except CorruptRecordError:
            return None  # found out again when it is to be delivered

    def write(
        self,
        receive: Receive,
        queue_id: int,
        next_offset: int,
        rows: Sequence[OrderedRow],
        *,
        ahead: bool = False,
    ) -> list[Delivery]:
        """Write what was decided, in one record; what was taken by it.

        Args:
            ahead: what of the queue is not in a row stays.
        """
        if not rows and queue_id == NO_QUEUE:
            return []
        first_id = self._state.leases.next_id
        count = sum(row.act == ORDERED_TAKE for row in rows)
        request = receive.request
        client = 0
        if count:
            client = client_position(self._state, self._journal, request.client_id, receive.now_ms)
        fields = (
            first_id,
            client,
            receive.subscription.group_id,
            receive.subscription.topic_id,
            request.invisible_ms,
            queue_id,
            lease_flags(request),
            next_offset,
            tuple(rows),
        )
        payload = tuple_new(LeaseOrderedPayload, fields)
        type_ = RecordType.LEASE_AHEAD if ahead else RecordType.LEASE_ORDERED
        lent = self._journal.write(type_, payload, receive.now_ms)
        if not count and any(row.act == ORDERED_HOLD for row in rows):
            self._state.announced.add(receive.subscription)  # others may go on now
        return self._state.leases.deliveries.many(lent)
