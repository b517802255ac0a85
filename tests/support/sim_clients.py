"""Clients of a simulated broker: random calls to an engine, every promise into the ledger.

What a client is told becomes a promise when it survives what may happen next: an answer is kept as
an event with the position of the log it depends on, and reaches the ledger when the log is written
that far (the process may die) or durable that far (power may fail), as the test decides. What a
crash leaves over was asked and never answered.
"""

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final, NamedTuple

from latermq_broker.engine.engine import Engine
from latermq_broker.engine.model import (
    DeadFilter,
    Failure,
    Outgoing,
    PendingFilter,
    PendingKind,
    ReceiveRequest,
    TopicType,
)
from latermq_broker.errors import RequestError, StoreFullError
from support.ledger import Delivery, Ledger, Outcome

TOPIC: Final = "orders"
FILLER_TOPIC: Final = "filler"
GROUP: Final = "workers"
ATTEMPTS_MAX: Final = 4
LADDER_MS: Final = (150, 300)
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


class Held(NamedTuple):
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
        self._topics = 0
        self._actions: list[Callable[[], None]] = []
        for action, weight in (
            (self._send, 10), (self._receive, 8), (self._ack, 8), (self._nack_or_extend, 7),
            (self._suspend, 1), (self._forward, 2), (self._cancel, 2),
            (self._reschedule, 2), (self._redrive, 2), (self._make_topic, 1), (self._fill, 3),
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

    def _ask(self, name: str, *arguments: Any) -> None:
        """Goes into the ledger before the engine is called."""
        self.events.append(Event(QUESTION, self.life, name, arguments, (name, arguments)))

    def _told(
        self, name: str, *arguments: Any, lost: tuple[str, tuple[Any, ...]] | None = None
    ) -> None:
        """What was asked is written, and answered."""
        self.engine.write()
        self.events.append(Event(self.engine.store.log.end, self.life, name, arguments, lost))

    # --- what clients do -----------------------------------------------------------------------

    def _send(self) -> None:
        random = self._random
        bodies: dict[str, bytes] = {}
        due: dict[str, int] = {}
        for _ in range(random.choice((1, 1, 2, 4))):
            self.sends += 1
            name = f"m{self.sends}"
            bodies[name] = random.randbytes(random.choice((10, 100, 700, 1_500)))
            due[name] = self.now_ms + random.choice(DELAYS_MS) if random.random() < 0.3 else 0
        asked = {name: (body, due[name]) for name, body in bodies.items()}
        self._ask("sending", asked, self.now_ms)
        messages = [
            Outgoing(
                topic=TOPIC,
                rest=body,
                sys=name.encode(),
                message_id=name,
                deliver_at_ms=due[name],
            )
            for name, body in bodies.items()
        ]
        try:
            self.engine.send(messages, self.now_ms)
        except StoreFullError:
            self._ask("sent", list(bodies), Outcome.REFUSED)
            self.engine.write()
            return
        self._told("sent", list(bodies), Outcome.DONE)

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
        lease_ms = AUTO_RENEW_MS if push else random.choice(LEASES_MS)
        request = ReceiveRequest(
            group=GROUP,
            topic=TOPIC,
            client_id=random.choice(("c1", "c2")),
            count_max=random.choice((1, 3, 8)),
            invisible_ms=lease_ms,
            auto_renew=push,
        )
        for one in self.engine.receive(request, self.now_ms):
            name = one.sys.decode()
            now_ms = self.now_ms
            delivery = Delivery(name, one.rest, one.attempt, now_ms, now_ms, now_ms, lease_ms)
            self._told("delivered", GROUP, delivery, lost=("unseen", (GROUP, name)))
            self._held.append(Held(name, one.attempt, one.handle, push))
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
            self._ask("acking", GROUP, held.message_id)
            [error] = self.engine.ack(GROUP, [held.handle], self.now_ms)
            self._told("_acked", held, error is None, self.now_ms)

    def _nack_or_extend(self) -> None:
        if (held := self._take()) is None:
            return
        if self._random.random() < 0.6:
            wait_ms = LADDER_MS[min(held.attempt, len(LADDER_MS)) - 1]
            self._change(held, wait_ms, failure=FAILURE)
        else:
            self._change(held, self._random.choice(LEASES_MS))

    def _change(self, held: Held, wait_ms: int, failure: Failure | None = None) -> None:
        """An auto-renewed lease takes every change for a nack, with the ladder's wait."""
        where = (GROUP, held.message_id, self.now_ms)
        sure_ms = min(wait_ms, *LADDER_MS) if held.push else wait_ms
        self._ask("waiting", *where, sure_ms)
        handle = self.engine.change_invisible(
            GROUP, held.handle, wait_ms, self.now_ms, failure=failure
        )
        self._told("waits", *where, sure_ms)
        if held.attempt < ATTEMPTS_MAX or not (held.push or failure):  # else it is dead now
            self._held.append(held._replace(handle=handle))

    def _suspend(self) -> None:
        if (held := self._take()) is None:
            return
        where = (GROUP, held.message_id)
        self._ask("waiting", *where, self.now_ms, 100)
        self._ask("suspending", *where)
        self.engine.change_invisible(GROUP, held.handle, 100, self.now_ms, suspend=True)
        self._told("waits", *where, self.now_ms, 100)

    def _forward(self) -> None:
        if (held := self._take()) is None:
            return
        self._ask("forwarding", GROUP, held.message_id)
        self.engine.forward(GROUP, held.handle, self.now_ms, FAILURE)
        self._told("forwarded", GROUP, held.message_id)

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
        self._ask("cancelling", found[0])
        self.engine.pending.cancel(found[1], self.now_ms)
        self._told("cancelled", found[0])

    def _reschedule(self) -> None:
        if (found := self._delayed()) is None:
            return
        due_ms = self.now_ms + self._random.choice((0, *DELAYS_MS))
        self._ask("rescheduling", found[0], due_ms)
        self.engine.pending.postpone(found[1], due_ms, self.now_ms)
        self._told("rescheduled", found[0], due_ms)

    def _redrive(self) -> None:
        letters = self.engine.dead.scan(GROUP, DeadFilter(), count_max=10).letters
        if not letters:
            return
        letter = self._random.choice(letters)
        name = letter.sys.decode()
        self._ask("redriving", GROUP, name)
        self.engine.dead.redrive(GROUP, letter.queue_offset, "", self.now_ms)
        self._told("redriven", GROUP, name)

    def _make_topic(self) -> None:
        self._topics += 1
        name = f"made-{self._topics}"
        self._ask("making", name)
        self.engine.topics.create(name, TopicType.NORMAL, 2, self.now_ms)
        self._told("made", name)

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
            held._replace(attempt=0) if held.message_id in lost else held for held in self._held
        ]


def imagine(ledger: Ledger, clients: Clients, upto: int) -> Ledger:
    """The ledger as it would be after a crash now; nothing changes."""
    other = ledger.clone()
    _forget(other, clients.events, upto)
    return other


def _forget(ledger: Ledger, events: Iterable[Event], upto: int) -> set[str]:
    """The messages whose handles are forgotten."""
    forgotten: set[str] = set()
    for event in events:
        if event.position <= upto:
            _apply(ledger, event)
            continue
        if event.lost is not None:
            _apply(ledger, event._replace(name=event.lost[0], arguments=event.lost[1]))
        if event.name == "delivered":
            forgotten.add(event.arguments[1].message_id)
        elif event.name == "waits":
            forgotten.add(event.arguments[1])
    return forgotten


def _apply(ledger: Ledger, event: Event) -> None:
    """In the life it is of: an answer may become a promise when that is over."""
    life, ledger.life = ledger.life, event.life
    if event.name == "_acked":
        held, accepted, at_ms = event.arguments
        ledger.acked(GROUP, held.message_id, held.attempt, accepted=accepted, at_ms=at_ms)
    else:
        getattr(ledger, event.name)(*event.arguments)
    ledger.life = life
