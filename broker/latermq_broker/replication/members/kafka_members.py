"""The members topic at Kafka: one partition, of which the last entry of each key is kept."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from latermq_broker.deferred import Later
from latermq_broker.replication.entry import Offset
from latermq_broker.replication.kafka_log import KafkaWriter, tail_partition
from latermq_broker.replication.members.roster import Notice


class KafkaMembers:
    """A `MembersTopic`.

    Args:
        settings: librdkafka's, for every client.
    """

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        self._settings = dict(settings)
        self._topic = topic
        self._writer = KafkaWriter(settings, topic, 0)

    def put(self, key: bytes, value: bytes | None) -> Later[Offset]:
        """Append it; as `MembersTopic.put`."""
        return self._writer.append(value, key)

    def tail(self) -> AsyncIterator[Notice]:
        """Read from the first entry that is kept; as `MembersTopic.tail`."""
        return tail_partition(self._settings, self._topic, 0, 0, _notice_of)

    async def close(self) -> None:
        """Let the topic go; as `MembersTopic.close`."""
        await self._writer.close()


def _notice_of(message: Any) -> Notice:
    _, at_ms = message.timestamp()
    return Notice(message.key() or b"", message.value(), at_ms)
