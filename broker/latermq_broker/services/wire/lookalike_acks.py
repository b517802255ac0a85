"""AckMessage requests whose entries are all of one length, taken apart by their bytes alone.

    request  = group topic entry entry …      entry   = 0x1a length content
    response = OK result result …             result  = 0x12 length content OK
                                              content = 0x0a length message id 0x12 0x28 handle

What one receive gave has message ids of one length most often, and our handles have 40 digits. So
the equal places are compared for all entries at once, and the response repeats what was asked. On
any doubt the request takes the whole way: fields that are missing, unknown or in another order,
texts beyond ASCII, more than 127 bytes of anything.
"""

from typing import Final, NamedTuple

from latermq_broker.services.wire import wire
from latermq_broker.services.wire.wire_fields import bytes_field, varint

ACKED: Final = bytes_field(b"\x1a", wire.OK_STATUS)  # how a result ends
_GROUP, _TOPIC, _ENTRY = 0x0A, 0x12, 0x1A  # of AckMessageRequest
_MESSAGE_ID, _HANDLE = 0x0A, 0x12  # of AckMessageEntry
_RESULT: Final = b"\x12"  # of AckMessageResponse
_HANDLE_DIGITS: Final = 40
_AROUND: Final = 4 + _HANDLE_DIGITS  # bytes of a content beside the message id
_RESOURCES_BYTES_MIN: Final = 4


class Acks(NamedTuple):
    resources: bytes  # the fields of group and topic
    handles: list[str]
    response: bytes  # when all of them are OK


def acks_of(data: bytes, count_max: int) -> Acks | None:
    """Take apart a serialised AckMessageRequest; None: take the whole way."""
    if len(data) < _RESOURCES_BYTES_MIN or not data.isascii() or data[0] != _GROUP:
        return None
    topic = 2 + data[1]
    first = topic + 2
    if first > len(data) or data[topic] != _TOPIC:
        return None
    first += data[topic + 1]
    size, id_bytes = 2 + _AROUND, 0
    if len(data) >= first + size:
        id_bytes = data[first + 3]
        size += id_bytes
    count, over = divmod(len(data) - first, size)
    if over or not 0 < count <= count_max or size - 2 > 127:
        return None
    handle = first + 4 + id_bytes
    equal = (
        (first, _ENTRY), (first + 1, size - 2), (first + 2, _MESSAGE_ID), (first + 3, id_bytes),
        (handle, _HANDLE), (handle + 1, _HANDLE_DIGITS),
    )  # fmt: skip
    for at, byte in equal:
        if data[at::size].count(byte) != count:
            return None
    text = data.decode("ascii")
    stop = len(data)
    lead = _RESULT + varint(size - 2 + len(ACKED))
    contents = [data[at : at + size - 2] for at in range(first + 2, stop, size)]
    return Acks(
        data[:first],
        [text[at : at + _HANDLE_DIGITS] for at in range(handle + 2, stop, size)],
        b"".join((wire.OK_FIELD, lead, (ACKED + lead).join(contents), ACKED)),
    )
