"""Clients of a simulated broker: random calls to an engine, every promise into the ledger."""

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from latermq_broker.delivery.halves import HalfEvent
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.outcome.by_handle import live_delivery
from latermq_broker.engine.state.model import (
    Failure,
    Outgoing,
    ReceiveRequest,
    TagFilter,
)
from latermq_broker.errors import RequestError, StoreFullError
from support.ledger import Delivery, Ledger
from support.ledger_sends import Outcome
from support.sim_desk import (
    AUTO_RENEW_MS,
    AUTO_RENEWED_MS,
    DELAYS_MS,
    FAILURE,
    FILLER_TOPIC,
    FILTERS,
    GROUP,
    KEYS,
    LEASES_MS,
    ORDERED,
    TAGS,
    TOPIC,
    Desk,
)
from support.sim_operators import Operators


class Held(NamedTuple):
    group: str
    message_id: str
    attempt: int  # 0: a crash may have forgotten it
    handle: str
    push: bool
    void: bool = False  # an UpdateOffset withdrew its lease


class Producers:
    """They send, delay and begin transactions, which they end as each was meant to."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._sends = 0
        self._open: list[tuple[str, str]] = []  # transactions: id, message; some long ended

    def send(self) -> None:
        random = self._desk.random
        bodies, keys = self._new(random.choice((1, 1, 2, 4)))
        due = dict.fromkeys(bodies, 0)
        for name in bodies:
            if random.random() < 0.3:
                due[name] = self._desk.now_ms + random.choice(DELAYS_MS)
        at_once = {name: key for name, key in keys.items() if not due[name]}
        tags = {name: random.choice(TAGS) for name in bodies}
        asked = {name: (body, due[name]) for name, body in bodies.items()}
        self._desk.ask("sending", asked, self._desk.now_ms, keys=at_once, tags=tags)
        messages = [
            _outgoing(name, body, keys[name])._replace(deliver_at_ms=due[name], tag=tags[name])
            for name, body in bodies.items()
        ]
        try:
            self._desk.engine.send(messages, self._desk.now_ms)
        except StoreFullError:
            self._desk.ask("sent", list(bodies), Outcome.REFUSED)
            self._desk.engine.write()
            return
        self._desk.told("sent", list(bodies), Outcome.DONE)

    def _new(self, count: int) -> tuple[dict[str, bytes], dict[str, str]]:
        """Bodies and message groups of so many, by message id."""
        random = self._desk.random
        names = [f"m{self._sends + number}" for number in range(1, count + 1)]
        self._sends += count
        bodies = {name: random.randbytes(random.choice((10, 100, 700, 1_500))) for name in names}
        return bodies, {name: random.choice(KEYS) for name in names}

    def begin(self) -> None:
        bodies, keys = self._new(self._desk.random.choice((1, 1, 3)))
        self._desk.ask(
            "sending", {n: (body, 0) for n, body in bodies.items()}, self._desk.now_ms, half=True
        )
        messages = [_outgoing(name, body, keys[name]) for name, body in bodies.items()]
        try:
            sent = self._desk.engine.transactions.send(messages, self._desk.now_ms)
        except StoreFullError:
            self._desk.ask("sent", list(bodies), Outcome.REFUSED)
            self._desk.engine.write()
            return
        self._desk.told("sent", list(bodies), Outcome.DONE)
        self._open += zip((one.transaction_id for one in sent), bodies, strict=True)

    def end(self) -> None:
        """Or once more: its producer does not know whether it did."""
        if not self._open:
            return
        del self._open[:-20]
        self._end_as_meant(*self._desk.random.choice(self._open))

    def _end_as_meant(self, transaction_id: str, name: str) -> None:
        commit = int(name[1:]) % 3 > 0
        event = HalfEvent.COMMIT if commit else HalfEvent.ROLLBACK
        self._desk.ask("ending", name, commit=commit)
        self._desk.engine.transactions.end(TOPIC, transaction_id, name, event, self._desk.now_ms)
        self._desk.told("ended", name, commit=commit)

    def answer_checks(self) -> None:
        """Asked how a transaction ended, a producer says so, or says nothing."""
        transactions = self._desk.engine.transactions
        for first in transactions.waiting(TOPIC, 3):
            check = transactions.check(first, self._desk.now_ms)
            if check is None:
                continue
            name = check.sys.decode()
            self._desk.told("checked", name)
            transactions.asked(first, "producer", self._desk.now_ms)
            if self._desk.random.random() < 0.5:
                self._end_as_meant(check.transaction_id, name)
        self._desk.engine.write()

    def fill(self) -> None:
        """Others use the broker too: segments fill, grow old and go."""
        body = bytes(self._desk.random.choice((500, 1_500)))
        filler = Outgoing(topic=FILLER_TOPIC, rest=body, sys=b"f", message_id="f")
        for _ in range(self._desk.random.randrange(5)):
            try:
                self._desk.engine.send([filler], self._desk.now_ms)
            except StoreFullError:
                break
        self._desk.engine.write()


class Consumers:
    """Of both groups, and of either kind."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.held: list[Held] = []
        self._replies = 0
        self._filters: dict[str, frozenset[str] | None] = {}

    def subscribe(self) -> None:
        """With other tags, from now on."""
        group = self._desk.random.choice((GROUP, ORDERED))
        self._filters[group] = self._desk.random.choice(FILTERS)

    def receive(self) -> None:
        random = self._desk.random
        push = random.random() < 0.2
        group = random.choice((GROUP, GROUP, ORDERED))
        self._replies += 1
        tags = self._filters.get(group)
        lease_ms = AUTO_RENEW_MS if push else random.choice(LEASES_MS)
        request = ReceiveRequest(
            group=group,
            topic=TOPIC,
            client_id=random.choice(("c1", "c2")),
            count_max=random.choice((1, 3, 8)),
            invisible_ms=lease_ms,
            auto_renew=push,
            filter=TagFilter(tags),
        )
        self._desk.ask("receiving", group, tags, self._desk.now_ms)
        for one in self._desk.engine.receive(request, self._desk.now_ms):
            name = one.sys.decode()
            now_ms = self._desk.now_ms
            times = (now_ms, now_ms, now_ms, lease_ms)
            reply = self._replies if group == ORDERED else 0
            # Of what was leased in the millisecond in which another life was cut off, the broker
            # does not know which of them said it.
            renewed_ms = AUTO_RENEWED_MS if push and now_ms > self._desk.began_ms else 0
            delivery = Delivery(name, one.rest, one.attempt, *times, reply, renewed_ms)
            self._desk.told("delivered", group, delivery, lost=("unseen", (group, name)))
            self.held.append(Held(group, name, one.attempt, one.handle, push))
        self._desk.engine.write()

    def _take(self, *, sure: bool = True) -> Held | None:
        """Something held, which may long have been over.

        Args:
            sure: not what a crash may have forgotten. Such a handle may be the twin of a newer one
                for the same message: to acknowledge with it is fine, and done; to change the lease
                would take it from its holder (docs/reliability.md).
        """
        if not self.held:
            return None
        del self.held[:-30]
        held = self.held.pop(self._desk.random.randrange(len(self.held)))
        return held if (held.attempt and not held.void) or not sure else None

    def ack(self) -> None:
        for _ in range(self._desk.random.randrange(1, 4)):
            held = self._take(sure=False)
            if held is None:
                return
            if not held.void:
                self._desk.ask("acking", held.group, held.message_id)
            [error] = self._desk.engine.ack(held.group, [held.handle], self._desk.now_ms)
            if held.void:
                where = (held.group, held.message_id)
                self._desk.told("acked_void", *where, accepted=error is None)
                continue
            self._desk.told(
                "acked",
                held.group,
                held.message_id,
                held.attempt,
                accepted=error is None,
                at_ms=self._desk.now_ms,
            )

    def nack_or_extend(self) -> None:
        if (held := self._take()) is None:
            return
        if self._desk.random.random() < 0.6:
            self._change(held, self._ladder(held)[0], failure=FAILURE)
        else:
            self._change(held, self._desk.random.choice(LEASES_MS))

    def _ladder(self, held: Held) -> tuple[int, int]:
        """The wait after this attempt, as the group's policy has it now, and its shortest."""
        backoff = self._desk.engine.groups.get(held.group).backoff
        assert backoff is not None
        waits = backoff.delays_ms
        return waits[min(held.attempt, len(waits)) - 1], min(waits)

    def _change(self, held: Held, wait_ms: int, failure: Failure | None = None) -> None:
        """An auto-renewed lease takes every change for a nack, with the ladder's wait."""
        where = (held.group, held.message_id, self._desk.now_ms)
        sure_ms = min(wait_ms, self._ladder(held)[1]) if held.push else wait_ms
        self._desk.ask("waiting", *where, sure_ms)
        handle = self._desk.engine.change_invisible(
            held.group, held.handle, wait_ms, self._desk.now_ms, failure=failure
        )
        self._desk.told("waits", *where, sure_ms)
        if (
            live_delivery(self._desk.engine._state, held.group, handle, self._desk.now_ms)
            is not None
        ):
            self.held.append(held._replace(handle=handle))  # else it is dead now

    def suspend(self) -> None:
        if (held := self._take()) is None:
            return
        where = (held.group, held.message_id)
        self._desk.ask("waiting", *where, self._desk.now_ms, 100)
        self._desk.ask("suspending", *where)
        self._desk.engine.change_invisible(
            held.group, held.handle, 100, self._desk.now_ms, suspend=True
        )
        self._desk.told("waits", *where, self._desk.now_ms, 100)

    def forward(self) -> None:
        if (held := self._take()) is None:
            return
        self._desk.ask("forwarding", held.group, held.message_id)
        self._desk.engine.forward(held.group, held.handle, self._desk.now_ms, FAILURE)
        self._desk.told("forwarded", held.group, held.message_id)

    # --- offsets -------------------------------------------------------------------------------

    def commit_offset(self) -> None:
        """To what GetOffset told, which is to change nothing; or past it, or back before it."""
        desk, group = self._desk, self._desk.random.choice((GROUP, ORDERED, ORDERED))
        topic = desk.engine.catalog.topic(TOPIC)
        if topic is None:
            return
        queue_id = desk.random.randrange(topic.queue_count)
        ends = desk.engine.queues.ends(TOPIC, queue_id)
        at = desk.engine.queues.committed(group, TOPIC, queue_id)
        if at is None or not ends.earliest_offset <= at:
            return
        desk.ask("told_offset", group, desk.names(queue_id, ends.earliest_offset, at))
        how = desk.random.choice(("same", "same", "same", "ahead", "back", "back"))
        to = at
        if how == "ahead":
            to = desk.random.randint(at, min(ends.next_offset, at + 2))
        elif how == "back":
            to = desk.random.randint(max(ends.earliest_offset, at - 4), at)
        if to < at:
            self._go_back(group, queue_id, to, desk.names(queue_id, to, ends.next_offset))
            return
        names = desk.names(queue_id, at, to)
        desk.ask("skipping", group, names)
        desk.engine.queues.commit(group, TOPIC, queue_id, to, desk.now_ms)
        desk.told("skipped", group, names)

    def _go_back(self, group: str, queue_id: int, to: int, names: list[str]) -> None:
        desk = self._desk
        letters = desk.letters(group)
        desk.stale_letters.update((group, letter.queue_offset) for letter in letters)
        before = list(self.held)
        self.forget_handles({(group, name) for name in names})
        desk.ask("rewinding", group, names, Counter(one.sys.decode() for one in letters))
        desk.engine.queues.commit(group, TOPIC, queue_id, to, desk.now_ms)
        desk.told("rewound", group, names)
        self.held = [
            held._replace(void=held.group == group and held.message_id in names) for held in before
        ]

    def forget_handles(self, of: Iterable[tuple[str, str]]) -> None:
        """Whether they are good for these groups and messages is not known any more."""
        known = set(of)
        self.held = [
            held._replace(attempt=0, void=False) if (held.group, held.message_id) in known else held
            for held in self.held
        ]


class Clients(Desk):
    """All of them, at one desk."""

    def __init__(self, engine: Engine, random: Random, now_ms: int) -> None:
        super().__init__(engine, random, now_ms)
        producers, operators = Producers(self), Operators(self)
        self._consumers = consumers = Consumers(self)
        weights: dict[Callable[[], None], int] = {
            producers.send: 10, producers.begin: 3, producers.end: 6, producers.answer_checks: 2,
            producers.fill: 3, consumers.receive: 8, consumers.ack: 8, consumers.nack_or_extend: 7,
            consumers.suspend: 1, consumers.forward: 2, consumers.subscribe: 1,
            consumers.commit_offset: 3, operators.cancel: 2,
            operators.reschedule: 2, operators.redrive: 2, operators.make_topic: 1,
            operators.alter_group: 1, operators.alter_topic: 1,
        }  # fmt: skip
        self._actions, self._weights = list(weights), list(weights.values())

    def act(self) -> None:
        """One call of some client. A refusal is an answer, too; everything else is raised."""
        asked = len(self.events)
        try:
            [action] = self.random.choices(self._actions, self._weights)
            action()
        except StoreFullError:  # some of it may have happened
            self.engine.write()
        except RequestError:  # too late, or not there any more: nothing happened
            while len(self.events) > asked:
                self.events.pop()
            self.engine.write()

    def forget(self, ledger: Ledger, upto: int) -> set[tuple[str, str]]:
        """Clients still hold what they received; of what is lost the handles are nothing."""
        lost = super().forget(ledger, upto)
        self._consumers.forget_handles(lost)
        return lost


def _outgoing(name: str, body: bytes, key: str) -> Outgoing:
    return Outgoing(topic=TOPIC, rest=body, sys=name.encode(), message_id=name, message_group=key)
