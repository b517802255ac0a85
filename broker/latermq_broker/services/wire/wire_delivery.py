"""Stored messages → what a consumer receives, by splicing the stored bytes.

    element = 0x12 length message              field 2 of Receive- and PullMessageResponse
    message = 0x0a length topic                the Resource of the request
              rest                             user_properties and body, as stored
              0x1a length (sys + extras)       exactly one system_properties: Node.js replaces a
                                               repeated one where others merge it
    extras  = receipt_handle 12, queue_id 13, queue_offset 14, delivery_attempt 16,
              dead_letter_queue 20             what only a delivery has

Nothing is parsed, except in dead-letter queues, where the message id is looked up.
"""

from collections.abc import Iterable
from typing import Final

from latermq_broker.engine.state.model import Delivered
from latermq_broker.services.wire import wire
from latermq_broker.services.wire.wire_fields import bytes_field, timestamp, varint
from latermq_proto.apache.rocketmq.v2 import definition_pb2

OK_ELEMENT: Final = wire.OK_FIELD
NOTHING_ELEMENT: Final = bytes_field(
    b"\x0a", wire.status(definition_pb2.MESSAGE_NOT_FOUND, "no message within the polling time")
)
# For consumers of a deleted group: RocketMQ's clients read the code alone, ours the text, too.
GROUP_DELETED_ELEMENT: Final = bytes_field(
    b"\x0a", wire.status(definition_pb2.MESSAGE_NOT_FOUND, "GROUP_DELETED")
)
PULL_ATTEMPT: Final = 1  # a pull counts no attempt; clients want at least 1 in the field


def status_element(status: definition_pb2.Status) -> bytes:
    """Make the first element of a stream, its one status."""
    return bytes_field(b"\x0a", status.SerializeToString())


def delivery_timestamp_element(now_ms: int) -> bytes:
    """Make the last element of a ReceiveMessage stream."""
    return bytes_field(b"\x1a", timestamp(now_ms))


def next_offset_element(offset: int) -> bytes:
    """Make the last element of a PullMessage stream; written also when it is 0."""
    return b"\x18" + varint(offset)


def message_elements(topic: definition_pb2.Resource, delivered: Iterable[Delivered]) -> list[bytes]:
    """Make one stream element per leased message, in order."""
    topic_field = bytes_field(b"\x0a", topic.SerializeToString())
    elements: list[bytes] = []
    known = (-1, -1)  # queue id and attempt of the one before: most often of the next one too
    queue_field = attempt_field = b""
    size = sys_size = -1  # the same for the lengths
    lead = sys_lead = b""
    for handle, attempt, queue_id, queue_offset, rest, sys, _, dead_origin_topic in delivered:
        if known != (queue_id, attempt):
            known = (queue_id, attempt)
            # No presence: queue 0 is not written.
            queue_field = (b"\x68" + varint(queue_id) if queue_id else b"") + b"\x70"
            attempt_field = b"\x80\x01" + varint(attempt)
        tail = b"\x62%b%b%b%b%b" % (
            varint(len(handle)), handle.encode(),
            queue_field, varint(queue_offset), attempt_field,
        )  # fmt: skip
        if dead_origin_topic:
            tail += _dead_letter_queue(dead_origin_topic, sys)
        if sys_size != len(sys) + len(tail):
            sys_size = len(sys) + len(tail)
            sys_lead = b"\x1a" + varint(sys_size)
            size = -1
        if size != len(rest) + sys_size:
            size = len(rest) + sys_size
            lead = b"\x12%b%b" % (varint(len(topic_field) + size + len(sys_lead)), topic_field)
        elements.append(b"".join((lead, rest, sys_lead, sys, tail)))
    return elements


def pulled_element(
    topic: definition_pb2.Resource, queue_id: int, queue_offset: int, rest: bytes, sys: bytes
) -> bytes:
    """Show one message that was read without a lease: no receipt handle."""
    tail = _place(queue_id, queue_offset, PULL_ATTEMPT)
    return _element(bytes_field(b"\x0a", topic.SerializeToString()), rest, sys, tail)


def _place(queue_id: int, queue_offset: int, attempt: int) -> bytes:
    place = b"\x70" + varint(queue_offset) + b"\x80\x01" + varint(attempt)
    # No presence: queue 0 is not written.
    return b"\x68" + varint(queue_id) + place if queue_id else place


def _dead_letter_queue(origin_topic: str, sys: bytes) -> bytes:
    stored = definition_pb2.SystemProperties.FromString(sys)
    dead = definition_pb2.DeadLetterQueue(topic=origin_topic, message_id=stored.message_id)
    return bytes_field(b"\xa2\x01", dead.SerializeToString())


def _element(topic_field: bytes, rest: bytes, sys: bytes, tail: bytes) -> bytes:
    sys_length = varint(len(sys) + len(tail))
    length = len(topic_field) + len(rest) + 1 + len(sys_length) + len(sys) + len(tail)
    return b"".join((b"\x12", varint(length), topic_field, rest, b"\x1a", sys_length, sys, tail))
