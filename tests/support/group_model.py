"""What one consumer group has of each message, in dicts and lists. See `engine_model`.

    fresh ─► leased ─► done              leased ─expires─► ready       any of them ─► dead
      │        └─nack, suspend─► backoff ─due─► ready ─► leased        dead ─redrive─► ready
      ├─ not wanted when its turn came ─► passed
      └─ skipped by UpdateOffset ─► done       from the offset of an UpdateOffset backwards: fresh

A message group's fresh messages may be `withheld`: looked at, and to come when what is before them
is over. What is withheld when its queue lets go of it is ready, and was never given. What is not
wanted any more may have been passed over, or not yet: `maybe`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from latermq_broker.catalog.catalog import BackoffKind
from latermq_broker.config.config import DeliveryConfig
from latermq_broker.delivery.history import Outcome
from latermq_broker.engine.state.model import Backoff, OnDead

ALONE_FROM = 3  # the attempt from which on a message of a message group goes alone
IN_HAND = ("leased", "backoff")
UNWANTED_MS = 200  # a retry that is not wanted keeps those behind it back for so long
GONE_MS = 1_000  # a renewed lease of a client that is gone
RENEWALS_MS = (60_000, 180_000, 300_000)  # how far the broker's renewals reach, one after another
RENEWED_MS_MAX = 200_000  # then it waits once more as after a failure, and that is it
MARGIN_MS = 10_000  # before its deadline, or half of what it lasts: a lease is looked at


class Where(Enum):
    WAITS = "waits"
    HALF = "half"
    ENTERS = "enters"  # its queue, where it is to be found now
    QUEUE = "queue"
    GONE = "gone"


@dataclass
class Message:
    """`due_ms` by the wall clock; `place`: queue id and offset.

    `pending_id` is what its sender was told; after a change of its time an operator sees another.
    """

    name: str
    number: int  # in the order of sending
    tag: str
    key: str  # of its message group
    due_ms: int
    where: Where
    pending_id: str = ""
    shown_id: str = ""
    place: tuple[int, int] = (-1, -1)
    entered_ms: int = 0


@dataclass(eq=False)
class Letter:
    """A death. Attempts are told by their outcomes, each with the life it was in."""

    message: Message
    dead_ms: int
    parks: bool
    attempts: list[tuple[Outcome, int]]
    state: str = "dead"  # dead | redriven | dropped | expired
    left: str = ""  # redriven | dropped, also when it has expired since


@dataclass
class Held:
    """A message in a group: fresh | leased | backoff | ready | done | passed | dead | expired."""

    message: Message
    state: str = "fresh"
    attempt: int = 0
    handle: str = ""
    deadline_ms: int = 0  # of a ready one: since when it is; 0: it was never given
    push: bool = False
    withheld: bool = False
    maybe: bool = False
    letter: Letter | None = None  # of its last death
    past: list[tuple[Outcome, int]] = field(default_factory=list)  # attempts of earlier lives
    ended: list[Outcome] = field(default_factory=list)  # attempts of this life
    # of a lease that the broker renews while its client lives:
    leased_ms: int = 0
    look_ms: int = 0  # when that is found out; 0: nobody renews it
    renewals: int = 0
    sure: bool = False  # its client had the reply before a life that ended
    unsure: bool = False  # the reply may have died with the broker
    unproved: bool = False  # or with its connection: it is not renewed
    gone: bool = False  # so its end tells that its client was gone

    def begin_anew(self) -> None:
        """It is given as if it never had been: an UpdateOffset went back."""
        self.state, self.attempt, self.handle = "fresh", 0, ""
        self.withheld = self.maybe = False
        self.past, self.ended = [], []
        self.letter = None  # it is of an earlier life

    def hold_until(self, deadline_ms: int) -> None:
        """A renewed lease, which is looked at a while before."""
        self.deadline_ms = deadline_ms
        self.look_ms = deadline_ms - min(MARGIN_MS, (deadline_ms - self.leased_ms) // 2)


@dataclass
class Attempts:
    """What becomes of what it was given; one that has `on_dead` keeps the order."""

    name: str
    tags: frozenset[str] | None = None
    on_dead: OnDead | None = None
    max_attempts: int = 3
    backoff: Backoff | None = None
    held: dict[str, Held] = field(default_factory=dict)  # by message
    letters: list[Letter] = field(default_factory=list)
    renews: bool = False  # its client that has leases renewed lives

    def in_state(self, *states: str) -> list[Held]:
        return [held for held in self.held.values() if held.state in states]

    def lease(self, held: Held, attempt: int, handle: str, now_ms: int, lease_ms: int) -> None:
        assert attempt == held.attempt + 1, "I4: attempt = earlier leases + 1"
        assert attempt <= self.max_attempts, "I4: at most the group's maximum"
        held.state, held.attempt, held.push = "leased", attempt, False
        held.withheld = held.maybe = held.sure = held.unsure = held.unproved = False
        held.handle, held.deadline_ms = handle, now_ms + lease_ms
        held.leased_ms, held.renewals, held.look_ms, held.gone = now_ms, 0, 0, False

    def fail(self, held: Held, wait_ms: int, now_ms: int) -> None:
        """A nack: its backoff, or the end."""
        held.ended.append(Outcome.NACK)
        if held.attempt >= self.max_attempts:
            return self.die(held, now_ms)
        if self.backoff is not None:
            wait_ms = wait_after(self.backoff, held.attempt)
        held.state, held.deadline_ms = "backoff", now_ms + wait_ms
        return None

    def suspend(self, held: Held, wait_ms: int, now_ms: int) -> None:
        """Given back: the attempt does not count."""
        held.ended.append(Outcome.SUSPENDED)
        held.state, held.attempt, held.deadline_ms = "backoff", held.attempt - 1, now_ms + wait_ms

    def forward(self, held: Held, outcome: Outcome, now_ms: int) -> None:
        """An attempt ends by it, if one was under way."""
        if held.state == "leased":
            held.ended.append(outcome)
        self.die(held, now_ms)

    def die(self, held: Held, now_ms: int, *, filtered: bool = False) -> None:
        parks = bool(held.message.key) and self.on_dead is OnDead.PARK and not filtered
        life = held.past[-1][1] + 1 if held.past else 1
        attempts = [*held.past, *((outcome, life) for outcome in held.ended)]
        held.state = "dead"
        held.letter = Letter(held.message, now_ms, parks, attempts)
        self.letters.append(held.letter)

    def keep(self, held: Held) -> None:
        """Its queue lets go of it, and something of its message group is in the way."""
        held.state, held.deadline_ms, held.withheld = "ready", 0, False

    def leave_dead(self, held: Held, state: str, now_ms: int) -> None:
        """Redriven or dropped: what it stopped goes on."""
        assert held.letter is not None
        held.letter.state = held.letter.left = "redriven" if state == "ready" else "dropped"
        held.past, held.ended = held.letter.attempts, []
        held.state, held.attempt, held.handle, held.deadline_ms = state, 0, "", now_ms

    def time_passes(self, now_ms: int) -> None:
        for held in self.in_state(*IN_HAND):
            if held.state == "leased" and held.look_ms and held.look_ms <= now_ms:
                self._look(held, now_ms)
            if held.deadline_ms <= now_ms:
                if held.state == "leased":
                    gone = held.gone or held.unproved or (held.look_ms and not self.renews)
                    held.ended.append(Outcome.CLIENT_GONE if gone else Outcome.EXPIRED)
                if held.state == "leased" and held.attempt >= self.max_attempts:
                    self.die(held, now_ms)
                else:
                    held.state = "ready"

    def _look(self, held: Held, now_ms: int) -> None:
        """Whether a lease is renewed, shortly before its end."""
        end_ms = held.leased_ms + RENEWED_MS_MAX
        if self.renews and not held.unproved and not (held.unsure and not held.renewals):
            if held.deadline_ms < end_ms:
                if end_ms > now_ms:
                    lasting_ms = min(RENEWALS_MS[min(held.renewals, 2)], end_ms - now_ms)
                    held.renewals += 1
                    return held.hold_until(now_ms + lasting_ms)
            elif held.deadline_ms == end_ms and held.deadline_ms > now_ms:
                return held.hold_until(end_ms + self.wait_ms(held))
        held.look_ms = held.deadline_ms
        return None

    def wait_ms(self, held: Held) -> int:
        if self.backoff is not None:
            return wait_after(self.backoff, held.attempt)
        return DeliveryConfig().retry_ladder_ms[held.attempt - 1]

    def client_gone(self, now_ms: int) -> None:
        """Leases that are renewed end soon."""
        self.renews = False
        for held in self.in_state("leased"):
            if held.look_ms:
                held.unproved = True
                if held.deadline_ms > now_ms + GONE_MS:
                    held.hold_until(now_ms + GONE_MS)

    def life_ended(self, *, drained: bool) -> None:
        """Of the broker. After a drained stop every reply is known to have gone out."""
        for held in self.in_state("leased"):
            if held.look_ms and not held.sure:
                held.sure = drained and not held.unsure
                held.unsure = not held.sure


class Group(Attempts):
    """And what comes next."""

    def wants(self, held: Held) -> bool:
        return self.tags is None or held.message.tag in self.tags

    def spent(self, held: Held) -> bool:
        """Its policy was tightened: it dies when a receive comes to it."""
        return held.state == "ready" and held.attempt >= self.max_attempts

    def parked(self, key: str) -> list[Letter]:
        """Letters that stop the message group."""
        return [
            letter
            for letter in self.letters
            if letter.parks and letter.state == "dead" and letter.message.key == key
        ]

    def line(self, key: str) -> list[Held]:
        """What of a message group may be received, the next first; of none, in any order."""
        mine = [held for held in self.held.values() if held.message.key == key]
        if self.on_dead and key:
            mine.sort(key=lambda held: held.message.place[1])
            if self.parked(key) or any(held.state in IN_HAND for held in mine):
                return []
        return [held for held in mine if held.state in ("fresh", "ready")]

    def receivable(self) -> list[Held]:
        """What a receive may get now, in a group that keeps no order."""
        return [
            held
            for held in self.in_state("fresh", "ready")
            if self.wants(held) and not self.spent(held)
        ]

    def unwanted(self, held: Held, now_ms: int) -> bool:
        """A receive that comes to it ends it: the filter has changed, for long enough."""
        waited = now_ms - held.deadline_ms >= UNWANTED_MS
        return held.state == "ready" and not self.wants(held) and waited

    def runnable(self, now_ms: int) -> bool:
        """Whether a receive must get something, in a group that keeps the order."""
        lines = [self.line(key) for key in {held.message.key for held in self.held.values()}]
        return any(
            self._first_comes(line, now_ms) and not any(map(self.spent, line)) for line in lines
        )

    def _first_comes(self, line: list[Held], now_ms: int) -> bool:
        """Whether something of it is next, behind what only has to be passed over."""
        for held in line:
            if self.wants(held) and not held.maybe:
                return True
            if held.message.key and held.state == "ready" and not self.unwanted(held, now_ms):
                return False
        return False

    def alone(self, attempt: int) -> bool:
        """Nothing may come behind it, of its message group."""
        return self.on_dead is OnDead.PARK or attempt >= min(ALONE_FROM, self.max_attempts)

    def looked(self, before: Mapping[int, int], after: Mapping[int, int]) -> None:
        """A receive moved the group from offset to offset in each queue."""
        for held in self.in_state("fresh"):
            queue_id, offset = held.message.place
            if before[queue_id] <= offset < after[queue_id]:
                if not self.wants(held):
                    held.state = "passed"
                    continue
                assert self.on_dead is not None, "I1: passed over, and it was wanted"
                assert held.message.key, "I1: passed over, and nothing is before it"
                held.withheld = True
            elif held.withheld and not self.wants(held):
                held.maybe = True

    def skip(self, queue_id: int, to: int) -> None:
        """What it was not given below is not given; what it has in hand stays."""
        for held in self.in_state("fresh", "passed"):
            if held.message.place[0] == queue_id and held.message.place[1] < to:
                held.state = "done"

    def rewind(self, queue_id: int, to: int) -> list[str]:
        """All from there on is given anew. Returns the handles that are good for nothing now."""
        void: list[str] = []
        for held in self.held.values():
            if held.message.place[0] != queue_id or held.state == "expired":
                continue
            if held.message.place[1] >= to:
                if held.state in IN_HAND and held.handle:
                    void.append(held.handle)
                held.begin_anew()
            elif held.maybe:
                held.state = "done"
        return void


def wait_after(backoff: Backoff, attempt: int) -> int:
    if backoff.kind is BackoffKind.EXPONENTIAL:
        return int(min(backoff.initial_ms * backoff.multiplier ** (attempt - 1), backoff.max_ms))
    return backoff.delays_ms[min(attempt, len(backoff.delays_ms)) - 1]
