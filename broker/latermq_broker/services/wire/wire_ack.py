"""AckMessage, read from its bytes in one pass and answered with slices of them.

    request = 0x0a length group  0x12 length topic  (0x1a length entry) …
    entry   = 0x0a length message id  0x12 length handle  0x1a length lite topic
    result  = 0x0a length message id  0x12 length handle  0x1a length status

What is read are the fields in the order of their numbers, none twice, no length longer than it has
to be; any may be missing. So protobuf writes them, and every client. Bytes that are anything else
protobuf reads or refuses, and writes anew as they are read here. Protobuf's objects, and answers
made of their fields, took a quarter of what an acknowledgement of 32 cost (compiled;
docs/benchmarks.md, "One lone message, and 32").
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from latermq_broker.errors import BadRequestError
from latermq_broker.services.call.answers import parse
from latermq_broker.services.call.field_counts import FieldCount
from latermq_broker.services.call.namespaces import NamespaceError, Namespaces
from latermq_broker.services.wire.wire_fields import Doubt, bytes_field, span, varint
from latermq_proto.apache.rocketmq.v2 import service_pb2

ENTRIES_COUNT_MAX: Final = 4_096  # of one AckMessage; a receive gives 32 at most

tuple_new: Final = tuple.__new__  # as AckRequest(...), without its keyword handling
_GROUP, _TOPIC, _ENTRY = 0x0A, 0x12, 0x1A  # of AckMessageRequest
_NAME: Final = 0x12  # of Resource; a namespace, before it, is protobuf's to read and to refuse
_ID, _HANDLE, _LITE_TOPIC = 0x0A, 0x12, 0x1A  # of AckMessageEntry
_RESULT: Final = b"\x12"  # AckMessageResponse.entries
_STATUS: Final = b"\x0a"  # AckMessageResponse.status
_RESULT_STATUS: Final = b"\x1a"  # AckMessageResultEntry.status
_COUNT: Final = FieldCount(service_pb2.AckMessageRequest.DESCRIPTOR)
_NAMESPACES: Final = Namespaces(service_pb2.AckMessageRequest.DESCRIPTOR)


class AckRequest(NamedTuple):
    """What is acknowledged; the names are not checked."""

    group: str
    topic: str
    handles: list[str]
    entries: list[bytes]  # message id and handle of each, as they came


def read_ack(data: bytes) -> AckRequest:
    """Read a serialised AckMessageRequest.

    Raises:
        BadRequestError: it is none, too long, or its names are in a namespace.
    """
    request = _read(data)
    if request is None:
        request = _read(_written_anew(data))
        assert request is not None, "protobuf writes fields in order"
    return request


def _written_anew(data: bytes) -> bytes:
    request = service_pb2.AckMessageRequest()
    parse(request, data, _COUNT)
    count = len(request.entries)
    if count > ENTRIES_COUNT_MAX:
        raise BadRequestError(
            f"{count} entries in one request, at most {ENTRIES_COUNT_MAX} are allowed"
        )
    request.DiscardUnknownFields()
    try:
        _NAMESPACES.check(request)
    except NamespaceError as error:
        request.group.resource_namespace = request.topic.resource_namespace = ""
        error.request = _read(request.SerializeToString())
        raise
    return request.SerializeToString()


def _read(data: bytes) -> AckRequest | None:
    """Read what is written in order; None: it is not, or not an AckMessageRequest."""
    try:
        return _read_in_order(data)
    except (Doubt, IndexError, UnicodeDecodeError):
        return None


def _read_in_order(data: bytes) -> AckRequest:
    at, stop = 0, len(data)
    group = topic = ""
    if stop and data[0] == _GROUP:
        group, at = _name(data, 0)
    if at < stop and data[at] == _TOPIC:
        topic, at = _name(data, at)
    handles: list[str] = []
    entries: list[bytes] = []
    while at < stop:
        if data[at] != _ENTRY or len(entries) == ENTRIES_COUNT_MAX:
            raise Doubt
        start, end = span(data, at)
        at = start
        if at < end and data[at] == _ID:
            text_at, at = span(data, at)
            data[text_at:at].decode()
        handle = ""
        if at < end and data[at] == _HANDLE:
            text_at, at = span(data, at)
            handle = data[text_at:at].decode()
        entries.append(data[start:at])
        handles.append(handle)
        if at < end and data[at] == _LITE_TOPIC:
            text_at, at = span(data, at)
            data[text_at:at].decode()
        if at != end:
            raise Doubt
    if at != stop:
        raise Doubt
    return tuple_new(AckRequest, (group, topic, handles, entries))


def _name(data: bytes, at: int) -> tuple[str, int]:
    """Read the name in the Resource whose field begins at `at`; return where that ends, too."""
    at, end = span(data, at)
    name = ""
    if at < end and data[at] == _NAME:
        text_at, at = span(data, at)
        name = data[text_at:at].decode()
    if at != end:
        raise Doubt
    return name, end


def ack_response(status: bytes, entries: Sequence[bytes], statuses: Sequence[bytes] = ()) -> bytes:
    """Make the response: one result per entry, in their order.

    Args:
        status: of the whole, serialised.
        entries: as in `AckRequest`.
        statuses: of each, serialised; none: all have the status of the whole.
    """
    parts = [bytes_field(_STATUS, status)]
    ending = bytes_field(_RESULT_STATUS, status)
    size, head = -1, b""  # of the entry before: most often of the next one too
    for index, entry in enumerate(entries):
        if statuses:
            ending = bytes_field(_RESULT_STATUS, statuses[index])
            size = -1
        if size != len(entry):
            size = len(entry)
            head = _RESULT + varint(size + len(ending))
        parts += (head, entry, ending)
    return b"".join(parts)
