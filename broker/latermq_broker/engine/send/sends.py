"""Sends: now, later, in a message group, by priority, to a lite topic, each id once.

Plain messages, which are nearly all, have a shorter way (`plain_sends.py`).
"""

from collections.abc import Sequence
from typing import Final

from latermq_broker.catalog.access import User
from latermq_broker.delivery.filters.filter import hash64
from latermq_broker.engine.catalog.lites import Lites
from latermq_broker.engine.catalog.topics import TopicAdmin
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.send.dedup_sends import DedupSends
from latermq_broker.engine.send.outgoing import payloads_of
from latermq_broker.engine.state.model import Outgoing, Sent, Topic, TopicType
from latermq_broker.engine.state.state import EngineState
from latermq_broker.engine.state.timers_moved import delayed_id
from latermq_broker.errors import StoreFullError
from latermq_broker.store.records.dedup_records import DedupId
from latermq_broker.store.records.message_records import MessagePayload

tuple_new: Final = tuple.__new__  # as Sent(...), without its keyword handling


class Sends:
    def __init__(
        self, state: EngineState, journal: Journal, topics: TopicAdmin, lites: Lites
    ) -> None:
        self._state = state
        self._journal = journal
        self._topics = topics
        self._lites = lites
        self._dedup = DedupSends(state)

    def tick(self, now_ms: int) -> None:
        """Forget a bounded number of dedup ids whose window is over."""
        self._state.dedup.forget(now_ms)

    def next_deadline_ms(self) -> int | None:
        """Tell when `tick` has something to do; None: no id is remembered."""
        return self._state.dedup.next_deadline_ms()

    def send(
        self, messages: Sequence[Outgoing], now_ms: int, user: User | None = None
    ) -> list[Sent]:
        """Store messages of one topic, all or none; the delayed among them wait in the timer.

        But for those whose `dedup_id` is known. The topic is made, on its first use, by `user`.
        Raises TopicNotFoundError, LiteTopicQuotaError, StoreFullError, TooManyRequestsError.
        """
        for message in messages:
            if message.dedup_id:
                return self._send_once(messages, now_ms, user)
        return self._send(messages, now_ms, user)

    def _send_once(
        self, messages: Sequence[Outgoing], now_ms: int, user: User | None
    ) -> list[Sent]:
        """Store those whose id is new, and tell of the others where the first ones are."""
        fresh, fates = self._dedup.sort_out(messages, now_ms, user)
        stored = self._send(fresh, now_ms, user, once=True) if fresh else []
        self._state.figures.messages_duplicate += len(messages) - len(fresh)
        sent: list[Sent] = []
        for index, first, first_id in fates:
            if first is None:
                place = stored[index]
            else:
                id_hash = hash64(first_id)
                place = _sent(first.position, -1, first.queue_offset, first.due_ms, id_hash)
            sent.append(place._replace(first_id=first_id) if first_id else place)
        return sent

    def _send(
        self,
        messages: Sequence[Outgoing],
        now_ms: int,
        user: User | None,
        *,
        once: bool = False,
    ) -> list[Sent]:
        state = self._state
        state.store.disk.admit()
        topic = self._topics.ensure(messages[0].topic, now_ms, user)
        if topic.type is TopicType.LITE:
            self._lites.check_room(topic, (message.lite_topic for message in messages))
        payloads = payloads_of(state, topic, messages, now_ms)
        log_end = state.store.log.end
        ids = self._dedup.ids(messages, topic.id, user) if once else []
        positions = self._store_messages(topic, payloads, ids, now_ms)
        state.figures.messages_sent += len(positions)
        state.figures.bytes_sent += state.store.log.end - log_end
        return [
            _sent(
                positions[index],
                payload.queue_id,
                payload.queue_offset,
                payload.due_ms,
                payload.id_hash,
            )
            for index, payload in enumerate(payloads)
        ]

    def _store_messages(
        self, topic: Topic, payloads: list[MessagePayload], ids: list[DedupId], now_ms: int
    ) -> list[int]:
        try:
            if ids:
                until_ms = self._dedup.until_ms(topic, now_ms)
                return self._journal.write_once(payloads, ids, until_ms, now_ms)
            return self._journal.write_mixed(payloads, now_ms)
        except StoreFullError as error:
            raise self._state.store.disk.ran_out(error) from error


def _sent(position: int, queue_id: int, queue_offset: int, due_ms: int, id_hash: int) -> Sent:
    if queue_offset >= 0:
        return tuple_new(Sent, (position, queue_id, queue_offset, 0, "", "", ""))
    pending_id = delayed_id(due_ms, position, id_hash)
    return tuple_new(Sent, (position, -1, -1, due_ms, pending_id, "", ""))
