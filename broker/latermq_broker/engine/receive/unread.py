"""What a group was not given of a queue: from where a receive looks at it, and what it decides.

A receive leases what its filter wants. What another live consumer of the group wants stays where it
is, and the group's next offset before it. What nobody wants is passed over, but not by a receive
that has waited: its client may want something else by now, and passes over with its next one.
"""

from collections.abc import Iterator
from typing import Final

from latermq_broker.delivery.filters.filter import MessageFilter
from latermq_broker.engine.receive.entry_filter import EntryFilter, OtherFilters
from latermq_broker.engine.receive.leasing import ReplyBudget
from latermq_broker.engine.state.letter_states import LetterStates
from latermq_broker.engine.state.state import Subscription
from latermq_broker.store.derived.consume_queue import ConsumeQueue, Entry
from latermq_broker.store.records.lease_records import AHEAD_PASS, ORDERED_TAKE, OrderedRow

LOOKED_MAX: Final = 4_096  # pairs of filter and queue whose looks a group remembers of a topic


class Wishes:
    """What one receive wants, what others want, and whether it may pass over the rest."""

    __slots__ = ("entry_filter", "filter", "others", "passes")

    def __init__(
        self,
        filter: MessageFilter,
        entry_filter: EntryFilter | None,
        others: OtherFilters,
        *,
        passes: bool,
    ) -> None:
        self.filter = filter
        self.entry_filter = entry_filter  # None: everything
        self.others = others
        self.passes = passes

    @property
    def spent(self) -> bool:
        """Tell whether filters have looked at as much as they may in one receive."""
        if self.entry_filter is None:
            return False
        return self.entry_filter.spent or self.others.spent

    def start(self, subscription: Subscription, queue_id: int, cursor: int) -> int:
        """Find where to begin: before it nothing of the queue is to be decided."""
        looked = subscription.looked
        start = looked.get((self.filter, queue_id), 0)
        if self.passes:
            start = min(start, looked.get((None, queue_id), 0))
        return max(cursor, start)

    def note(self, subscription: Subscription, queue_id: int, end: int) -> None:
        """Remember that all below `end` of a queue is decided."""
        looked = subscription.looked
        if len(looked) >= LOOKED_MAX:
            looked.clear()
        looked[self.filter, queue_id] = end
        if self.passes:
            looked[None, queue_id] = end


class Look:
    """What a receive of a group without order decided of one queue."""

    __slots__ = ("end", "stalled", "stays", "taken", "unwanted")

    def __init__(self, start: int, *, stays: bool) -> None:
        self.taken: list[int] = []
        self.unwanted: list[int] = []  # starts and ends of what nobody wants, in turn
        self.end = start  # the first offset that is not decided
        self.stays = stays  # something before it is left to others
        self.stalled = False  # more would have to be left to others than may be

    def pass_over(self, offset: int) -> None:
        if self.unwanted and self.unwanted[-1] == offset:
            self.unwanted[-1] = offset + 1
        else:
            self.unwanted += (offset, offset + 1)

    def rows(self, queue_id: int) -> tuple[OrderedRow, ...]:
        """List what is leased, then what is passed over."""
        unwanted = zip(self.unwanted[::2], self.unwanted[1::2], strict=True)
        return (
            *(OrderedRow(0, offset, queue_id, ORDERED_TAKE) for offset in self.taken),
            *(OrderedRow(end - start, start, queue_id, AHEAD_PASS) for start, end in unwanted),
        )


def look(
    wishes: Wishes,
    subscription: Subscription,
    queue: ConsumeQueue,
    cursor: int,
    letters: LetterStates | None,
    reply_budget: ReplyBudget,
    entries_max: int,
    spans_max: int,
) -> Look:
    """Decide what becomes of a queue's messages, as many as the reply has room for.

    Args:
        letters: those that are redriven or dropped, of a topic of dead letters: nobody gets them.
        entries_max: looked at.
        spans_max: so often may what is given be divided by what is left to others.
    """
    queue_id = queue.queue_id
    spans = subscription.ahead.get(queue_id)
    full = spans is not None and len(spans) >= spans_max
    start = cursor if full else wishes.start(subscription, queue_id, cursor)
    decided = Look(start, stays=start > cursor)
    entry_filter, others, passes = wishes.entry_filter, wishes.others, wishes.passes
    for offset, entry in unread(subscription, queue, start, entries_max, reply_budget.count):
        if wishes.spent:
            break
        if letters and offset in letters:
            decided.pass_over(offset)
        elif entry_filter is None or entry_filter(entry.tag_hash, entry.position):
            if not reply_budget.take(entry.length):
                break
            decided.taken.append(offset)
        elif passes and not others(entry.tag_hash, entry.position):
            decided.pass_over(offset)
        elif full:
            decided.stalled = True
            break
        else:
            decided.stays = True
        decided.end = offset + 1
        if not reply_budget.count:
            break
    wishes.note(subscription, queue_id, decided.end)
    return decided


def unread(
    subscription: Subscription, queue: ConsumeQueue, start: int, entries_max: int, page: int
) -> Iterator[tuple[int, Entry]]:
    """Yield (offset, entry) of what the group is not done with, from `start` on.

    Args:
        page: how many entries are read at first; each time twice as many.
    """
    spans = subscription.ahead.get(queue.queue_id)
    left, page = entries_max, max(page, 1)
    while left > 0:
        if spans is not None:
            start = spans.after(start)
        if start >= queue.next:
            return
        count = min(page, left)
        if spans is not None and (next_span := spans.start_after(start)) >= 0:
            count = min(count, next_span - start)
        entries = queue.scan(start, count)
        yield from zip(range(start, start + len(entries)), entries, strict=True)
        start += len(entries)
        left -= len(entries)
        page *= 2
