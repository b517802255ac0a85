"""What is stored → its parts by name, for those who show messages: listings, the bulk read."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final

from latermq_broker.engine.state.model import OrphanCheck
from latermq_broker.services.wire import wire
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

_TYPE_NAMES: Final = {
    definition_pb2.NORMAL: "normal",
    definition_pb2.FIFO: "fifo",
    definition_pb2.DELAY: "delay",
    definition_pb2.TRANSACTION: "transaction",
    definition_pb2.LITE: "lite",
    definition_pb2.PRIORITY: "priority",
}


class StoredMessage:
    """One stored message by name. Each slice is parsed when a part of it is first asked for.

    Times are milliseconds since the epoch, 0 where the message has none; texts are empty where it
    has none.
    """

    def __init__(self, rest: bytes, sys: bytes) -> None:
        self._rest = rest
        self._sys = sys

    @cached_property
    def message(self) -> definition_pb2.Message:
        """Parse the user properties and the body only."""
        return definition_pb2.Message.FromString(self._rest)

    @cached_property
    def system(self) -> definition_pb2.SystemProperties:
        """Parse the system properties that are stored: without what only a delivery has."""
        return definition_pb2.SystemProperties.FromString(self._sys)

    @cached_property
    def body(self) -> bytes:
        return self.message.body

    @property
    def properties(self) -> Mapping[str, str]:
        return self.message.user_properties

    @property
    def message_id(self) -> str:
        return self.system.message_id

    @property
    def tag(self) -> str:
        return self.system.tag

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.system.keys)

    @property
    def message_group(self) -> str:
        return self.system.message_group

    @property
    def priority(self) -> int | None:
        return self.system.priority if self.system.HasField("priority") else None

    @property
    def lite_topic(self) -> str:
        return self.system.lite_topic

    @property
    def message_type(self) -> str:
        """Name the type: normal, fifo, delay, transaction, lite or priority."""
        return _TYPE_NAMES.get(self.system.message_type, "normal")

    @property
    def body_encoding(self) -> str:
        """Name the encoding: identity or gzip."""
        return "gzip" if self.system.body_encoding == definition_pb2.GZIP else "identity"

    @property
    def body_digest(self) -> str:
        """Return the MD5, in upper-case hex."""
        return self.system.body_digest.checksum

    @property
    def born_ms(self) -> int:
        return wire.timestamp_ms(self.system.born_timestamp)

    @property
    def born_host(self) -> str:
        return self.system.born_host

    @property
    def stored_ms(self) -> int:
        return wire.timestamp_ms(self.system.store_timestamp)

    @property
    def store_host(self) -> str:
        return self.system.store_host

    @property
    def deliver_at_ms(self) -> int:
        """Return when the sender wanted it delivered."""
        return wire.timestamp_ms(self.system.delivery_timestamp)

    @property
    def trace_context(self) -> str:
        return self.system.trace_context


def orphan_command(
    topic: definition_pb2.Resource, check: OrphanCheck, shown: Callable[[str], str] = str
) -> service_pb2.TelemetryCommand:
    """Ask how a transaction ended, with the whole half message.

    Args:
        shown: what clients are given for its transaction id, which is the message id.
    """
    command = service_pb2.TelemetryCommand()
    orphan = command.recover_orphaned_transaction_command
    orphan.message.ParseFromString(check.rest)
    orphan.message.topic.CopyFrom(topic)
    orphan.message.system_properties.ParseFromString(check.sys)
    orphan.transaction_id = shown(orphan.message.system_properties.message_id)
    return command


def stored_message(rest: bytes, sys: bytes) -> StoredMessage:
    """Read the parts by name of one stored message."""
    return StoredMessage(rest, sys)
