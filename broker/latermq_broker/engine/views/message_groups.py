"""Which message groups of a FIFO group are not idle: what blocks them, and what waits behind."""

from enum import IntEnum
from heapq import nsmallest
from typing import Final, NamedTuple

from latermq_broker.delivery.leases.lease import IN_HAND, Delivery, State
from latermq_broker.delivery.order.fifo import MessageGroup
from latermq_broker.engine.outcome.attempts import stored_slices
from latermq_broker.engine.state.state import EngineState, Subscription
from latermq_broker.engine.views.pending import delivery_pending_id
from latermq_broker.errors import BadRequestError, CorruptRecordError


class MessageGroupState(IntEnum):
    """Numbers are latermq.v1.MessageGroupState's."""

    READY = 1
    IN_FLIGHT = 2
    BACKOFF = 3
    PARKED = 4


class MessageGroupRow(NamedTuple):
    topic: str
    state: MessageGroupState
    due_ms: int  # when the lease or the wait of its first message ends; 0 else
    pending_id: str  # of its first message, once it was received; "" else
    attempt: int
    live_count: int
    held_count: int
    letters: tuple[int, ...]  # offsets in the dead-letter topic
    rest: bytes  # a message of it, its first if possible; empty: none is left
    sys: bytes


_Place = tuple[str, int]  # topic, order key
_START: Final[_Place] = ("", -1)


class MessageGroups:
    def __init__(self, state: EngineState) -> None:
        self._state = state

    def page(
        self,
        group_name: str,
        topic_name: str,
        wanted: MessageGroupState | None,
        size: int,
        token: str = "",
    ) -> tuple[list[MessageGroupRow], str]:
        """List (rows, by topic and in an order of their own; the next page's token, "" at the end).

        `topic_name` empty: every topic; `wanted` None: any state.
        Raises GroupNotFoundError, BadRequestError for a token that is not ours.
        """
        state = self._state
        owner = state.catalog.require_group(group_name)
        after = _parse(token)
        places: list[tuple[_Place, Subscription]] = []
        for (group_id, topic_id), subscription in state.subscriptions.items():
            topic = state.catalog.topic_by_id(topic_id)
            if group_id != owner.id or topic is None or subscription.gate is None:
                continue
            if topic_name in ("", topic.name):
                places += [
                    ((topic.name, key), subscription)
                    for key, group in subscription.gate.groups.items()
                    if (topic.name, key) > after and wanted in (None, self._blocker(group)[0])
                ]
        page = nsmallest(size, places, key=lambda entry: entry[0])
        rows = [self._row(place, subscription) for place, subscription in page]
        more = len(places) > len(page)
        return rows, f"{page[-1][0][1]:x}-{page[-1][0][0]}" if more and page else ""

    def _blocker(self, group: MessageGroup) -> tuple[MessageGroupState, Delivery | None]:
        """Find its state, and the delivery to tell of: the first that blocks, else the first."""
        deliveries = [self._state.leases.deliveries[delivery_id] for _, delivery_id in group.live]
        first = deliveries[0] if deliveries else None
        if group.parked:
            return MessageGroupState.PARKED, first
        for state, meaning in (
            (State.LEASED, MessageGroupState.IN_FLIGHT),
            (State.BACKOFF, MessageGroupState.BACKOFF),
        ):
            for delivery in deliveries:
                if delivery.state is state:
                    return meaning, delivery
        return MessageGroupState.READY, first

    def _row(self, place: _Place, subscription: Subscription) -> MessageGroupRow:
        topic_name, key = place
        assert subscription.gate is not None
        group = subscription.gate.groups[key]
        state, delivery = self._blocker(group)
        waits = delivery is not None and delivery.state in IN_HAND
        rest, sys = self._slices(subscription, group, delivery)
        return MessageGroupRow(
            topic=topic_name,
            state=state,
            due_ms=self._state.wall.at(delivery.deadline_ms)
            if delivery is not None and waits
            else 0,
            pending_id=delivery_pending_id(delivery.id) if delivery is not None else "",
            attempt=delivery.attempt if delivery is not None else 0,
            live_count=len(group.live),
            held_count=len(group.held),
            letters=tuple(sorted(offset for _, offset in group.parked)),
            rest=rest,
            sys=sys,
        )

    def _slices(
        self, subscription: Subscription, group: MessageGroup, delivery: Delivery | None
    ) -> tuple[bytes, bytes]:
        state = self._state
        if delivery is not None:
            position = delivery.position
        elif len(group.held):
            queue = state.queue(subscription.topic_id, group.queue_id)
            position = queue.get(group.held.first).position
        else:
            topic_id, offset = min(group.parked)
            position = state.queue(topic_id, 0).get(offset).position
        try:
            return stored_slices(state.read(position))
        except CorruptRecordError:
            return b"", b""


def _parse(token: str) -> _Place:
    if not token:
        return _START
    key, dash, topic = token.partition("-")
    try:
        if dash:
            return topic, int(key, 16)
    except ValueError:
        pass
    raise BadRequestError(f"page token {token[:40]!r} is not one of ours")
