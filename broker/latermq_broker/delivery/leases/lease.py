"""The life of a message inside one consumer group: one table, and what goes through it.

A message nobody of the group has received yet is READY implicitly, behind the group's cursor on its
queue; a `Delivery` exists from the first lease until the message is done or dead. It is a row of
the slab (`slab.py`), and the object a door to that row; `leases.py` has all of them.

    state     RECEIVE  ACK   EXTEND   NACK     SUSPEND  DUE    FORWARD  EXHAUST  FOLLOW
    READY     LEASED   DONE  -        -        -        -      -        DEAD     -
    LEASED    -        DONE  LEASED   BACKOFF  BACKOFF  READY  DEAD     DEAD     ACKED
    BACKOFF   -        DONE  BACKOFF  BACKOFF  BACKOFF  READY  DEAD     -        ACKED
    ACKED     LEASED   DONE  -        -        -        -      -        -        -

NACK is the failure a consumer reports (a push consumer's ChangeInvisibleDuration, or one that
carries a Failure): the attempt is over and counted. SUSPEND gives the message back uncounted. DUE
is the deadline: of a lease (the attempt expired) or of a backoff (nothing is written: being
receivable is a function of time). EXHAUST is the end of the last allowed attempt. In READY nobody
holds a handle: an ACK there is an operator's cancel, or of a message that cannot be read. Each step
that hands the message to someone else, or moves its deadline at a client's wish, starts a new
generation: older receipt handles die. A renewal by the broker keeps the generation. Generations
are apart by `Leases.stride`, which is random in each life of the broker: a copy of the log that
goes on by itself has others, and refuses handles that its original gave out after the copy.

FOLLOW is RocketMQ's acknowledgement in an ordered batch (`compat.strict`): something before it in
its message group is not acknowledged, with which it is given again; it is DONE when nothing is.

DONE and DEAD have no row; `RecentlyDone` remembers their last handle while its lease would have
lasted, so that a repeated ack is answered OK.
"""

from enum import IntEnum
from typing import Final

from latermq_broker.delivery.leases.shared import LOW_BITS, DeliveryKey, Holder, Origin
from latermq_broker.delivery.leases.slab import BOUNDED, KEPT_COLUMNS, LOST, RENEWALS_MAX, Slab


class State(IntEnum):
    """The number is in checkpoints."""

    READY = 1
    LEASED = 2
    BACKOFF = 3
    DONE = 4
    DEAD = 5
    ACKED = 6  # behind one that is not


class Event(IntEnum):
    RECEIVE = 1
    ACK = 2
    EXTEND = 3
    NACK = 4
    SUSPEND = 5
    DUE = 6
    FORWARD = 7
    EXHAUST = 8
    FOLLOW = 9


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
    (State.LEASED, Event.FOLLOW): State.ACKED,
    (State.BACKOFF, Event.FOLLOW): State.ACKED,
    (State.ACKED, Event.RECEIVE): State.LEASED,
    (State.ACKED, Event.ACK): State.DONE,
}  # any other pair: IllegalTransitionError
assert not {state for state, _ in TRANSITIONS} & {State.DONE, State.DEAD}  # no way leads on


GENERATION_MASK: Final = (1 << 32) - 1
IN_HAND: Final = (State.LEASED, State.BACKOFF)  # a client's, or armed to be received again


class IllegalTransitionError(Exception):
    """A bug of ours: an event reached a delivery that cannot take it."""


def after(state: State, event: Event) -> State:
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(f"{event.name} in state {state.name}") from None


class Delivery:
    """One message in one group, between its first lease and its end: a door to its row.

    It leads to that message until its end; from then on what the row held can be read until
    another message is added.
    """

    __slots__ = ("row", "slab")

    def __init__(self, slab: Slab, row: int) -> None:
        self.slab = slab
        self.row = row

    @property
    def id(self) -> int:
        return self.slab.id[self.row]

    @property
    def group_id(self) -> int:
        return self.place.group_id

    @property
    def topic_id(self) -> int:  # where it was read: the origin, for retries too
        return self.place.topic_id

    @property
    def queue_id(self) -> int:
        return self.place.queue_id

    @property
    def offset(self) -> int:
        return self.place.offset_high << LOW_BITS | self.slab.offset[self.row]

    @property
    def origin(self) -> Origin:  # which message it is, whatever became of its queue entry
        place = self.place
        topic_id, queue_id = place.topic_id, place.queue_id
        if place.redrive:
            topic_id, queue_id = place.origin_topic_id, place.origin_queue_id
        return Origin(topic_id, queue_id, self.offset)

    @property
    def redrive(self) -> int:  # how often the message was redriven to the group; 0: not at all
        return self.place.redrive

    @property
    def tag_hash(self) -> int:
        return self.place.tag_hash

    @property
    def order_key(self) -> int:  # of its message group, where that matters
        return self.place.order_key

    @property
    def position(self) -> int:  # of the record that holds the bytes
        return self.slab.position[self.row]

    @position.setter
    def position(self, to: int) -> None:
        self.slab.position[self.row] = to

    @property
    def length(self) -> int:  # of that record
        return self.slab.length[self.row]

    @length.setter
    def length(self, to: int) -> None:
        self.slab.length[self.row] = to

    @property
    def attempt(self) -> int:  # deliveries that count, so far
        return self.slab.attempt[self.row]

    @attempt.setter
    def attempt(self, to: int) -> None:
        self.slab.attempt[self.row] = to

    @property
    def generation(self) -> int:
        return self.slab.generation[self.row]

    @generation.setter
    def generation(self, to: int) -> None:
        self.slab.generation[self.row] = to & GENERATION_MASK

    @property
    def renewals(self) -> int:
        return self.slab.renewals[self.row]

    @renewals.setter
    def renewals(self, to: int) -> None:
        self.slab.renewals[self.row] = min(to, RENEWALS_MAX)

    @property
    def bounded(self) -> bool:  # the broker renews the current lease no more
        return self.slab.renewals[self.row] >= LOST

    def bound(self) -> None:
        self.slab.renewals[self.row] = BOUNDED

    @property
    def lost(self) -> bool:  # bounded, as the holder of the current lease is gone
        return self.slab.renewals[self.row] == LOST

    def lose(self) -> None:
        self.slab.renewals[self.row] = LOST

    @property
    def deadline_ms(self) -> int:  # of the lease, or of the backoff
        return self.slab.deadline_ms[self.row]

    @property
    def leased_ms(self) -> int:  # start of the current or last lease
        return self.slab.leased_ms[self.row]

    @property
    def client(self) -> int:  # position of its CLIENT record
        return self.holder.client

    @property
    def last_attempt(self) -> int:  # position of the newest ATTEMPT record, 0 for none
        return self.slab.last_attempt[self.row]

    @last_attempt.setter
    def last_attempt(self, to: int) -> None:
        self.slab.last_attempt[self.row] = to

    @property
    def first_attempt(self) -> int:  # of the oldest; or of the MOVE that carries what came before
        return self.slab.first_attempt[self.row]

    @first_attempt.setter
    def first_attempt(self, to: int) -> None:
        self.slab.first_attempt[self.row] = to

    @property
    def state(self) -> State:
        return STATES[self.slab.state[self.row]]

    @property
    def place(self) -> DeliveryKey:
        slab = self.slab
        return slab.places.values[slab.place[self.row]]

    @property
    def holder(self) -> Holder:
        slab = self.slab
        return slab.holders.values[slab.holder[self.row]]

    @property
    def client_id(self) -> str:
        return self.holder.client_id

    @property
    def auto_renew(self) -> bool:
        return self.holder.auto_renew

    def key(self) -> tuple[object, ...]:
        """Return everything that recovery must bring back, for comparisons."""
        slab, row = self.slab, self.row
        shared = (self.place, self.offset, self.client, self.auto_renew)
        alone = set(KEPT_COLUMNS) - {"place", "offset", "holder"}
        return (*shared, *(getattr(slab, name)[row] for name in sorted(alone)))


assert [*State] == [*range(1, 7)]
STATES: Final[tuple[State, ...]] = (
    State.DONE,
    *State,
)  # by number; of a row that is no delivery it is 0
