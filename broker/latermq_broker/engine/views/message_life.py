"""Where a found message is in its life: waiting, in its queue, and how far each group has it.

Told from the state as it stands, with bounded looks; what a look does not reach is UNKNOWN, never
guessed. A message that its group no longer has, and that is in no dead-letter topic, is DONE:
acknowledged, or passed over because the group's filter did not want it.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from latermq_broker.delivery.leases.lease import Delivery, State
from latermq_broker.delivery.leases.shared import Origin
from latermq_broker.engine.journal.indexing import MESSAGE_TYPES
from latermq_broker.engine.outcome.attempts import stored_order_key
from latermq_broker.engine.state.letter_states import letters_of
from latermq_broker.engine.state.model import DeadState, Topic
from latermq_broker.engine.state.standing import in_hand, redrive_of
from latermq_broker.engine.state.state import (
    EngineState,
    Subscription,
    is_done_ahead,
    lite_reader,
)
from latermq_broker.engine.views.message_place import MessagePlaces, Whereabouts
from latermq_broker.engine.views.message_query import FROM_THE_END, Found
from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.records.letter_records import DeadHead, decode_dead_head
from latermq_broker.store.records.message_records import decode_message_head
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.records.retention_records import original

LETTERS_LOOKED_AT_MAX: Final = 64
BLOCKS_MAX: Final = 64


class LifeState(IntEnum):
    """Numbers are latermq.v1.LifeState's."""

    READY = 1  # in line, `ahead_count` before it
    LEASED = 2  # until `until_ms`
    BACKOFF = 3  # until `until_ms`
    RETRY = 4  # its backoff or lease is over: first in line
    DONE = 5
    DEAD = 6  # number `dead_offset` of the group's letters
    UNKNOWN = 7
    HELD = 8  # behind `ahead_count` others of its message group, which is blocked or `parked`


class GroupLife(NamedTuple):
    group: str
    state: LifeState
    attempt: int = 0
    max_attempts: int = 0
    until_ms: int = 0
    client_id: str = ""
    ahead_count: int = 0
    dead_offset: int = -1  # of its letter; with another state than DEAD it stands beside that
    dead_ms: int = 0
    dead_state: DeadState | None = (
        None  # beside: REDRIVEN, it came by that; DEAD, it is there still
    )
    parked: bool = False


class Life(NamedTuple):
    waits_until_ms: int  # 0: it does not wait for its delivery time
    half: bool  # its transaction has not ended
    queue_id: int  # -1: not in a queue, or not found there
    queue_offset: int
    expired: bool  # it was in a queue and left it with retention
    groups: tuple[GroupLife, ...]
    cancelled: bool = False  # it never enters a queue: cancelled, recalled, or rolled back
    letter_state: DeadState | None = None  # in a dead-letter topic


class MessageLives:
    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._places = MessagePlaces(state)

    def life(self, message: Found) -> Life:
        """Tell the life of what a query found in this state. Raises IndexRebuildingError."""
        state = self._state
        topic = state.catalog.topic(message.topic)
        if topic is None:
            return Life(0, False, -1, -1, True, ())
        place = self._places.place(message)
        queue_id, offset = place.queue_id, place.queue_offset
        if queue_id < 0:
            return Life(place.waits_until_ms, place.half, -1, -1, False, (), place.cancelled)
        expired = offset < state.queue(topic.id, queue_id).first
        groups = tuple(self._groups(topic, message, queue_id, offset))
        letter_state = None
        if topic.internal:
            letter_state, _ = letters_of(state.dead, topic.id).get(offset) or (DeadState.DEAD, 0)
        return Life(0, False, queue_id, offset, expired, groups, letter_state=letter_state)

    def half(self, message: Found) -> bool:
        """Tell whether it is a half message whose transaction has not ended."""
        return message.half and self._state.halves.at(message.position) is not None

    def place(self, message: Found) -> Whereabouts:
        """Find where one of many is, with a short look; see `MessagePlaces`."""
        return self._places.place(message, glance=True)

    def _groups(
        self, topic: Topic, message: Found, queue_id: int, offset: int
    ) -> Iterator[GroupLife]:
        state = self._state
        letters: dict[int, DeadHead] | None = None
        readers = sorted(
            group_id for group_id, topic_id in state.subscriptions if topic_id == topic.id
        )
        for group_id in readers:
            subscription = state.subscriptions[group_id, topic.id]
            group = state.catalog.group_by_id(group_id)
            if group is None:
                continue
            known = GroupLife(group.name, LifeState.UNKNOWN, max_attempts=group.max_attempts)
            delivery = in_hand(state, group_id, Origin(topic.id, queue_id, offset))
            if letters is None:
                letters = self._letters(topic, message, queue_id, offset)
            letter = letters.get(group_id)
            if delivery is not None:
                known = self._beside(known, letter, delivery)
                until_ms = state.wall.at(delivery.deadline_ms) if delivery.deadline_ms else 0
                yield _behind(known, subscription, delivery) or _held(known, delivery, until_ms)
                continue
            reader = lite_reader(state, subscription)
            if reader is None:
                cursor = state.cursor(subscription, state.queue(topic.id, queue_id))
            else:
                ahead = reader.ahead(stored_order_key(state.read(message.position)), offset)
                cursor = offset - ahead  # behind it if it was given
            if offset >= cursor and not is_done_ahead(subscription, queue_id, offset):
                known = self._beside(known, letter)
                yield known._replace(state=LifeState.READY, ahead_count=offset - cursor)
            elif (
                held := self._held_back(known, subscription, message, queue_id, offset)
            ) is not None:
                yield self._beside(held, letter)
            elif letter is None or self._given_anew(subscription, message, letter):
                yield self._beside(known, letter)._replace(state=LifeState.DONE)
            else:
                yield self._died(known, letter)

    def _held_back(
        self,
        known: GroupLife,
        subscription: Subscription,
        message: Found,
        queue_id: int,
        offset: int,
    ) -> GroupLife | None:
        """Describe what an ordered group passed, and keeps until its message group may go on."""
        if subscription.gate is None or not subscription.gate.held_count:
            return None
        key = stored_order_key(self._state.read(message.position))
        group = subscription.gate.groups.get(key)
        if group is None or group.queue_id != queue_id or (place := group.held.place(offset)) < 0:
            return None
        return known._replace(
            state=LifeState.HELD,
            ahead_count=len(group.live) + place,
            parked=bool(group.parked),
        )

    def _beside(
        self, known: GroupLife, letter: DeadHead | None, delivery: Delivery | None = None
    ) -> GroupLife:
        """Add the letter by whose redrive the group has the message, or one that is there still."""
        if delivery is not None and delivery.redrive:
            try:
                record = self._state.read(delivery.position)
            except CorruptRecordError:
                return known
            offset = decode_dead_head(record.payload).queue_offset
            return known._replace(dead_offset=offset, dead_state=DeadState.REDRIVEN)
        if letter is None or not self._is_kept(letter):
            return known
        if self._state_of(letter) is not DeadState.DEAD:
            return known
        return known._replace(dead_offset=letter.queue_offset, dead_state=DeadState.DEAD)

    def _given_anew(self, subscription: Subscription, message: Found, letter: DeadHead) -> bool:
        """Tell whether the group was moved back over the message since it died."""
        key = lite_reader(self._state, subscription) is not None
        lite_key = stored_order_key(self._state.read(message.position)) if key else 0
        first_id = subscription.rewinds.first_id(
            letter.origin_queue_id, lite_key, letter.origin_offset
        )
        return letter.id < first_id

    def _died(self, known: GroupLife, letter: DeadHead) -> GroupLife:
        """Describe what the group has no more, and whose newest life ended with a letter."""
        dead_ms = 0
        if self._is_kept(letter):
            queue = self._state.queue(letter.dlq_topic_id, 0)
            dead_ms = self._state.wall.time_of_day(queue.get(letter.queue_offset).time_ms)
        return known._replace(
            state=LifeState.DEAD,
            attempt=letter.attempt_count,
            dead_offset=letter.queue_offset,
            dead_ms=dead_ms,
            dead_state=self._state_of(letter),
        )

    def _is_kept(self, letter: DeadHead) -> bool:
        """Tell whether the letter is in its dead-letter topic still."""
        state, topic_id = self._state, letter.dlq_topic_id
        if state.catalog.topic_by_id(topic_id) is None:
            return False
        queue = state.queue(topic_id, 0)
        return queue.first <= letter.queue_offset < queue.next

    def _state_of(self, letter: DeadHead) -> DeadState:
        changed = letters_of(self._state.dead, letter.dlq_topic_id).get(letter.queue_offset)
        return changed[0] if changed else DeadState.DEAD

    def _letters(
        self, topic: Topic, message: Found, queue_id: int, offset: int
    ) -> dict[int, DeadHead]:
        """Find the newest letter of this message in each group, by group id."""
        state = self._state
        letters: dict[int, DeadHead] = {}
        stored = original(state.store.log.read(message.position))
        if stored.type not in MESSAGE_TYPES:
            return letters
        positions, _ = state.store.index.find(
            decode_message_head(stored.payload).id_hash,
            FROM_THE_END,
            count_max=LETTERS_LOOKED_AT_MAX,
            blocks_max=BLOCKS_MAX,
        )
        for position in positions:
            try:
                record = state.read(position)
            except CorruptRecordError:
                continue
            if record.type is not RecordType.DEAD:
                continue
            head = decode_dead_head(record.payload)
            if redrive_of(head)[0] != (topic.id, queue_id, offset):
                continue
            known = letters.get(head.group_id)
            if known is None or _age(head) > _age(known):
                letters[head.group_id] = head
        return letters


def _age(letter: DeadHead) -> tuple[int, int]:
    """Order the letters of one group, the newest last: positions change as letters are moved."""
    return letter.dlq_topic_id, letter.queue_offset


def _behind(known: GroupLife, subscription: Subscription, delivery: Delivery) -> GroupLife | None:
    """Tell of one that was never given, whose queue entry has expired: it is held back still."""
    gate = subscription.gate
    if delivery.leased_ms or gate is None or delivery.order_key not in gate.groups:
        return None
    group = gate.groups[delivery.order_key]
    before = sum(offset < delivery.offset for offset, _ in group.live)
    if not (before or group.blocked):
        return None
    return known._replace(state=LifeState.HELD, ahead_count=before, parked=bool(group.parked))


def _held(known: GroupLife, delivery: Delivery, until_ms: int) -> GroupLife:
    if delivery.state is State.ACKED:
        return known._replace(state=LifeState.DONE)
    states = {
        State.READY: LifeState.RETRY,
        State.LEASED: LifeState.LEASED,
        State.BACKOFF: LifeState.BACKOFF,
    }
    return known._replace(
        state=states[delivery.state],
        attempt=delivery.attempt,
        until_ms=until_ms,
        client_id=delivery.client_id,
    )
