"""The half messages of transactions: one table, and what the broker knows of each.

A half message is stored and visible to no group until its producer says how its transaction ended.

    state        COMMIT     ROLLBACK     CHECK
    PENDING      COMMITTED  ROLLED_BACK  PENDING
    COMMITTED    COMMITTED  -            -
    ROLLED_BACK  -          ROLLED_BACK  -

CHECK: a producer is asked how it ended. EndTransaction is retried, so the same end again changes
nothing; the contrary end is refused, because it did not happen. COMMITTED and ROLLED_BACK have no
object: the last ends are remembered by transaction id, for the repeats.

A half is named by the position where it was stored first: rolled forward, it keeps its name.
"""

from collections import OrderedDict
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from latermq_broker.catalog.shares import count_up
from latermq_broker.delivery.deadlines import Deadlines

ID_BITS_MASK: Final = (1 << 32) - 1  # of the hash of a message id, in names of what waits


class HalfState(IntEnum):
    """The number is in checkpoints."""

    PENDING = 1
    COMMITTED = 2
    ROLLED_BACK = 3


class HalfEvent(IntEnum):
    COMMIT = 1
    ROLLBACK = 2
    CHECK = 3


TRANSITIONS: Final = {
    (HalfState.PENDING, HalfEvent.COMMIT): HalfState.COMMITTED,
    (HalfState.PENDING, HalfEvent.ROLLBACK): HalfState.ROLLED_BACK,
    (HalfState.PENDING, HalfEvent.CHECK): HalfState.PENDING,
    (HalfState.COMMITTED, HalfEvent.COMMIT): HalfState.COMMITTED,
    (HalfState.ROLLED_BACK, HalfEvent.ROLLBACK): HalfState.ROLLED_BACK,
}  # any other pair is not possible


def after(state: HalfState, event: HalfEvent) -> HalfState | None:
    """Look up the next state; None: the event cannot happen there."""
    return TRANSITIONS.get((state, event))


def transaction_id(first: int, id_hash: int) -> str:
    """Make the name of a transaction that operators use; `id_hash` is its message id's."""
    return f"t-{first:x}-{id_hash & ID_BITS_MASK:x}"


def parse_transaction_id(text: str) -> tuple[int, int] | None:
    """Parse such a name to `first` and bits of the id's hash; None: not one of ours.

    -1 for the bits: of an earlier version, which did not name them. In a log that was restored
    another half message may stand at that position.
    """
    begin, *parts = text.split("-")
    digits = "".join(parts)
    if begin != "t" or len(parts) not in (1, 2) or not (digits.isascii() and digits.isalnum()):
        return None
    if not (1 <= len(parts[0]) <= 16 and 1 <= len(parts[-1]) <= 16):
        return None
    try:
        return int(parts[0], 16), int(parts[1], 16) if len(parts) == 2 else -1
    except ValueError:
        return None


class HalfMessage:
    """One that is PENDING."""

    __slots__ = (
        "asked_client",
        "checks",
        "due_ms",
        "first",
        "id_hash",
        "length",
        "position",
        "sender",
        "stored_ms",
        "topic_id",
    )

    def __init__(
        self,
        *,
        first: int,
        position: int,
        length: int,
        topic_id: int,
        id_hash: int,
        stored_ms: int,
        due_ms: int,
        checks: int = 0,
    ) -> None:
        self.first = first
        self.position = position  # where it lies now
        self.length = length  # of the record there
        self.topic_id = topic_id
        self.id_hash = id_hash
        self.stored_ms = stored_ms
        self.due_ms = due_ms  # of the next check, or, after the last one, of its end
        self.checks = checks  # producers asked so far
        self.asked_client = ""  # live: the last of them
        self.sender = ""  # the access key of the user who sent it, if users have names

    def key(self) -> tuple[int | str, ...]:
        """Return what recovery must bring back."""
        return (
            self.first,
            self.position,
            self.length,
            self.topic_id,
            self.id_hash,
            self.stored_ms,
            self.due_ms,
            self.checks,
            self.sender,
        )


class HalfMessages:
    """All that are PENDING, and the last that ended."""

    def __init__(self, ended_max: int, checks_max: int) -> None:
        self.deadlines = Deadlines()  # by `first`
        self.counts: dict[int, int] = {}  # topic id → pending
        self.ended: OrderedDict[int, tuple[HalfState, int]] = OrderedDict()  # (end, id hash)
        self.waiting: dict[int, dict[int, None]] = {}
        """Live: topic id → halves due for a check that no producer was there to be asked for."""
        self.senders: dict[str, int] = {}  # pending ones by access key, where users have names
        self.in_vain: dict[int, None] = {}
        """Those whose producers were asked for the last time."""
        self._ended_max = ended_max
        self._checks_max = checks_max
        self._halves: dict[int, HalfMessage] = {}  # by `first`, the oldest first
        self._named: dict[int, list[int]] = {}  # hash of the message id → `first`, the newest last
        self._ended_named: dict[int, int] = {}  # of those that ended: the last
        self._moved: dict[int, int] = {}  # position → `first`, of those rolled forward

    def __len__(self) -> int:
        return len(self._halves)

    def __iter__(self) -> Iterator[HalfMessage]:
        return iter(self._halves.values())

    def get(self, first: int) -> HalfMessage | None:
        return self._halves.get(first)

    def named(self, id_hash: int, topic_id: int) -> int:
        """Find `first` of the newest with this message id: PENDING in the topic, ended, or 0."""
        for first in reversed(self._named.get(id_hash, [])):
            if self._halves[first].topic_id == topic_id:
                return first
        return self._ended_named.get(id_hash, 0)

    def at(self, position: int) -> HalfMessage | None:
        """Find the half message that lies at a position now; None: none does."""
        half = self._halves.get(self._moved.get(position, position))
        return half if half is not None and half.position == position else None

    def add(self, half: HalfMessage) -> None:
        assert half.first not in self._halves
        self._halves[half.first] = half
        self._named.setdefault(half.id_hash, []).append(half.first)
        self.counts[half.topic_id] = self.counts.get(half.topic_id, 0) + 1
        if half.position != half.first:
            self._moved[half.position] = half.first
        self._arm(half)

    def checked(self, half: HalfMessage, checks: int, due_ms: int) -> None:
        """Note that a producer was asked; the next one is asked at `due_ms`."""
        assert checks > half.checks
        half.checks, half.due_ms = checks, due_ms
        self._forget_waiting(half)
        self._arm(half)

    def move(self, half: HalfMessage, position: int, length: int) -> None:
        """Note where a half message was rolled forward to."""
        assert position > half.position
        self._moved.pop(half.position, None)
        half.position, half.length = position, length
        self._moved[position] = half.first

    def sent_by(self, half: HalfMessage, sender: str) -> None:
        """Remember who sent a half message while it is PENDING."""
        assert not half.sender
        half.sender = sender
        count_up(self.senders, sender)

    def end(self, half: HalfMessage, state: HalfState) -> None:
        count_up(self.senders, half.sender, -1)
        del self._halves[half.first]
        named = self._named[half.id_hash]
        named.remove(half.first)
        if not named:
            del self._named[half.id_hash]
        self._moved.pop(half.position, None)
        self.deadlines.disarm(half.first)
        self.in_vain.pop(half.first, None)
        self._forget_waiting(half)
        self.counts[half.topic_id] -= 1
        assert self.counts[half.topic_id] >= 0
        if not self.counts[half.topic_id]:
            del self.counts[half.topic_id]
        self.remember(half.first, state, half.id_hash)

    def remember(self, first: int, state: HalfState, id_hash: int) -> None:
        self.ended[first] = (state, id_hash)
        self._ended_named[id_hash] = first
        if len(self.ended) > self._ended_max:
            oldest, (_, oldest_hash) = self.ended.popitem(last=False)
            if self._ended_named.get(oldest_hash) == oldest:
                del self._ended_named[oldest_hash]

    def wait(self, half: HalfMessage, until_ms: int) -> None:
        """Let a half whose check is due wait for a producer, but not beyond `until_ms`."""
        assert half.first in self._halves
        self.waiting.setdefault(half.topic_id, {})[half.first] = None
        self.deadlines.arm(half.first, until_ms)

    def pass_over(self, half: HalfMessage) -> None:
        """Put one that waits for a producer behind the others of its topic."""
        waiting = self.waiting[half.topic_id]
        del waiting[half.first]
        waiting[half.first] = None

    def hurry(self, topic_id: int) -> None:
        """Make the halves of a deleted topic due, whatever they wait for."""
        for half in self._halves.values():
            if half.topic_id == topic_id:
                self.deadlines.arm(half.first, 0)

    def _arm(self, half: HalfMessage) -> None:
        self.deadlines.arm(half.first, half.due_ms)
        if half.checks >= self._checks_max:
            self.in_vain[half.first] = None

    def _forget_waiting(self, half: HalfMessage) -> None:
        waiting = self.waiting.get(half.topic_id)
        if waiting is not None:
            waiting.pop(half.first, None)
            if not waiting:
                del self.waiting[half.topic_id]
