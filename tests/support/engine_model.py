"""What a broker is to do, in dicts and lists: no log, no files, nothing that has to be recovered.

One topic, some consumer groups. Whoever drives it tells it what was asked of the engine and when
time passes, and compares; it never looks at the engine. A message is in one of

    waits ─due─► queue ─retention─► expired        half ─commit─► queue, ─rollback─► gone
      └─cancel─► gone

and in each group, once it is in a queue,

    fresh ─► leased ─► done              leased ─expires─► ready       any of them ─► dead
               └─nack, suspend─► backoff ─due─► ready ─► leased        dead ─redrive─► ready
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from latermq_broker.delivery.transaction import HalfState
from latermq_broker.engine.model import Backoff, OnDead
from latermq_broker.store.catalog import BackoffKind

FIRST_CHECK_MS = 6_000
CHECK_MS = 10_000
CHECKS_MAX = 2
AGE_MS = 60_000  # of a half message
HALVES_MAX = 12
ALONE_FROM = 3  # the attempt from which on a message of a message group goes alone
IN_HAND = ("leased", "backoff")


class Where(Enum):
    WAITS = "waits"
    HALF = "half"
    ENTERS = "enters"  # its queue, where it is to be found now
    QUEUE = "queue"
    GONE = "gone"


@dataclass
class Message:
    """`due_ms` by the wall clock; `place`: queue id and offset."""

    name: str
    number: int  # in the order of sending
    tag: str
    key: str  # of its message group
    due_ms: int
    where: Where
    pending_id: str = ""
    place: tuple[int, int] = (-1, -1)
    entered_ms: int = 0


@dataclass
class Held:
    """A message in a group: fresh | leased | backoff | ready | done | dead | expired."""

    message: Message
    state: str = "fresh"
    attempt: int = 0
    handle: str = ""
    deadline_ms: int = 0
    dead_ms: int = 0
    push: bool = False


@dataclass
class Half:
    message: Message
    stored_ms: int
    due_ms: int  # of its next check
    checks: int = 0
    state: HalfState = HalfState.PENDING


@dataclass
class Group:
    """One that has `on_dead` keeps the order within message groups."""

    name: str
    tags: frozenset[str] | None = None
    on_dead: OnDead | None = None
    max_attempts: int = 3
    backoff: Backoff | None = None
    held: dict[str, Held] = field(default_factory=dict)  # by message
    parked: dict[str, set[str]] = field(default_factory=dict)  # message group → the dead

    def in_state(self, *states: str) -> list[Held]:
        return [held for held in self.held.values() if held.state in states]

    def wants(self, held: Held) -> bool:
        return self.tags is None or held.message.tag in self.tags

    def spent(self, held: Held) -> bool:
        """Its policy was tightened: it dies when a receive comes to it."""
        return held.state == "ready" and held.attempt >= self.max_attempts

    def line(self, key: str) -> list[Held]:
        """What of a message group may be received, the next first; of none, in any order."""
        mine = [held for held in self.held.values() if held.message.key == key]
        if self.on_dead and key:
            mine.sort(key=lambda held: held.message.place[1])
            if self.blocked(key):
                return []
        return [held for held in mine if held.state in ("fresh", "ready")]

    def blocked(self, key: str) -> bool:
        """Whether a message group stands still, in a group that keeps the order."""
        mine = (held for held in self.held.values() if held.message.key == key)
        return bool(self.parked.get(key)) or any(held.state in IN_HAND for held in mine)

    def receivable(self) -> list[Held]:
        """What a receive may get now, in a group that keeps no order."""
        return [
            held
            for held in self.in_state("fresh", "ready")
            if self.wants(held) and not self.spent(held)
        ]

    def runnable(self) -> bool:
        """Whether a receive must get something, in a group that keeps the order."""
        lines = [self.line(key) for key in {held.message.key for held in self.held.values()}]
        return any(line and not any(map(self.spent, line)) for line in lines)

    def alone(self, attempt: int) -> bool:
        """Nothing may come behind it, of its message group."""
        return self.on_dead is OnDead.PARK or attempt >= min(ALONE_FROM, self.max_attempts)

    def lease(self, held: Held, attempt: int, handle: str, deadline_ms: int, push: bool) -> None:
        assert attempt == held.attempt + 1, "I4: attempt = earlier leases + 1"
        assert attempt <= self.max_attempts, "I4: at most the group's maximum"
        held.state, held.attempt, held.push = "leased", attempt, push
        held.handle, held.deadline_ms = handle, deadline_ms

    def fail(self, held: Held, wait_ms: int, now_ms: int) -> None:
        """A nack: its backoff, or the end."""
        if held.attempt >= self.max_attempts:
            return self.die(held, now_ms)
        if self.backoff is not None:
            wait_ms = wait_after(self.backoff, held.attempt)
        held.state, held.deadline_ms = "backoff", now_ms + wait_ms
        return None

    def die(self, held: Held, now_ms: int) -> None:
        held.state, held.dead_ms = "dead", now_ms
        if held.message.key and self.on_dead is OnDead.PARK:
            self.parked.setdefault(held.message.key, set()).add(held.message.name)

    def leave_dead(self, held: Held, state: str) -> None:
        """Redriven, dropped or expired: what it stopped goes on."""
        held.state, held.attempt = state, 0
        self.parked.get(held.message.key, set()).discard(held.message.name)

    def time_passes(self, now_ms: int) -> None:
        for held in self.in_state(*IN_HAND):
            if held.deadline_ms <= now_ms:
                if held.state == "leased" and held.attempt >= self.max_attempts:
                    self.die(held, now_ms)
                else:
                    held.state = "ready"


def wait_after(backoff: Backoff, attempt: int) -> int:
    if backoff.kind is BackoffKind.EXPONENTIAL:
        return int(min(backoff.initial_ms * backoff.multiplier ** (attempt - 1), backoff.max_ms))
    return backoff.delays_ms[min(attempt, len(backoff.delays_ms)) - 1]


class Model:
    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups = {group.name: group for group in groups}
        self.messages: dict[str, Message] = {}
        self.halves: dict[str, Half] = {}  # by transaction id, the oldest first

    def send(self, name: str, tag: str, key: str, due_ms: int, where: Where) -> Message:
        message = Message(name, len(self.messages), tag, key, due_ms, where)
        self.messages[name] = message
        return message

    def at(self, *wheres: Where) -> list[Message]:
        return [message for message in self.messages.values() if message.where in wheres]

    def enter(self, message: Message, place: tuple[int, int], entered_ms: int) -> None:
        """It was found in its queue: every group may have it."""
        message.where, message.place, message.entered_ms = Where.QUEUE, place, entered_ms
        for group in self.groups.values():
            group.held[message.name] = Held(message)

    def held(self, *states: str) -> list[tuple[Group, Held]]:
        return [(group, held) for group in self.groups.values() for held in group.in_state(*states)]

    def time_passes(self, now_ms: int, wall_ms: int) -> None:
        """Delayed messages follow the wall clock, everything else the broker's own time."""
        for message in self.at(Where.WAITS):
            if message.due_ms <= wall_ms:
                message.where = Where.ENTERS
        for group in self.groups.values():
            group.time_passes(now_ms)
        for half in self.pending_halves():
            if max(half.stored_ms + AGE_MS, half.due_ms) <= now_ms:  # who was asked may answer
                self.end(half, HalfState.ROLLED_BACK)

    def deadlines(self, ahead_ms: int) -> set[int]:
        """When something is due, by the broker's own time; `ahead_ms`: of it, the wall clock."""
        times = {message.due_ms - ahead_ms for message in self.at(Where.WAITS)}
        times |= {held.deadline_ms for _, held in self.held(*IN_HAND)}
        return times | {half.due_ms for half in self.pending_halves()}

    # --- transactions --------------------------------------------------------------------------

    def pending_halves(self) -> list[Half]:
        return [half for half in self.halves.values() if half.state is HalfState.PENDING]

    def begin(self, name: str, message: Message, first_check_ms: int, now_ms: int) -> None:
        due_ms = now_ms + min(first_check_ms or FIRST_CHECK_MS, AGE_MS)
        self.halves[name] = Half(message, now_ms, due_ms)

    def end(self, half: Half, state: HalfState) -> None:
        half.state = state
        half.message.where = Where.ENTERS if state is HalfState.COMMITTED else Where.GONE

    def asked(self, half: Half, now_ms: int) -> None:
        half.checks += 1
        half.due_ms = now_ms + CHECK_MS
        if half.checks == CHECKS_MAX:
            half.due_ms = max(half.due_ms, half.stored_ms + AGE_MS)

    def due_checks(self, now_ms: int) -> set[str]:
        return {
            name
            for name, half in self.halves.items()
            if half.state is HalfState.PENDING
            and half.due_ms <= now_ms
            and half.checks < CHECKS_MAX
        }

    def given_up_for(self, count: int) -> Iterator[str]:
        """Who makes room for so many more: those asked in vain, the order is the broker's."""
        if len(self.pending_halves()) + count > HALVES_MAX:
            for name, half in self.halves.items():
                if half.state is HalfState.PENDING and half.checks == CHECKS_MAX:
                    yield name
