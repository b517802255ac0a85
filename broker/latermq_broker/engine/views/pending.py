"""What waits, and until when: delayed messages, backoffs, leases, half messages.

Listings merge the timer, the lease deadlines and the halves' checks by time; a page looks at no
more than `page_entries_max` entries, so it may be short, or empty, before the listing's end. Only
more than so many ready retries are not merged: they come first, `page_rows_max` rows of the lease
table at a time and by time among those, so that no page has to put all of them in order.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from heapq import heapify, heappop, merge
from itertools import islice
from operator import itemgetter

from latermq_broker.catalog.catalog import RETRY_PREFIX, SCHEDULE_TOPIC
from latermq_broker.delivery.halves import ID_BITS_MASK, HalfMessage, transaction_id
from latermq_broker.delivery.leases.lease import Delivery, State
from latermq_broker.delivery.retry import BACKOFF_MS_MAX
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.outcome.attempts import LONG_AGO_MS, Attempts, has_id, stored_slices
from latermq_broker.engine.send.transactions import Transactions
from latermq_broker.engine.state.model import PendingCount, PendingFilter, PendingItem, PendingKind
from latermq_broker.engine.state.state import EngineState
from latermq_broker.engine.state.timers_moved import delayed_id
from latermq_broker.engine.views.pending_place import (
    BEFORE_ALL,
    REST,
    START,
    PageCursor,
    Waiting,
    by_time,
    parse_id,
    parse_token,
    waits_of_group,
    where_now,
)
from latermq_broker.engine.views.pending_walk import AHEAD_MAX, PendingWalk
from latermq_broker.errors import (
    BadRequestError,
    CorruptRecordError,
    MessageNotFoundError,
    PreconditionFailedError,
)
from latermq_broker.store.records.lease_records import ExtendPayload
from latermq_broker.store.records.message_records import TimerPayload, decode_message_head
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.records.retention_records import first_position, original
from latermq_broker.store.records.transaction_records import CAUSE_OPERATOR

_Where = tuple[PendingKind, str, str]  # kind, topic, group


def delivery_pending_id(delivery_id: int) -> str:
    return f"r-{delivery_id:x}"


class PendingView:
    def __init__(
        self,
        state: EngineState,
        journal: Journal,
        attempts: Attempts,
        transactions: Transactions,
    ) -> None:
        self._state = state
        self._journal = journal
        self._attempts = attempts
        self._transactions = transactions
        self._bounds = state.config.delivery.bounds

    @property
    def moves_forgotten(self) -> bool:
        """Tell whether some delayed messages whose time was moved are not found by old ids."""
        return self._state.timers_moved.forgot

    def page(
        self,
        filter: PendingFilter,
        page_size: int,
        token: str = "",
        *,
        scan_max: int | None = None,
    ) -> tuple[list[PendingItem], str]:
        """List (items by due time, the next page's token; "" at the end). Many retries: see above.

        Raises BadRequestError for a token that is not ours.
        """
        walk = self.walk(filter, token, page_size + 1)
        scan_max = self._bounds.page_entries_max if scan_max is None else scan_max
        return self.items(walk, page_size, scan_max), walk.token

    def walk(
        self, filter: PendingFilter, token: str = "", ahead_max: int = AHEAD_MAX
    ) -> PendingWalk:
        """Begin to go through what waits, from a page's token on; see `PendingWalk`.

        Raises BadRequestError for a token that is not ours.
        """
        place = parse_token(token)
        return PendingWalk(_by_classic_name(filter), place, self._in_order, self._state, ahead_max)

    def items(self, walk: PendingWalk, count_max: int, scan_max: int) -> list[PendingItem]:
        """List the next items of a walk; `scan_max` bounds the entries looked at."""
        filter = walk.filter
        items: list[PendingItem] = []
        for _ in range(scan_max):
            if len(items) >= count_max or (entry := walk.take()) is None:
                break
            row, waiting = entry
            if filter.due_before_ms and waiting[0] >= filter.due_before_ms:
                if by_time(row):
                    walk.end()
                continue
            where = self._key(waiting)
            if where is None or not _matches(where, filter):
                continue
            item = self._item(waiting, where)
            if item is not None and filter.delay_level in (0, item.delay_level):
                items.append(item)
        return items

    def count(self, filter: PendingFilter) -> list[PendingCount]:
        """Count per kind, topic and group, from counters.

        `next_due_ms` is that of the first listed; 0: it is not among the first `page_entries_max`.
        The filter has no due_before_ms nor delay_level.
        """
        assert filter.due_before_ms == filter.delay_level == 0
        filter = _by_classic_name(filter)
        counts = {(each.kind, each.topic, each.group): each for each in self.known_counts(filter)}
        firsts = dict.fromkeys(counts, 0)
        unknown = len(firsts)  # of these
        redriven: set[tuple[PendingKind, str, str]] = set()  # of each, the time of one is read
        for _, waiting in islice(self._in_order(filter, START), self._bounds.page_entries_max):
            if not unknown:
                break
            where = self._key(waiting)
            if where is None or firsts.get(where, 1):
                continue
            firsts[where] = waiting[0]
            if not waiting[0] and where not in redriven:
                redriven.add(where)
                delivery = self._state.leases.deliveries[waiting[2]]
                firsts[where] = _redriven_ms(self._state, self._attempts, delivery)
            unknown -= bool(firsts[where])
        return [
            PendingCount(
                kind=each.kind, topic=each.topic, group=each.group, count=each.count,
                next_due_ms=firsts[key], ready=each.ready,
            )
            for key, each in sorted(counts.items(), key=itemgetter(0))
        ]  # fmt: skip

    def search(self, message_id: str, walk: PendingWalk, scan_max: int) -> list[str]:
        """Find ids under which a message waits among the next entries of a walk."""
        entries = (walk.take() for _ in range(scan_max))
        return [
            _pending_id(self._state, entry[1])
            for entry in entries
            if entry is not None and _is(self._state, message_id, entry[1])
        ]

    def cancel(self, pending_id: str, now_ms: int, *, topic: str = "") -> PendingItem:
        """Cancel what waits: a delayed message is never delivered; a retry is done for its group; a
        half message is rolled back. With `topic`, only what waits for that one.

        Raises MessageNotFoundError (not waiting any more), PreconditionFailedError (in flight).
        """
        waiting, item = self._find(pending_id)
        if topic not in ("", item.topic):
            raise MessageNotFoundError(f"nothing waits under {pending_id} for topic {topic}")
        if waiting[1] == 0:
            self._journal.write(RecordType.TIMER, _timer(self._state, waiting, 0), now_ms)
        elif waiting[1] == 2:
            self._transactions.roll_back(_half(self._state, waiting), CAUSE_OPERATOR, now_ms)
        else:
            _retry(self._state, waiting, pending_id)
            self._journal.write(RecordType.ACK, (waiting[2],), now_ms)
        return item

    def commit(self, pending_id: str, now_ms: int) -> PendingItem:
        """Deliver a half message, whatever its producer thinks.

        Raises MessageNotFoundError, PreconditionFailedError (no half message).
        """
        waiting, item = self._find(pending_id)
        if waiting[1] != 2:
            raise PreconditionFailedError(f"{pending_id} is no half message of a transaction")
        self._transactions.commit(_half(self._state, waiting), now_ms)
        return item

    def expedite(self, pending_id: str, now_ms: int) -> PendingItem:
        """Make what waits due now. Raises as `cancel` does."""
        return self._move(pending_id, self._state.wall.at(now_ms), now_ms)

    def postpone(self, pending_id: str, due_ms: int, now_ms: int) -> PendingItem:
        """Move its due time, sooner or later. Raises as `cancel` does, and BadRequestError."""
        limit_ms = self._state.config.delivery.delay_ms_max
        wall_ms = self._state.wall.at(now_ms)
        if not wall_ms <= due_ms <= wall_ms + limit_ms:
            raise BadRequestError(f"due time {due_ms} is not within now and {limit_ms} ms from now")
        return self._move(pending_id, due_ms, now_ms)

    def _move(self, pending_id: str, due_ms: int, now_ms: int) -> PendingItem:
        waiting, item = self._find(pending_id)
        if waiting[1] == 0:
            self._journal.write(RecordType.TIMER, _timer(self._state, waiting, due_ms), now_ms)
            return item
        if waiting[1] == 2:
            raise PreconditionFailedError(
                f"{pending_id} waits for the end of its transaction, not for a time: commit or "
                "cancel it"
            )
        delivery = _retry(self._state, waiting, pending_id)
        wait_ms = due_ms - self._state.wall.at(now_ms)
        if wait_ms > BACKOFF_MS_MAX:
            raise BadRequestError(f"a retry may wait {BACKOFF_MS_MAX} ms, not {wait_ms}")
        if delivery.state is State.BACKOFF:
            extend = ExtendPayload(delivery.id, wait_ms, 0)
            self._journal.write(RecordType.EXTEND, extend, now_ms)
        elif wait_ms:
            raise PreconditionFailedError(f"{pending_id} is due already")
        return item

    def _in_order(self, filter: PendingFilter, place: PageCursor) -> Iterator[tuple[int, Waiting]]:
        """Yield what comes behind that place: (row, waiting), see PageCursor."""
        row, after = place
        leases = self._state.leases
        sources: list[Iterator[Waiting]] = []
        own = None if row else waits_of_group(self._state, filter.group)
        if own is not None:
            ready, armed = own
            if filter.kind in (None, PendingKind.BACKOFF):
                sources.append(self._ripe(ready, after))
            if filter.kind in (None, PendingKind.BACKOFF, PendingKind.IN_FLIGHT):
                sources.append(self._held(after, armed))
            for waiting in merge(*sources):
                yield row, waiting
            return
        if filter.kind in (None, PendingKind.BACKOFF) and row < REST:
            if not row and leases.count(State.READY) <= self._bounds.page_entries_max:
                sources.append(self._ripe(leases.ready(), after))
            else:
                for first, ready in leases.ready_slices(row, self._bounds.page_rows_max):
                    for waiting in self._ripe(ready, after if first == row else BEFORE_ALL):
                        yield first, waiting
                row, after = REST, BEFORE_ALL
        if filter.kind in (None, PendingKind.DELAYED) and not filter.group:
            sources.append(self._delayed(after))
        if filter.kind in (None, PendingKind.BACKOFF, PendingKind.IN_FLIGHT):
            sources.append(self._held(after))
        if filter.kind in (None, PendingKind.HALF) and not filter.group:
            sources.append(_halves(self._state, after))
        for waiting in merge(*sources):
            yield row, waiting

    def _delayed(self, after: Waiting) -> Iterator[Waiting]:
        start = (after[0], after[2]) if after[1] <= 0 else (after[0] + 1, -1)
        for due_ms, position in self._state.timer.in_order(start):
            yield due_ms, 0, position

    def _held(
        self, after: Waiting, armed: Iterable[tuple[int, int]] | None = None
    ) -> Iterator[Waiting]:
        """Yield what has a deadline; of those that are given, if some are."""
        start = (-1, -1)
        if after[0] >= 0:
            start = (after[0] - self._state.wall.ahead_ms, after[2] if after[1] == 1 else -1)
        if armed is None:
            armed = self._state.leases.deadlines.in_order(start)
        for due_ms, delivery_id in armed:
            waiting = self._state.wall.at(due_ms), 1, delivery_id
            if waiting > after:
                yield waiting

    def _ripe(self, ready: list[tuple[int, int]], after: Waiting) -> Iterator[Waiting]:
        """Yield retries whose time has come, until somebody receives them."""
        ahead_ms = self._state.wall.ahead_ms
        due_ms, kind, id = after
        deadline_ms = due_ms - ahead_ms if due_ms > 0 else due_ms  # 0 is 0, of a redriven one
        start = (deadline_ms, id) if kind == 1 else (deadline_ms + (kind > 1), -1)
        for deadline_ms, id in ready[bisect_right(ready, start) :]:
            yield (deadline_ms + ahead_ms if deadline_ms else 0), 1, id

    def known_counts(self, filter: PendingFilter) -> Iterator[PendingCount]:
        """Count what waits by kind, topic and group, from counters: nothing is looked at."""
        catalog = self._state.catalog
        for kind, of_topics in (
            (PendingKind.DELAYED, self._state.delayed_counts),
            (PendingKind.HALF, self._state.halves.counts),
        ):
            if filter.kind not in (None, kind) or filter.group:
                continue
            for topic_id, count in of_topics.items():
                topic = catalog.topic_by_id(topic_id)
                if topic is not None and filter.topic in ("", topic.name):
                    yield PendingCount(kind=kind, topic=topic.name, group="", count=count)
        if filter.kind in (PendingKind.DELAYED, PendingKind.HALF):
            return
        for (group_id, topic_id), subscription in self._state.subscriptions.items():
            group, topic = catalog.group_by_id(group_id), catalog.topic_by_id(topic_id)
            if group is None or topic is None:
                continue
            if filter.topic not in ("", topic.name) or filter.group not in ("", group.name):
                continue
            counts = subscription.counts
            backoff = counts[State.BACKOFF] + counts[State.READY]
            for kind, count, ready in (
                (PendingKind.BACKOFF, backoff, counts[State.READY]),
                (PendingKind.IN_FLIGHT, counts[State.LEASED], 0),
            ):
                if count and filter.kind in (None, kind):
                    yield PendingCount(
                        kind=kind, topic=topic.name, group=group.name, count=count, ready=ready
                    )

    def _key(self, waiting: Waiting) -> _Where | None:
        """Tell where it waits; None: its topic is deleted, or its record is damaged."""
        catalog = self._state.catalog
        if waiting[1] == 0:
            try:
                head = decode_message_head(self._state.read(waiting[2]).payload)
            except (CorruptRecordError, struct.error):
                return None
            topic = catalog.topic_by_id(head.topic_id)
            return None if topic is None else (PendingKind.DELAYED, topic.name, "")
        if waiting[1] == 2:
            topic = catalog.topic_by_id(_half(self._state, waiting).topic_id)
            return None if topic is None else (PendingKind.HALF, topic.name, "")
        delivery = self._state.leases.deliveries[waiting[2]]
        topic = catalog.topic_by_id(delivery.topic_id)
        group = catalog.group_by_id(delivery.group_id)
        if topic is None or group is None:
            return None
        return _kind(delivery), topic.name, group.name

    def _item(self, waiting: Waiting, where: _Where) -> PendingItem | None:
        """Describe what waits; None: its record is damaged."""
        kind, topic, group = where
        state = self._state
        delivery = state.leases.deliveries[waiting[2]] if waiting[1] == 1 else None
        half = _half(state, waiting) if waiting[1] == 2 else None
        try:
            stored = state.store.log.read(_position(state, waiting))
        except CorruptRecordError:
            return None
        record = original(stored)
        rest, sys = stored_slices(record)
        level = 0
        if record.type is RecordType.MESSAGE:
            level = decode_message_head(record.payload).delay_level
        limits = state.catalog.group(group)
        failures = self._attempts.timeline(delivery)[-1:] if delivery else []
        return PendingItem(
            kind=kind,
            pending_id=_pending_id(state, waiting),
            topic=topic,
            group=group,
            due_ms=_due_ms(state, delivery) if delivery else waiting[0],
            stored_ms=state.wall.time_of_day(record.store_ms),
            attempt=delivery.attempt if delivery else 0,
            max_attempts=limits.max_attempts if limits else 0,
            delay_level=level,
            rest=rest,
            sys=sys,
            failure=failures[0].failure if failures else None,
            checks=half.checks if half else 0,
            checks_max=state.config.transaction.checks_max if half else 0,
            ready=delivery is not None and delivery.state is State.READY,
            client_id=_client_id(state, delivery) if delivery else "",
            redriven_ms=_redriven_ms(state, self._attempts, delivery) if delivery else 0,
        )

    def _find(self, pending_id: str) -> tuple[Waiting, PendingItem]:
        """Find what waits by our id, or by a message id among the first `page_entries_max`."""
        waiting, id_bits = parse_id(pending_id)
        if waiting is None:
            waiting = self._by_message_id(pending_id)
        elif waiting[1] == 0:
            waiting = where_now(self._state, waiting, id_bits)
        elif waiting[1] == 2:
            half = self._state.halves.get(waiting[2])
            known = half is not None and id_bits in (-1, half.id_hash & ID_BITS_MASK)
            waiting = _half_waiting(self._state, half) if half is not None and known else None
        elif waiting[2] not in self._state.leases.deliveries:
            waiting = None
        where = None if waiting is None else self._key(waiting)
        item = None if waiting is None or where is None else self._item(waiting, where)
        if waiting is None or item is None:
            raise MessageNotFoundError(f"nothing waits under {pending_id}")
        return waiting, item

    def _by_message_id(self, message_id: str) -> Waiting | None:
        waits = islice(self._in_order(PendingFilter(), START), self._bounds.page_entries_max)
        matches = [waiting for _, waiting in waits if _is(self._state, message_id, waiting)]
        if len(matches) > 1:
            raise BadRequestError(f"{len(matches)} waits belong to message {message_id}: name one")
        return matches[0] if matches else None


def _timer(state: EngineState, waiting: Waiting, due_ms: int) -> TimerPayload:
    record = state.read(waiting[2])
    topic_id = decode_message_head(record.payload).topic_id
    return TimerPayload(waiting[2], waiting[0], due_ms, topic_id, record.length)


def _is(state: EngineState, message_id: str, waiting: Waiting) -> bool:
    """Tell whether it is that message that waits; one whose record is damaged is not."""
    try:
        return has_id(state.read(_position(state, waiting)), message_id)
    except CorruptRecordError:
        return False


def _due_ms(state: EngineState, delivery: Delivery) -> int:
    """Return its deadline on the wall clock; 0: nobody has held it in this life."""
    return state.wall.at(delivery.deadline_ms) if delivery.deadline_ms else 0


def _redriven_ms(state: EngineState, attempts: Attempts, delivery: Delivery) -> int:
    """Return when it was redriven, of one without a deadline; 0: that is not known any more."""
    if delivery.deadline_ms:
        return 0
    since_ms = attempts.ready_since_ms(delivery)
    return state.wall.time_of_day(since_ms) if since_ms > LONG_AGO_MS else 0


def _client_id(state: EngineState, delivery: Delivery) -> str:
    return delivery.client_id or (state.clients.name(delivery.client) if delivery.client else "")


def _retry(state: EngineState, waiting: Waiting, pending_id: str) -> Delivery:
    delivery = state.leases.deliveries[waiting[2]]
    if delivery.state is State.LEASED:
        raise PreconditionFailedError(
            f"{pending_id} is in flight: a consumer holds it until its lease ends"
        )
    return delivery


def _halves(state: EngineState, after: Waiting) -> Iterator[Waiting]:
    """Yield halves by their checks; put in order only as far as it is consumed."""
    ahead_ms = state.wall.ahead_ms
    entries = [(half.due_ms + ahead_ms, 2, half.first) for half in state.halves]
    if after > (-1, -1, -1):
        entries = [entry for entry in entries if entry > after]
    heapify(entries)
    while entries:
        yield heappop(entries)


def _half_waiting(state: EngineState, half: HalfMessage) -> Waiting:
    return state.wall.at(half.due_ms), 2, half.first


def _half(state: EngineState, waiting: Waiting) -> HalfMessage:
    half = state.halves.get(waiting[2])
    assert half is not None
    return half


def _position(state: EngineState, waiting: Waiting) -> int:
    """Return the position of the record that holds what waits."""
    if waiting[1] == 2:
        return _half(state, waiting).position
    return state.leases.deliveries[waiting[2]].position if waiting[1] else waiting[2]


def _pending_id(state: EngineState, waiting: Waiting) -> str:
    if waiting[1] == 2:
        return transaction_id(waiting[2], _half(state, waiting).id_hash)
    if waiting[1]:
        return delivery_pending_id(waiting[2])
    record = state.store.log.read(waiting[2])
    id_hash = decode_message_head(original(record).payload).id_hash
    return delayed_id(waiting[0], first_position(record), id_hash)


def _kind(delivery: Delivery) -> PendingKind:
    return PendingKind.IN_FLIGHT if delivery.state is State.LEASED else PendingKind.BACKOFF


def _matches(where: _Where, filter: PendingFilter) -> bool:
    kind, topic, group = where
    return (
        filter.kind in (None, kind) and filter.topic in ("", topic) and filter.group in ("", group)
    )


def _by_classic_name(filter: PendingFilter) -> PendingFilter:
    """Read SCHEDULE_TOPIC_XXXX as what is delayed, %RETRY%group as what that group gets again."""
    if filter.topic == SCHEDULE_TOPIC:
        return replace(filter, kind=PendingKind.DELAYED, topic="")
    if filter.topic.startswith(RETRY_PREFIX):
        group = filter.topic.removeprefix(RETRY_PREFIX)
        return replace(filter, kind=PendingKind.BACKOFF, topic="", group=group)
    return filter
