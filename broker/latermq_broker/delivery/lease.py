"""The life of a message inside one consumer group: one table, and the object that goes through it.

A message nobody of the group has received yet is READY implicitly, behind the group's cursor on its
queue; a `Delivery` exists from the first lease until the message is done or dead.

    state     RECEIVE  ACK   EXTEND   NACK     SUSPEND  DUE    FORWARD  EXHAUST
    READY     LEASED   DONE  -        -        -        -      -        DEAD
    LEASED    -        DONE  LEASED   BACKOFF  BACKOFF  READY  DEAD     DEAD
    BACKOFF   -        DONE  BACKOFF  BACKOFF  BACKOFF  READY  DEAD     -

NACK is the failure a consumer reports (a push consumer's ChangeInvisibleDuration, or one that
carries a Failure): the attempt is over and counted. SUSPEND gives the message back uncounted. DUE
is the deadline: of a lease (the attempt expired) or of a backoff (nothing is written: being
receivable is a function of time). EXHAUST is the end of the last allowed attempt. In READY nobody
holds a handle: an ACK there is an operator's cancel, or of a message that cannot be read. Each step
that hands the message to someone else, or moves its deadline at a client's wish, starts a new
generation: older receipt handles die. A renewal by the broker keeps the generation.

DONE and DEAD have no object; `RecentlyDone` remembers their last handle while its lease would have
lasted, so that a repeated ack is answered OK.
"""

from collections import OrderedDict
from enum import IntEnum
from typing import Final

from latermq_broker.delivery.deadlines import Deadlines


class State(IntEnum):
    """The number is in checkpoints."""

    READY = 1
    LEASED = 2
    BACKOFF = 3
    DONE = 4
    DEAD = 5


class Event(IntEnum):
    RECEIVE = 1
    ACK = 2
    EXTEND = 3
    NACK = 4
    SUSPEND = 5
    DUE = 6
    FORWARD = 7
    EXHAUST = 8


TRANSITIONS: Final = {
    (State.READY, Event.RECEIVE): State.LEASED,
    (State.READY, Event.ACK): State.DONE,
    (State.READY, Event.EXHAUST): State.DEAD,  # the policy was tightened meanwhile
    (State.LEASED, Event.ACK): State.DONE,
    (State.LEASED, Event.EXTEND): State.LEASED,
    (State.LEASED, Event.NACK): State.BACKOFF,
    (State.LEASED, Event.SUSPEND): State.BACKOFF,
    (State.LEASED, Event.DUE): State.READY,
    (State.LEASED, Event.FORWARD): State.DEAD,
    (State.LEASED, Event.EXHAUST): State.DEAD,
    (State.BACKOFF, Event.ACK): State.DONE,
    (State.BACKOFF, Event.EXTEND): State.BACKOFF,
    (State.BACKOFF, Event.NACK): State.BACKOFF,
    (State.BACKOFF, Event.SUSPEND): State.BACKOFF,
    (State.BACKOFF, Event.DUE): State.READY,
    (State.BACKOFF, Event.FORWARD): State.DEAD,
}  # any other pair: IllegalTransitionError


class IllegalTransitionError(AssertionError):
    """A bug of ours: an event reached a delivery that cannot take it."""


def after(state: State, event: Event) -> State:
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(f"{event.name} in state {state.name}") from None


class Delivery:
    """One message in one group, between its first lease and its end."""

    __slots__ = (
        "attempt",
        "auto_renew",
        "client",
        "client_id",
        "deadline_ms",
        "first_attempt",
        "generation",
        "group_id",
        "id",
        "last_attempt",
        "leased_ms",
        "length",
        "offset",
        "order_key",
        "position",
        "queue_id",
        "renewals",
        "state",
        "tag_hash",
        "topic_id",
    )

    def __init__(
        self,
        *,
        id: int,
        group_id: int,
        topic_id: int,
        queue_id: int,
        offset: int,
        position: int,
        length: int,
        tag_hash: int,
        order_key: int = 0,
    ) -> None:
        self.id = id
        self.group_id = group_id
        self.topic_id = topic_id  # where it was read: the origin topic, for retries too
        self.queue_id = queue_id
        self.offset = offset
        self.position = position  # of the record that holds the bytes
        self.length = length
        self.tag_hash = tag_hash
        self.order_key = order_key  # of its message group, where the order is kept; else 0
        self.state = State.READY
        self.attempt = 0  # deliveries that count, so far
        self.generation = 0
        self.deadline_ms = 0  # of the lease, or of the backoff
        self.leased_ms = 0  # start of the current or last lease
        self.client = 0  # position of its CLIENT record
        self.client_id = ""
        self.auto_renew = False
        self.renewals = 0
        self.last_attempt = 0  # position of the newest ATTEMPT record, 0 for none
        self.first_attempt = 0  # of the oldest; or of the MOVE that carries what came before

    def key(self) -> tuple[object, ...]:
        """Everything that recovery must bring back, for comparisons."""
        return tuple(getattr(self, name) for name in self.__slots__ if name != "client_id")


class Leases:
    """All deliveries, their deadlines, and who renews."""

    def __init__(self) -> None:
        self.deliveries: dict[int, Delivery] = {}
        self.deadlines = Deadlines()
        self.next_id = 1
        self._renewed_by: dict[str, set[int]] = {}

    def add(self, delivery: Delivery) -> None:
        self.deliveries[delivery.id] = delivery
        if delivery.id >= self.next_id:
            self.next_id = delivery.id + 1

    def step(self, delivery: Delivery, event: Event) -> State:
        """Move through the table; the caller sets the new deadline with `hold`."""
        if delivery.state is not State.READY:
            self.deadlines.disarm(delivery.id)
            if delivery.auto_renew:
                self._forget_renewer(delivery)
        delivery.state = after(delivery.state, event)
        if delivery.state in (State.DONE, State.DEAD):
            del self.deliveries[delivery.id]
        return delivery.state

    def hold(self, delivery: Delivery, deadline_ms: int, *, margin_ms: int = 0) -> None:
        """Arm the deadline; an auto-renewed lease is looked at `margin_ms` before it."""
        delivery.deadline_ms = deadline_ms
        if delivery.auto_renew and delivery.state is State.LEASED:
            self._renewed_by.setdefault(delivery.client_id, set()).add(delivery.id)
        self.deadlines.arm(delivery.id, deadline_ms - margin_ms)

    def drop(self, delivery: Delivery) -> None:
        """Forget it, whatever its state: its group, topic or progress is void."""
        self.deadlines.disarm(delivery.id)
        self._forget_renewer(delivery)
        del self.deliveries[delivery.id]

    def renewed_by(self, client_id: str) -> list[int]:
        """Ids of the leases the broker renews for that client."""
        return sorted(self._renewed_by.get(client_id, ()))

    def _forget_renewer(self, delivery: Delivery) -> None:
        ids = self._renewed_by.get(delivery.client_id)
        if ids is not None:
            ids.discard(delivery.id)
            if not ids:
                del self._renewed_by[delivery.client_id]


class RecentlyDone:
    """Handles whose message is done or dead, while their lease would have lasted; bounded.

    At the bound the oldest is forgotten: a repeated ack then gets INVALID_RECEIPT_HANDLE, which
    clients take as the end of it too.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._handles: OrderedDict[int, tuple[int, int, int]] = OrderedDict()

    def remember(self, delivery: Delivery, now_ms: int) -> None:
        handles = self._handles
        handles[delivery.id] = (delivery.generation, delivery.group_id, delivery.deadline_ms)
        while handles:
            _, (_, _, deadline_ms) = next(iter(handles.items()))
            if len(handles) <= self._count_max and deadline_ms > now_ms:
                break
            handles.popitem(last=False)

    def holds(self, delivery_id: int, generation: int, group_id: int, now_ms: int) -> bool:
        known = self._handles.get(delivery_id)
        return known is not None and known[:2] == (generation, group_id) and known[2] > now_ms
