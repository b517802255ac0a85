"""Sends of messages that enter a queue at once, many in one go: what nearly all messages are.

The records and the state are those of `Engine.send`, message by message; only the work that all
have in common is done once for them.
"""

from collections.abc import Sequence

from latermq_broker.catalog.access import User
from latermq_broker.delivery.filters.filter import hash64, hashes64
from latermq_broker.engine.catalog.topics import TopicAdmin
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.state.model import Outgoing, PlainMessages, PlainSent
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import StoreFullError
from latermq_broker.store.records.message_records import MESSAGE_LETTER, NO_PRIORITY, MessageRun


class PlainSends:
    def __init__(self, state: EngineState, journal: Journal, topics: TopicAdmin) -> None:
        self._state = state
        self._journal = journal
        self._topics = topics

    def send(self, messages: PlainMessages, now_ms: int, user: User | None = None) -> PlainSent:
        """Store them in one queue of their topic, which is for no lite topics; all or none.

        Raises TopicNotFoundError, StoreFullError.
        """
        state = self._state
        store = state.store
        store.disk.admit()
        topic = self._topics.ensure(messages.topic, now_ms, user)
        queue_id = state.turns.next_queue(topic)
        run = MessageRun(
            topic.id,
            queue_id,
            MESSAGE_LETTER if topic.internal else 0,
            store.queue(topic.id, queue_id).next,
            messages.tag_hashes,
            hashes64(messages.ids),
            messages.key_hashes,
            messages.rest_bytes,
            messages.sys_bytes,
            messages.stored,
        )
        log_end = store.log.end
        try:
            positions = self._journal.write_messages(run, now_ms)
        except StoreFullError as error:
            store.disk.no_room()
            raise store.disk.refusal() from error
        state.figures.messages_sent += len(positions)
        state.figures.bytes_sent += store.log.end - log_end
        return PlainSent(queue_id, run.queue_offset, positions)


def is_plain(message: Outgoing) -> bool:
    return not (
        message.deliver_at_ms
        or message.delay_level
        or message.message_group
        or message.lite_topic
        or message.priority != NO_PRIORITY
        or not message.message_id
    )


def plain(messages: Sequence[Outgoing]) -> PlainMessages:
    """The columns of messages that are plain, each."""
    return PlainMessages(
        messages[0].topic,
        [message.message_id.encode("utf-8", "surrogatepass") for message in messages],
        [hash64(message.tag) for message in messages],
        [tuple(map(hash64, message.keys)) for message in messages],
        [len(message.rest) for message in messages],
        [len(message.sys) for message in messages],
        [message.rest + message.sys for message in messages],
    )
