"""Clients of a simulated broker: random calls to an engine, every promise into the ledger."""

from collections.abc import Callable
from random import Random

from latermq_broker.delivery.halves import HalfEvent
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.outcome.by_handle import live_delivery
from latermq_broker.engine.state.model import (
    Failure,
    Outgoing,
    ReceiveRequest,
    TagFilter,
    TopicType,
)
from latermq_broker.errors import StoreFullError
from latermq_proto.apache.rocketmq.v2.definition_pb2 import SystemProperties
from support.ledger import Delivery
from support.ledger_sends import Outcome
from support.sim_anew import Makers
from support.sim_desk import (
    AUTO_RENEW_MS,
    AUTO_RENEWED_MS,
    DELAYED_SHARE,
    DELAYS_MS,
    FAILURE,
    FILLER_TOPIC,
    FILTERS,
    GROUP,
    KEYED_ALWAYS,
    KEYS,
    LEASES_MS,
    ORDERED,
    TAGS,
    TOPIC,
    Desk,
    Held,
    lite_keys,
    name_of,
    reads,
)
from support.sim_operators import Operators


class Producers:
    """They send, delay and begin transactions, which they end as each was meant to."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._sends = 0
        self._open: list[tuple[str, str]] = []  # transactions: id, message; some long ended

    def send(self) -> None:
        random, type = self._desk.random, self._type()
        bodies, keys = self._new(random.choice((1, 1, 2, 4)))
        due = dict.fromkeys(bodies, 0)
        for name in bodies:
            if random.random() < DELAYED_SHARE.get(type, 0):
                due[name] = self._desk.now_ms + random.choice(DELAYS_MS)
            if type in KEYED_ALWAYS:
                keys[name] = keys[name] or "a"
            elif type is not TopicType.MIXED:
                keys[name] = ""
        at_once = {name: key for name, key in keys.items() if not due[name]}
        tags = {name: random.choice(TAGS) for name in bodies}
        asked = {name: (body, due[name]) for name, body in bodies.items()}
        self._desk.ask("sending", asked, self._desk.now_ms, keys=at_once, tags=tags)
        messages = [
            _outgoing(name, body, keys[name])._replace(deliver_at_ms=due[name], tag=tags[name])
            for name, body in bodies.items()
        ]
        if type is TopicType.LITE:
            messages = [_in_lite_topic(message) for message in messages]
        elif type is TopicType.PRIORITY:
            messages = [message._replace(priority=random.randrange(3)) for message in messages]
        try:
            self._desk.engine.send(messages, self._desk.now_ms)
        except StoreFullError:
            self._desk.ask("sent", list(bodies), Outcome.REFUSED)
            self._desk.engine.write()
            return
        self._desk.told("sent", list(bodies), Outcome.DONE)

    def _type(self) -> TopicType:
        """What may be sent; on its first use the topic is made for everything."""
        topic = self._desk.engine.catalog.topic(TOPIC)
        return topic.type if topic is not None else TopicType.MIXED

    def _new(self, count: int) -> tuple[dict[str, bytes], dict[str, str]]:
        """Bodies and message groups of so many, by message id."""
        random = self._desk.random
        names = [f"m{self._sends + number}" for number in range(1, count + 1)]
        self._sends += count
        bodies = {name: random.randbytes(random.choice((10, 100, 700, 1_500))) for name in names}
        return bodies, {name: random.choice(KEYS) for name in names}

    def begin(self) -> None:
        if self._type() is not TopicType.MIXED:
            return
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
            name = name_of(check.sys)
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
        if not reads(self._desk.engine, group):
            return
        self._replies += 1
        keys = lite_keys(self._desk.engine, group)
        tags = None if keys else self._filters.get(group)
        lease_ms = AUTO_RENEW_MS if push else random.choice(LEASES_MS)
        request = ReceiveRequest(
            group=group,
            topic=TOPIC,
            client_id=random.choice(("c1", "c2")),
            count_max=random.choice((1, 3, 8)),
            invisible_ms=lease_ms,
            auto_renew=push,
            filter=TagFilter(tags),
            lite_keys=keys,
        )
        self._desk.ask("receiving", group, tags, self._desk.now_ms)
        for one in self._desk.engine.receive(request, self._desk.now_ms):
            name = name_of(one.sys)
            now_ms = self._desk.now_ms
            times = (now_ms, now_ms, now_ms, lease_ms)
            reply = self._replies if self._desk.engine.catalog.require_group(group).fifo else 0
            # Of what was leased in the millisecond in which another life was cut off, the broker
            # does not know which of them said it.
            renewed_ms = AUTO_RENEWED_MS if push and now_ms > self._desk.began_ms else 0
            delivery = Delivery(name, one.rest, one.attempt, one.handle, *times, reply, renewed_ms)
            self._desk.told("delivered", group, delivery, lost=("unseen", (group, name)))
            self._desk.held.append(Held(group, name, one.attempt, one.handle, push))
        self._desk.engine.write()

    def _take(self, *, sure: bool = True) -> Held | None:
        """Something held, which may long have been over.

        Args:
            sure: not what a crash may have forgotten. Such a handle may be the twin of a newer one
                for the same message: to acknowledge with it is fine, and done; to change the lease
                would take it from its holder (docs/reliability.md).
        """
        hand = self._desk.held
        if not hand:
            return None
        del hand[:-30]
        held = hand.pop(self._desk.random.randrange(len(hand)))
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
                held.handle if held.attempt else "",
                accepted=error is None,
                at_ms=self._desk.now_ms,
            )
            if error is None:
                self._desk.settled(held.group, held.message_id)

    def nack_or_extend(self) -> None:
        if (held := self._take()) is None:
            return
        if self._desk.random.random() < 0.6:
            self._change(held, self._ladder(held)[0], failure=FAILURE)
        else:
            self._change(held, self._desk.random.choice(LEASES_MS))

    def _ladder(self, held: Held) -> tuple[int, int]:
        """The wait after this attempt, as the group's policy has it now, and its shortest."""
        backoff = self._desk.engine.catalog.require_group(held.group).backoff
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
        self._desk.told("waits", *where, sure_ms, handle)
        if (
            live_delivery(self._desk.engine._state, held.group, handle, self._desk.now_ms)
            is not None
        ):
            self._desk.held.append(held._replace(handle=handle))  # else it is dead now

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
        if topic is None or not reads(desk.engine, group):
            return
        queue_id = desk.random.randrange(topic.queue_count)
        ends = desk.engine.queues.ends(TOPIC, queue_id)
        at = desk.engine.queues.committed(group, TOPIC, queue_id)
        if at is None or not ends.earliest_offset <= at:
            return
        below = desk.names(queue_id, ends.earliest_offset, at)
        given_back = desk.given_back(group, queue_id)
        desk.ask("told_offset", group, [name for name in below if name not in given_back])
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
        with desk.withdrawing(lambda held: held.group == group and held.message_id in names):
            desk.ask("rewinding", group, names, desk.letter_names(group))
            desk.engine.queues.commit(group, TOPIC, queue_id, to, desk.now_ms)
            desk.told("rewound", group, names)


class Clients(Desk):
    """All of them, at one desk."""

    def __init__(self, engine: Engine, random: Random, now_ms: int) -> None:
        super().__init__(engine, random, now_ms)
        producers, consumers, operators = Producers(self), Consumers(self), Operators(self)
        self._makers = makers = Makers(self, operators)
        weights: dict[Callable[[], None], int] = {
            producers.send: 10, producers.begin: 3, producers.end: 6, producers.answer_checks: 2,
            producers.fill: 3, consumers.receive: 8, consumers.ack: 8, consumers.nack_or_extend: 7,
            consumers.suspend: 1, consumers.forward: 2, consumers.subscribe: 1,
            consumers.commit_offset: 3, operators.cancel: 2,
            operators.reschedule: 2, operators.redrive: 2, operators.make_topic: 1,
            operators.alter_group: 1, operators.alter_topic: 1, makers.make_topic: 1,
            makers.make_group: 1,
        }  # fmt: skip
        self._actions, self._weights = list(weights), list(weights.values())

    def act(self) -> None:
        """One call of some client."""
        self.attempt(self._makers.mend_groups)
        [action] = self.random.choices(self._actions, self._weights)
        self.attempt(action)


def _outgoing(name: str, body: bytes, key: str) -> Outgoing:
    return Outgoing(topic=TOPIC, rest=body, sys=name.encode(), message_id=name, message_group=key)


def _in_lite_topic(message: Outgoing) -> Outgoing:
    """Of its key, and it says so itself."""
    key = message.message_group
    sys = SystemProperties(message_id=message.message_id, lite_topic=key).SerializeToString()
    return message._replace(message_group="", lite_topic=key, sys=sys)
