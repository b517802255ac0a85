"""What a record type is: its number and name, its bytes, what a dump tells of it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from latermq_broker.store.records.record import Record, RecordType

Bytes = bytes | memoryview
Fields = dict[str, Any]


class Names:
    """Names of ids, as far as the records read before have told them.

    Where one is not known, as in a dump that begins in the middle of a log, its number stands.
    """

    def __init__(self) -> None:
        self.topics: dict[int, str] = {}
        self.groups: dict[int, str] = {}
        self.clients: dict[int, str] = {}

    def topic(self, topic_id: int) -> str:
        return self.topics.get(topic_id, f"#{topic_id}")

    def group(self, group_id: int) -> str:
        return self.groups.get(group_id, f"#{group_id}")

    def client(self, position: int) -> str:
        """Name the client of a CLIENT record."""
        return self.clients.get(position, f"@{position}")


class Kind(NamedTuple):
    """One record type. What its payload does to the state stands in `engine/journal/apply_*`."""

    number: RecordType  # and name
    encode: Callable[[Any], list[Bytes]]
    decode: Callable[[Any], Any]
    text: Callable[[Record, Names], Fields]
    """What `latermq log dump` prints; names that the record tells are learnt."""
