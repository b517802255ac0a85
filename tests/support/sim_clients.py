"""Clients of a simulated broker: random calls to an engine, every promise into the ledger.

What a client is told becomes a promise when it survives what may happen next: an answer is kept as
an event with the position of the log it depends on, and reaches the ledger when the log is written
that far (the process may die) or durable that far (power may fail), as the test decides. What a
crash leaves over was asked and never answered.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from latermq_broker.delivery.transaction import HalfEvent
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.model import (
    Backoff,
    DeadFilter,
    Failure,
    Outgoing,
    PendingFilter,
    PendingKind,
    ReceiveRequest,
    TopicType,
)
from latermq_broker.errors import RequestError, StoreFullError
from latermq_broker.store.catalog import BackoffKind
from support.ledger import Delivery, Ledger, Outcome

TOPIC: Final = "orders"
FILLER_TOPIC: Final = "filler"
GROUP: Final = "workers"
ORDERED: Final = "ordered"  # keeps the order within message groups
GROUPS: Final = (GROUP, ORDERED)
KEYS: Final = ("", "", "a", "b")  # message groups
ATTEMPTS_MAX: Final = 4
LADDERS_MS: Final = ((150, 300), (150, 300), (400,))
AUTO_RENEW_MS: Final = 700
DELAYS_MS: Final = (20, 150, 700, 2_000, 90_000, 3_600_000)
LEASES_MS: Final = (300, 500, 900)
FAILURE: Final = Failure("Crash", "on purpose", "", "")
QUESTION: Final = -1


class Event(NamedTuple):
    """`name` is a method of the ledger; `lost` what to tell it instead when a crash forgets it."""

    position: int
    life: int  # of the broker
    name: str
    arguments: tuple[Any, ...]
    lost: tuple[str, tuple[Any, ...]] | None
    named: Mapping[str, Any] = MappingProxyType({})  # arguments, too


class Held(NamedTuple):
    group: str
    message_id: str
    attempt: int  # 0: a crash may have forgotten it
    handle: str
    push: bool


class Clients:
    """`engine`, `life` and `now_ms` are set by whoever runs them."""

    def __init__(self, engine: Engine, random: Random, now_ms: int) -> None:
        self.engine = engine
        self.now_ms = now_ms
        self.events: deque[Event] = deque()
        self.life = 1
        self.sends = 0
        self._random = random
        self._held: list[Held] = []
        self._topics = self._replies = 0
        self._open: list[tuple[str, str]] = []  # transactions: id, message; some long ended
        self._actions: list[Callable[[], None]] = []
        for action, weight in (
            (self._send, 10), (self._receive, 8), (self._ack, 8), (self._nack_or_extend, 7),
            (self._suspend, 1), (self._forward, 2), (self._cancel, 2),
            (self._reschedule, 2), (self._redrive, 2), (self._make_topic, 1), (self._fill, 3),
            (self._begin, 3), (self._end, 6), (self._answer_checks, 2), (self._alter_group, 1),
            (self._alter_topic, 1),
        ):  # fmt: skip
            self._actions += [action] * weight

    def act(self) -> None:
        """One call of some client. A refusal is an answer, too; everything else is raised."""
        asked = len(self.events)
        try:
            self._random.choice(self._actions)()
        except StoreFullError:  # some of it may have happened
            self.engine.write()
        except RequestError:  # too late, or not there any more: nothing happened
            while len(self.events) > asked:
                self.events.pop()
            self.engine.write()

    def _ask(self, name: str, *arguments: Any, **named: Any) -> None:
        """Goes into the ledger before the engine is called."""
        lost = (name, arguments)
        self.events.append(Event(QUESTION, self.life, name, arguments, lost, named))

    def _told(
        self,
        name: str,
        *arguments: Any,
        lost: tuple[str, tuple[Any, ...]] | None = None,
        **named: Any,
    ) -> None:
        """What was asked is written, and answered."""
        self.engine.write()
        position = self.engine.store.log.end
        self.events.append(Event(position, self.life, name, arguments, lost, named))

    # --- what clients do -----------------------------------------------------------------------

    def _send(self) -> None:
        random = self._random
        bodies, keys = self._new(random.choice((1, 1, 2, 4)))
        due = dict.fromkeys(bodies, 0)
        for name in bodies:
            if random.random() < 0.3:
                due[name] = self.now_ms + random.choice(DELAYS_MS)
        at_once = {name: key for name, key in keys.items() if not due[name]}
        asked = {name: (body, due[name]) for name, body in bodies.items()}
        self._ask("sending", asked, self.now_ms, keys=at_once)
        messages = [
            _outgoing(name, body, keys[name])._replace(deliver_at_ms=due[name])
            for name, body in bodies.items()
        ]
        try:
            self.engine.send(messages, self.now_ms)
        except StoreFullError:
            self._ask("sent", list(bodies), Outcome.REFUSED)
            self.engine.write()
            return
        self._told("sent", list(bodies), Outcome.DONE)

    def _new(self, count: int) -> tuple[dict[str, bytes], dict[str, str]]:
        """Bodies and message groups of so many, by message id."""
        random = self._random
        names = [f"m{self.sends + number}" for number in range(1, count + 1)]
        self.sends += count
        bodies = {name: random.randbytes(random.choice((10, 100, 700, 1_500))) for name in names}
        return bodies, {name: random.choice(KEYS) for name in names}

    # --- transactions --------------------------------------------------------------------------

    def _begin(self) -> None:
        bodies, keys = self._new(self._random.choice((1, 1, 3)))
        self._ask("sending", {n: (body, 0) for n, body in bodies.items()}, self.now_ms, half=True)
        messages = [_outgoing(name, body, keys[name]) for name, body in bodies.items()]
        try:
            sent = self.engine.transactions.send(messages, self.now_ms)
        except StoreFullError:
            self._ask("sent", list(bodies), Outcome.REFUSED)
            self.engine.write()
            return
        self._told("sent", list(bodies), Outcome.DONE)
        self._open += zip((one.transaction_id for one in sent), bodies, strict=True)

    def _end(self) -> None:
        """Or once more: its producer does not know whether it did."""
        if not self._open:
            return
        del self._open[:-20]
        self._end_as_meant(*self._random.choice(self._open))

    def _end_as_meant(self, transaction_id: str, name: str) -> None:
        commit = int(name[1:]) % 3 > 0
        event = HalfEvent.COMMIT if commit else HalfEvent.ROLLBACK
        self._ask("ending", name, commit=commit)
        self.engine.transactions.end(TOPIC, transaction_id, name, event, self.now_ms)
        self._told("ended", name, commit=commit)

    def _answer_checks(self) -> None:
        """Asked how a transaction ended, a producer says so, or says nothing."""
        transactions = self.engine.transactions
        for first in transactions.waiting(TOPIC, 3):
            check = transactions.check(first, self.now_ms)
            if check is None:
                continue
            name = check.sys.decode()
            self._told("checked", name)
            transactions.asked(first, "producer", self.now_ms)
            if self._random.random() < 0.5:
                self._end_as_meant(check.transaction_id, name)
        self.engine.write()

    # --- others --------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Others use the broker too: segments fill, grow old and go."""
        body = bytes(self._random.choice((500, 1_500)))
        filler = Outgoing(topic=FILLER_TOPIC, rest=body, sys=b"f", message_id="f")
        for _ in range(self._random.randrange(5)):
            try:
                self.engine.send([filler], self.now_ms)
            except StoreFullError:
                break
        self.engine.write()

    def _receive(self) -> None:
        random = self._random
        push = random.random() < 0.2
        group = random.choice((GROUP, GROUP, ORDERED))
        self._replies += 1
        lease_ms = AUTO_RENEW_MS if push else random.choice(LEASES_MS)
        request = ReceiveRequest(
            group=group,
            topic=TOPIC,
            client_id=random.choice(("c1", "c2")),
            count_max=random.choice((1, 3, 8)),
            invisible_ms=lease_ms,
            auto_renew=push,
        )
        for one in self.engine.receive(request, self.now_ms):
            name = one.sys.decode()
            now_ms = self.now_ms
            times = (now_ms, now_ms, now_ms, lease_ms)
            reply = self._replies if group == ORDERED else 0
            delivery = Delivery(name, one.rest, one.attempt, *times, reply)
            self._told("delivered", group, delivery, lost=("unseen", (group, name)))
            self._held.append(Held(group, name, one.attempt, one.handle, push))
        self.engine.write()

    def _take(self, *, sure: bool = True) -> Held | None:
        """Something held, which may long have been over.

        Args:
            sure: not what a crash may have forgotten. Such a handle may be the twin of a newer one
                for the same message: to acknowledge with it is fine, and done; to change the lease
                would take it from its holder (docs/reliability.md).
        """
        if not self._held:
            return None
        del self._held[:-30]
        held = self._held.pop(self._random.randrange(len(self._held)))
        return held if held.attempt or not sure else None

    def _ack(self) -> None:
        for _ in range(self._random.randrange(1, 4)):
            held = self._take(sure=False)
            if held is None:
                return
            self._ask("acking", held.group, held.message_id)
            [error] = self.engine.ack(held.group, [held.handle], self.now_ms)
            self._told("_acked", held, error is None, self.now_ms)

    def _nack_or_extend(self) -> None:
        if (held := self._take()) is None:
            return
        if self._random.random() < 0.6:
            self._change(held, self._ladder(held)[0], failure=FAILURE)
        else:
            self._change(held, self._random.choice(LEASES_MS))

    def _ladder(self, held: Held) -> tuple[int, int]:
        """The wait after this attempt, as the group's policy has it now, and its shortest."""
        backoff = self.engine.groups.get(held.group).backoff
        assert backoff is not None
        waits = backoff.delays_ms
        return waits[min(held.attempt, len(waits)) - 1], min(waits)

    def _change(self, held: Held, wait_ms: int, failure: Failure | None = None) -> None:
        """An auto-renewed lease takes every change for a nack, with the ladder's wait."""
        where = (held.group, held.message_id, self.now_ms)
        sure_ms = min(wait_ms, self._ladder(held)[1]) if held.push else wait_ms
        self._ask("waiting", *where, sure_ms)
        handle = self.engine.change_invisible(
            held.group, held.handle, wait_ms, self.now_ms, failure=failure
        )
        self._told("waits", *where, sure_ms)
        if self.engine._state.live_delivery(held.group, handle, self.now_ms) is not None:
            self._held.append(held._replace(handle=handle))  # else it is dead now

    def _suspend(self) -> None:
        if (held := self._take()) is None:
            return
        where = (held.group, held.message_id)
        self._ask("waiting", *where, self.now_ms, 100)
        self._ask("suspending", *where)
        self.engine.change_invisible(held.group, held.handle, 100, self.now_ms, suspend=True)
        self._told("waits", *where, self.now_ms, 100)

    def _forward(self) -> None:
        if (held := self._take()) is None:
            return
        self._ask("forwarding", held.group, held.message_id)
        self.engine.forward(held.group, held.handle, self.now_ms, FAILURE)
        self._told("forwarded", held.group, held.message_id)

    # --- what operators do ---------------------------------------------------------------------

    def _delayed(self) -> tuple[str, str] | None:
        """Message id and pending id of something that waits for its time."""
        wanted = PendingFilter(kind=PendingKind.DELAYED, topic=TOPIC)
        items, _ = self.engine.pending.page(wanted, 20)
        if not items:
            return None
        item = self._random.choice(items)
        return item.sys.decode(), item.pending_id

    def _cancel(self) -> None:
        if (found := self._delayed()) is None:
            return
        topic = self._random.choice(("", TOPIC))  # an operator's, or a producer's recall
        self._ask("cancelling", found[0])
        self.engine.pending.cancel(found[1], self.now_ms, topic=topic)
        self._told("cancelled", found[0])

    def _reschedule(self) -> None:
        if (found := self._delayed()) is None:
            return
        due_ms = self.now_ms + self._random.choice((0, *DELAYS_MS))
        self._ask("rescheduling", found[0], due_ms)
        self.engine.pending.postpone(found[1], due_ms, self.now_ms)
        self._told("rescheduled", found[0], due_ms)

    def _redrive(self) -> None:
        group = self._random.choice(GROUPS)
        letters = self.engine.dead.scan(group, DeadFilter(), count_max=10).letters
        if not letters:
            return
        letter = self._random.choice(letters)
        name = letter.sys.decode()
        self._ask("redriving", group, name)
        self.engine.dead.redrive(group, letter.queue_offset, "", self.now_ms)
        self._told("redriven", group, name)

    def _make_topic(self) -> None:
        self._topics += 1
        name = f"made-{self._topics}"
        self._ask("making", name)
        self.engine.topics.create(name, TopicType.NORMAL, 2, self.now_ms)
        self._told("made", name)

    def _alter_group(self) -> None:
        group = self._random.choice(GROUPS)
        before = self.engine.groups.get(group).max_attempts
        attempts = self._random.choice((ATTEMPTS_MAX, ATTEMPTS_MAX + 1, ATTEMPTS_MAX + 2))
        ladder = Backoff(kind=BackoffKind.LADDER, delays_ms=self._random.choice(LADDERS_MS))
        self._ask("altering", group, before, attempts)
        self.engine.groups.alter(
            group,
            max_attempts=attempts,
            backoff=ladder,
            clear_backoff=False,
            now_ms=self.now_ms,
        )
        self._told("altered", group, attempts)

    def _alter_topic(self) -> None:
        """More queues: message groups keep theirs."""
        topic = self.engine.catalog.topic(TOPIC)
        if topic is not None and topic.queue_count < 4 and not self._random.randrange(4):
            self.engine.topics.alter(TOPIC, None, topic.queue_count + 1, self.now_ms)
            self._told("has_queues", topic.queue_count + 1)

    # --- what becomes a promise ----------------------------------------------------------------

    def settle(self, ledger: Ledger, upto: int) -> None:
        """Answers that rest on the log below `upto` are promises from now on."""
        while self.events and self.events[0].position <= upto:
            _apply(ledger, self.events.popleft())

    def forget(self, ledger: Ledger, upto: int) -> None:
        """A crash kept the log up to `upto`: all other answers were never given.

        Clients still hold what they received; those handles are nothing any more.
        """
        lost = _forget(ledger, self.events, upto)
        self.events.clear()
        self._held = [
            held._replace(attempt=0) if (held.group, held.message_id) in lost else held
            for held in self._held
        ]


def _outgoing(name: str, body: bytes, key: str) -> Outgoing:
    return Outgoing(topic=TOPIC, rest=body, sys=name.encode(), message_id=name, message_group=key)


def imagine(ledger: Ledger, clients: Clients, upto: int) -> Ledger:
    """The ledger as it would be after a crash now; nothing changes."""
    other = ledger.clone()
    _forget(other, clients.events, upto)
    return other


def _forget(ledger: Ledger, events: Iterable[Event], upto: int) -> set[tuple[str, str]]:
    """The groups and messages whose handles are forgotten."""
    forgotten: set[tuple[str, str]] = set()
    for event in events:
        if event.position <= upto:
            _apply(ledger, event)
            continue
        if event.lost is not None:
            _apply(ledger, event._replace(name=event.lost[0], arguments=event.lost[1]))
        if event.name == "delivered":
            forgotten.add((event.arguments[0], event.arguments[1].message_id))
        elif event.name == "waits":
            forgotten.add((event.arguments[0], event.arguments[1]))
    return forgotten


def _apply(ledger: Ledger, event: Event) -> None:
    """In the life it is of: an answer may become a promise when that is over."""
    life, ledger.life = ledger.life, event.life
    if event.name == "_acked":
        held, accepted, at_ms = event.arguments
        ledger.acked(held.group, held.message_id, held.attempt, accepted=accepted, at_ms=at_ms)
    else:
        getattr(ledger, event.name)(*event.arguments, **event.named)
    ledger.life = life
