"""The desk of simulated clients: what was asked and told, until it is a promise.

What a client is told becomes a promise when it survives what may happen next: an answer is kept as
an event with the position of the log it depends on, and reaches the ledger when the log is written
that far (the process may die) or durable that far (power may fail), as the test decides. What a
crash leaves over was asked and never answered.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from random import Random
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from latermq_broker.engine.catalog.lites import lite_key
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import DeadFilter, DeadLetter, Failure, Group, TopicType
from latermq_broker.errors import GroupNotFoundError, RequestError, StoreFullError
from latermq_proto.apache.rocketmq.v2.definition_pb2 import SystemProperties
from support.ledger import Ledger

QUESTION: Final = -1
TOPIC: Final = "orders"
FILLER_TOPIC: Final = "filler"
GROUP: Final = "workers"
ORDERED: Final = "ordered"  # keeps the order within message groups
GROUPS: Final = (GROUP, ORDERED)
KEYS: Final = ("", "", "a", "b")  # message groups
LITE_KEYS: Final = frozenset(map(lite_key, filter(None, KEYS)))  # and lite topics
ATTEMPTS_MAX: Final = 4
LADDERS_MS: Final = ((150, 300), (150, 300), (400,))
AUTO_RENEW_MS: Final = 700
AUTO_RENEWED_MS: Final = 6_000  # for so long the broker renews a lease
UNWANTED_MS: Final = 500  # a retry that is not wanted keeps those behind it back for so long
KEYED_ALWAYS: Final = (TopicType.FIFO, TopicType.LITE)
DELAYED_SHARE: Final = {TopicType.MIXED: 0.3, TopicType.DELAY: 1.0}
TAGS: Final = ("a", "a", "b")
FILTERS: Final = (None, None, frozenset("a"))
DELAYS_MS: Final = (20, 150, 700, 2_000, 90_000, 3_600_000)
LEASES_MS: Final = (300, 500, 900)
WITHDRAW_ALL: Final = ("deleted_topic", "remade_group")
FAILURE: Final = Failure("Crash", "on purpose", "", "")


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
    void: bool = False  # an UpdateOffset, or what was made anew, withdrew its lease

    def doubtful(self) -> "Held":
        """Whether it is good is not known any more."""
        return self._replace(attempt=0, void=False)


class Desk:
    """`engine`, `life`, `began_ms` (its) and `now_ms` are set by whoever runs the clients."""

    def __init__(self, engine: Engine, random: Random, now_ms: int) -> None:
        self.engine = engine
        self.random = random
        self.now_ms = now_ms
        self.events: deque[Event] = deque()
        self.life = 1
        self.began_ms = 0
        self.held: list[Held] = []

    def names(self, queue_id: int, first: int, end: int) -> list[str]:
        """Message ids of what is there in a queue of the topic."""
        rows = self.engine.queues.read(
            TOPIC, "", queue_id, first, end, rows_max=1 << 20, bytes_max=1 << 40, letters=False
        )
        return [name_of(row.sys) for row in rows]

    def given_back(self, group: str, queue_id: int) -> set[str]:
        """Message ids of what was lent, could not be read, and waits to be lent anew."""
        where = self.engine.catalog.require_group(group).id, queue_id
        deliveries = self.engine._state.leases.deliveries
        return {
            name
            for one in map(deliveries.__getitem__, deliveries)
            if (one.group_id, one.queue_id) == where and not one.attempt
            for name in self.names(queue_id, one.offset, one.offset + 1)
        }

    def letters(self, group: str) -> tuple[DeadLetter, ...]:
        """All dead letters of the group that were neither redriven nor dropped."""
        with suppress(GroupNotFoundError):  # deleted, before it had any
            found = self.engine.dead.scan(group, DeadFilter(), count_max=1 << 20, scan_max=1 << 20)
            return found.letters
        return ()

    def letter_names(self, group: str) -> Counter[str]:
        return Counter(name_of(letter.sys) for letter in self.letters(group))

    def attempt(self, action: Callable[[], None]) -> None:
        """Do it. A refusal is an answer, too; everything else is raised."""
        asked = len(self.events)
        try:
            action()
        except StoreFullError:  # some of it may have happened
            self.engine.write()
        except RequestError:  # too late, or not there any more: nothing happened
            while len(self.events) > asked:
                self.events.pop()
            self.engine.write()

    def ask(self, name: str, *arguments: Any, **named: Any) -> None:
        """Goes into the ledger before the engine is called."""
        lost = (name, arguments)
        self.events.append(Event(QUESTION, self.life, name, arguments, lost, named))

    def told(
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

    def settle(self, ledger: Ledger, upto: int) -> None:
        """Answers that rest on the log below `upto` are promises from now on."""
        while self.events and self.events[0].position <= upto:
            _apply(ledger, self.events.popleft())

    def forget(self, ledger: Ledger, upto: int) -> None:
        """A crash kept the log up to `upto`: all other answers were never given.

        Clients still hold what they received; of what is lost the handles are nothing.
        """
        lost = _forget(ledger, self.events, upto)
        anew = any(event.position > upto and event.name in WITHDRAW_ALL for event in self.events)
        self.events.clear()
        self.held = [
            held.doubtful() if anew or (held.group, held.message_id) in lost else held
            for held in self.held
        ]

    def settled(self, group: str, message_id: str) -> None:
        """It was acknowledged: with another handle for the same lease that is told once more."""
        self.held = [
            held.doubtful() if (held.group, held.message_id) == (group, message_id) else held
            for held in self.held
        ]

    @contextmanager
    def withdrawing(self, concerned: Callable[[Held], bool]) -> Iterator[None]:
        """Of a call that withdraws these: they are doubtful until it is answered, and then void."""
        before = self.held
        self.held = [held.doubtful() if concerned(held) else held for held in before]
        yield
        self.held = [
            held._replace(void=bool(held.attempt)) if concerned(held) else held for held in before
        ]


def name_of(sys: bytes) -> str:
    """The message id: alone there, or among the properties that a lite topic needs."""
    return sys.decode() if sys[:1] in b"mf" else SystemProperties.FromString(sys).message_id


def reads(engine: Engine, group: str) -> bool:
    """The topic has what this group reads, whole topics or lite ones; it is refused else."""
    topic, owner = engine.catalog.topic(TOPIC), engine.catalog.group(group)
    if topic is None or owner is None:
        return False
    return not owner.lite_parent or topic.type is TopicType.LITE


def lite_keys(engine: Engine, group: str) -> frozenset[int]:
    """What a client of the group subscribes to."""
    return LITE_KEYS if engine.catalog.require_group(group).lite_parent else frozenset()


def kind_of(group: Group | None) -> str:
    """As the ledger has it; "": it is not there."""
    if group is None:
        return ""
    return "lite" if group.lite_parent else "ordered" if group.fifo else "plain"


def imagine(ledger: Ledger, clients: Desk, upto: int) -> Ledger:
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
        elif event.name == "rewound":
            forgotten.update((event.arguments[0], name) for name in event.arguments[1])
    return forgotten


def _apply(ledger: Ledger, event: Event) -> None:
    """In the life it is of: an answer may become a promise when that is over."""
    life, ledger.life = ledger.life, event.life
    getattr(ledger, event.name)(*event.arguments, **event.named)
    ledger.life = life
