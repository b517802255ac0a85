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
from support.ledger import Ledger

QUESTION: Final = -1


class Event(NamedTuple):
    """`name` is a method of the ledger; `lost` what to tell it instead when a crash forgets it."""

    position: int
    life: int  # of the broker
    name: str
    arguments: tuple[Any, ...]
    lost: tuple[str, tuple[Any, ...]] | None
    named: Mapping[str, Any] = MappingProxyType({})  # arguments, too


class Desk:
    """`engine`, `life` and `now_ms` are set by whoever runs the clients."""

    def __init__(self, engine: Engine, random: Random, now_ms: int) -> None:
        self.engine = engine
        self.random = random
        self.now_ms = now_ms
        self.events: deque[Event] = deque()
        self.life = 1

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
    return forgotten


def _apply(ledger: Ledger, event: Event) -> None:
    """In the life it is of: an answer may become a promise when that is over."""
    life, ledger.life = ledger.life, event.life
    getattr(ledger, event.name)(*event.arguments, **event.named)
    ledger.life = life
