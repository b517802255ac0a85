"""Replies that a client asks for again, by its attempt id, because they did not arrive.

reply ──remembered──→ the same attempt id again: what is still leased of it, the same handles
            └──pushed out by newer ones, or by a restart: its leases end by themselves
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from latermq_broker.delivery.leases.lease import Delivery, State
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.receive.ordered_lane import Receive
from latermq_broker.engine.state.state import EngineState
from latermq_broker.store.records.lease_records import (
    EXTEND_AGAIN,
    EXTEND_KEEP_HANDLE,
    ExtendPayload,
)
from latermq_broker.store.records.record import RecordType

ATTEMPT_IDS_MAX: Final = 16_384  # replies remembered, of all clients together
ATTEMPT_ID_CHARS_MAX: Final = 128  # characters of an attempt id that are compared

_AttemptKey = tuple[int, int, str, str]  # group, topic, client id, attempt id


class RepeatedReplies:
    """Replies by attempt id, the newest of all groups; in memory only."""

    def __init__(self, state: EngineState, journal: Journal) -> None:
        self._state = state
        self._journal = journal
        self._replies: OrderedDict[_AttemptKey, Sequence[int]] = OrderedDict()
        """Delivery id and generation of each message of a reply, one after the other."""

    def __len__(self) -> int:
        return len(self._replies)

    def again(self, receive: Receive) -> list[Delivery]:
        """Return what is still leased of the reply with this attempt id, leased from now on.

        The handles stay and no attempt is counted; [] for an attempt id that is new.
        """
        known = self._replies.get(_key(receive), ())
        deliveries = self._state.leases.deliveries
        lost: list[Delivery] = []
        for index in range(0, len(known), 2):
            delivery = deliveries.get(known[index])
            if (
                delivery is not None
                and delivery.generation == known[index + 1]
                and delivery.state is State.LEASED
                and delivery.deadline_ms > receive.now_ms
            ):
                lost.append(delivery)
        flags = EXTEND_KEEP_HANDLE | EXTEND_AGAIN
        for delivery in lost:
            extend = ExtendPayload(delivery.id, receive.request.invisible_ms, flags)
            self._journal.write(RecordType.EXTEND, extend, receive.now_ms)
        return lost

    def remember(self, receive: Receive, leased: Sequence[int]) -> None:
        """Remember a reply: delivery id and generation of each of its messages."""
        replies, key = self._replies, _key(receive)
        replies[key] = leased
        replies.move_to_end(key)
        if len(replies) > ATTEMPT_IDS_MAX:
            replies.popitem(last=False)


def _key(receive: Receive) -> _AttemptKey:
    request, subscription = receive.request, receive.subscription
    attempt_id = request.attempt_id[:ATTEMPT_ID_CHARS_MAX]
    return subscription.group_id, subscription.topic_id, request.client_id, attempt_id
