"""Rows of a bulk read: only the columns asked for are decoded, and only they travel.

Body and properties are one slice of what is stored, the other fields another; a column left out
costs nothing, and a slice nobody wants is not even parsed.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from latermq_broker.catalog.catalog import consumer_group_of
from latermq_broker.engine.state.model import DeadLetter, QueueRow
from latermq_broker.errors import BadRequestError
from latermq_broker.services.call.names import shown
from latermq_broker.services.v1.v1_letters import attempt_message
from latermq_broker.services.wire.wire_stored import StoredMessage, stored_message
from latermq_proto.latermq.v1 import queue_pb2

_STORED: Final[dict[str, Callable[[StoredMessage], Any]]] = {
    "message_id": lambda stored: stored.message_id,
    "message_type": lambda stored: stored.message_type,
    "tag": lambda stored: stored.tag,
    "keys": lambda stored: stored.keys,
    "message_group": lambda stored: stored.message_group,
    "body": lambda stored: stored.body,
    "body_encoding": lambda stored: stored.body_encoding,
    "properties": lambda stored: stored.properties,
    "born_timestamp": lambda stored: stored.born_ms,
    "born_host": lambda stored: stored.born_host,
    "store_timestamp": lambda stored: stored.stored_ms,
    "delivery_timestamp": lambda stored: stored.deliver_at_ms,
}
_DEAD: Final[dict[str, Callable[[DeadLetter], Any]]] = {
    "consumer_group": lambda letter: letter.group,
    "origin_topic": lambda letter: letter.origin_topic,
    "origin_queue_id": lambda letter: letter.origin_queue_id,
    "origin_offset": lambda letter: letter.origin_offset,
    "reason": lambda letter: letter.reason,
    "attempt_count": lambda letter: letter.attempt_count,
    "max_attempts": lambda letter: letter.max_attempts,
    "first_failure_at": lambda letter: letter.first_failure_ms,
    "last_failure_at": lambda letter: letter.last_failure_ms,
    "dead_at": lambda letter: letter.dead_ms,
    "failure_class": lambda letter: letter.failure.class_name if letter.failure else "",
    "failure_text": lambda letter: letter.failure.text if letter.failure else "",
    "signature": lambda letter: letter.signature,
    "attempts": lambda letter: [attempt_message(each, stacks=False) for each in letter.life.short],
    "redriven_at": lambda letter: letter.redriven_ms,
    "redrive_count": lambda letter: letter.redrive_count,
}
_ORIGIN_MESSAGE_ID: Final = "origin_message_id"  # a dead letter keeps the id it was sent with
_OTHERS: Final = {"queue_offset", "delivery_attempt", _ORIGIN_MESSAGE_ID}
COLUMNS: Final = frozenset(_STORED) | frozenset(_DEAD) | _OTHERS

_HEAVY: Final = frozenset({"body", "properties"})


class RowBuilder:
    """Makes the rows of one read.

    heavy: whether bodies or properties are among the columns.
    letters: whether anything is that only a dead letter's history tells.
    """

    def __init__(self, topic: str, columns: Iterable[str]) -> None:
        """Choose the columns that rows have.

        Raises:
            BadRequestError: an unknown column.
        """
        wanted = frozenset(columns) or COLUMNS
        for name in wanted - COLUMNS:
            raise BadRequestError(f"{shown(name)} is not a column of a queue row")
        self.heavy = bool(wanted & _HEAVY)
        self._stored = [(name, get) for name, get in _STORED.items() if name in wanted]
        self._dead = [(name, get) for name, get in _DEAD.items() if name in wanted]
        self._origin_id = _ORIGIN_MESSAGE_ID in wanted
        self.letters = bool(self._dead) or self._origin_id
        # What a producer sent to a %DLQ% topic has no history, but it has the topic's group.
        owner = consumer_group_of(topic)
        self._owner = owner if owner and "consumer_group" in wanted else ""

    def build(self, row: QueueRow) -> queue_pb2.QueueRow:
        values: dict[str, Any] = {}
        stored = stored_message(row.rest, row.sys)
        for name, get in self._stored:
            values[name] = get(stored)
        if row.dead is not None:
            for name, read in self._dead:
                values[name] = read(row.dead)
            if self._origin_id:
                values[_ORIGIN_MESSAGE_ID] = stored.message_id
        elif self._owner:
            values["consumer_group"] = self._owner
        return queue_pb2.QueueRow(queue_offset=row.queue_offset, **values)
