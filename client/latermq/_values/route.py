"""A topic's queues and how one is chosen for a send."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from latermq._values.endpoints import Endpoints

WRITABLE_BROKER_ID: Final = 0


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of a topic; an id of -1 (from an assignment) stands for all of its broker's."""

    topic: str
    id: int
    readable: bool
    writable: bool
    broker_name: str
    broker_id: int
    endpoints: Endpoints


@dataclass(frozen=True)
class Route:
    """All queues of a topic, as the broker listed them."""

    queues: tuple[Queue, ...]

    @cached_property
    def writable(self) -> tuple[Queue, ...]:
        return tuple(q for q in self.queues if q.writable and q.broker_id == WRITABLE_BROKER_ID)

    @cached_property
    def readable(self) -> tuple[Queue, ...]:
        return tuple(q for q in self.queues if q.readable and q.broker_id == WRITABLE_BROKER_ID)

    def endpoints(self) -> set[Endpoints]:
        return {queue.endpoints for queue in self.queues}


def candidates(queues: tuple[Queue, ...], turn: int, message_group: str | None) -> list[Queue]:
    """Return the queues to try a send on, in order: at most one per broker, never none.

    A message group stays on the queue that its hash names, whoever sends it; everything else
    takes turns.
    """
    assert queues
    if message_group:
        digest = hashlib.sha256(message_group.encode()).digest()
        return [queues[int.from_bytes(digest[:8], "big") % len(queues)]]
    start = turn % len(queues)
    rotated = queues[start:] + queues[:start]
    by_broker: dict[str, Queue] = {}
    for queue in rotated:
        by_broker.setdefault(queue.broker_name, queue)
    return list(by_broker.values())
