"""The desk of simulated clients: what was asked and told, until it is a promise.

What a client is told becomes a promise when it survives what may happen next: an answer is kept as
an event with the position of the log it depends on, and reaches the ledger when the log is written
that far (the process may die) or durable that far (power may fail), as the test decides. What a
crash leaves over was asked and never answered.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import DeadFilter, DeadLetter, Failure
from support.ledger import Ledger

QUESTION: Final = -1
TOPIC: Final = "orders"
FILLER_TOPIC: Final = "filler"
GROUP: Final = "workers"
ORDERED: Final = "ordered"  # keeps the order within message groups
GROUPS: Final = (GROUP, ORDERED)
KEYS: Final = ("", "", "a", "b")  # message groups
ATTEMPTS_MAX: Final = 4
LADDERS_MS: Final = ((150, 300), (150, 300), (400,))
AUTO_RENEW_MS: Final = 700
AUTO_RENEWED_MS: Final = 6_000  # for so long the broker renews a lease
UNWANTED_MS: Final = 500  # a retry that is not wanted keeps those behind it back for so long
TAGS: Final = ("a", "a", "b")
FILTERS: Final = (None, None, frozenset("a"))
DELAYS_MS: Final = (20, 150, 700, 2_000, 90_000, 3_600_000)
LEASES_MS: Final = (300, 500, 900)
FAILURE: Final = Failure("Crash", "on purpose", "", "")


class Event(NamedTuple):
    """`name` is a method of the ledger; `lost` what to tell it instead when a crash forgets it."""

    position: int
    life: int  # of the broker
    name: str
    arguments: tuple[Any, ...]
    lost: tuple[str, tuple[Any, ...]] | None
    named: Mapping[str, Any] = MappingProxyType({})  # arguments, too


class Desk:
    """`engine`, `life`, `began_ms` (its) and `now_ms` are set by whoever runs the clients."""

    def __init__(self, engine: Engine, random: Random, now_ms: int) -> None:
        self.engine = engine
        self.random = random
        self.now_ms = now_ms
        self.events: deque[Event] = deque()
        self.life = 1
        self.began_ms = 0
        self.stale_letters: set[tuple[str, int]] = set()
        """Group and offset: they may be of what an UpdateOffset has it given anew."""

    def names(self, queue_id: int, first: int, end: int) -> list[str]:
        """Message ids of what is there in a queue of the topic."""
        rows = self.engine.queues.read(
            TOPIC, "", queue_id, first, end, rows_max=1 << 20, bytes_max=1 << 40, letters=False
        )
        return [row.sys.decode() for row in rows]

    def letters(self, group: str) -> tuple[DeadLetter, ...]:
        """All dead letters of the group that were neither redriven nor dropped."""
        return self.engine.dead.scan(
            group, DeadFilter(), count_max=1 << 20, scan_max=1 << 20
        ).letters

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

    def forget(self, ledger: Ledger, upto: int) -> set[tuple[str, str]]:
        """A crash kept the log up to `upto`: all other answers were never given.

        Returns the groups and messages whose handles are nothing any more.
        """
        lost = _forget(ledger, self.events, upto)
        self.events.clear()
        return lost


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
