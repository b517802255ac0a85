"""Plain messages of a send, read from their bytes in one pass: what nearly all messages are.

    request = message …                   each 0x0a length message
    message = topic  property …  0x1a length system  0x22 length body
    system  = tag? key … id  digest? encoding? type?  birth? host  time? queue? group? trace?

What is kept of a message is kept as it came: nothing is parsed into objects and encoded again. That
is right where the bytes are those that protobuf itself would write: fields in the order of their
numbers, none twice but properties and keys, no length longer than it has to be. On any doubt, and
for whatever breaks a rule, the request takes the whole way (`wire_messages`), which knows what to
say. Only messages without delay level, priority, lite topic, dedup id or transaction are read here;
the whole way stores the same for each of them. What has a message group or a delivery time takes a
third less to send than the whole way takes (docs/benchmarks.md, "One lone message, and 32").
"""

from typing import Final

from google.protobuf.message import DecodeError

from latermq_broker.catalog.catalog import RETRY_PREFIX
from latermq_broker.engine.state.model import PlainMessages
from latermq_broker.errors import RequestError
from latermq_broker.services.call import names
from latermq_broker.services.wire import wire
from latermq_broker.services.wire.wire_fields import (
    Doubt,
    bytes_field,
    length_at,
    span,
    text_field,
)
from latermq_broker.services.wire.wire_messages import (
    DEDUP_PROPERTY,
    DELAY,
    DIGEST_HEAD,
    FIFO,
    MESSAGE_GROUP_PROPERTY,
    NORMAL,
    TRANSACTION,
    StoreSide,
    body_digest,
)
from latermq_proto.apache.rocketmq.v2 import definition_pb2

TOPICS_MAX: Final = 1_024  # whose names are known to be proper
BESIDE_BODY_BYTES_MAX: Final = 4_096  # with so little no message is near a limit of sizes,
REPEATED_MAX: Final = 64  # and with so few properties, or keys, none of counts

_MESSAGE: Final = 0x0A  # SendMessageRequest.messages
_TOPIC, _PROPERTY, _SYSTEM, _BODY = 0x0A, 0x12, 0x1A, 0x22  # of v2.Message
_NAME, _VALUE = 0x0A, 0x12  # of an entry of Message.user_properties
_TAG, _KEY, _ID, _DIGEST, _ENCODING, _TYPE = 0x0A, 0x12, 0x1A, 0x22, 0x28, 0x30
_BORN, _HOST, _QUEUE, _TRACE, _TRACE_NEXT = 0x3A, 0x42, 0x68, 0x92, 0x01  # of SystemProperties
_DIGEST_TYPE, _CHECKSUM = 0x08, 0x12  # of Digest
_TIME, _GROUP, _GROUP_NEXT = 0x5A, 0x8A, 0x01  # of SystemProperties
_SECONDS, _NANOS = 0x08, 0x10  # of Timestamp
_NANOS_PER_SECOND: Final = 1_000_000_000
_NANOS_PER_MS: Final = 1_000_000
_GROUP_NAME: Final = text_field(b"\x0a", MESSAGE_GROUP_PROPERTY)
tuple_new: Final = tuple.__new__  # as PlainMessages(...), without its keyword handling
_GZIP: Final = int(definition_pb2.GZIP)
_TRANSACTION: Final = int(TRANSACTION)


class PlainReader:
    """Reads requests of plain messages.

    Args:
        body_bytes_max: larger ones are for the whole way to refuse.
    """

    def __init__(self, body_bytes_max: int) -> None:
        self._body_bytes_max = body_bytes_max
        self._topics: dict[bytes, str] = {}  # by the field of a message

    def read(self, data: bytes, side: StoreSide, count_max: int) -> PlainMessages | None:
        """Make what is stored of a serialised SendMessageRequest; None: take the whole way."""
        try:
            return self._read(data, side, count_max)
        except (Doubt, IndexError, UnicodeDecodeError, RequestError):
            return None

    def _read(self, data: bytes, side: StoreSide, count_max: int) -> PlainMessages | None:
        ids: list[bytes] = []
        tags: list[bytes] = []
        keys: list[tuple[bytes, ...]] = []
        rest_bytes: list[int] = []
        sys_bytes: list[int] = []
        stored: list[bytes] = []
        groups: list[str] = []
        times_ms: list[int] = []
        is_special = False
        topic_field = b""
        ending, ending_of = b"", (-1, False)  # most often the next one's, too
        at, stop = 0, len(data)
        while at < stop:
            if data[at] != _MESSAGE or len(ids) == count_max:
                return None
            at, end = span(data, at)
            _, properties_at = span(data, at)
            if not ids:
                topic_field = data[at:properties_at]
            elif data[at:properties_at] != topic_field:
                return None
            system_at = _properties_end(data, properties_at)
            at, system_end = span(data, system_at)
            body_at, body_end = span(data, system_end)
            if (
                end > stop
                or data[system_at] != _SYSTEM
                or data[system_end] != _BODY
                or body_end != end
                or not 0 < end - body_at <= self._body_bytes_max
                or body_at - properties_at > BESIDE_BODY_BYTES_MAX
            ):
                return None
            tag, its_keys, message_id, kept, zipped, time_ms, group = _system(
                data, at, system_end, side
            )
            rest = data[system_end:end]
            kind = NORMAL
            if time_ms or group:
                is_special = True
                kind = FIFO if group else DELAY
                if group:
                    entry = _GROUP_NAME + bytes_field(b"\x12", group)
                    rest = bytes_field(b"\x12", entry) + rest
            if system_at > properties_at:
                rest = data[properties_at:system_at] + rest
            if ending_of != (kind, zipped):
                ending, ending_of = side.ending(kind, zipped=zipped), (kind, zipped)
            sys = b"".join((kept, DIGEST_HEAD, body_digest(data[body_at:end]), ending))
            ids.append(message_id)
            tags.append(tag)
            keys.append(its_keys)
            rest_bytes.append(len(rest))
            sys_bytes.append(len(sys))
            stored.append(rest + sys)
            groups.append(group.decode())
            times_ms.append(time_ms)
            at = end
        if not ids:
            return None
        topic = self._topic(topic_field)
        special = (groups, times_ms) if is_special else ((), ())
        columns = (topic, ids, tags, keys, rest_bytes, sys_bytes, stored)
        return tuple_new(PlainMessages, columns + special)

    def _topic(self, field: bytes) -> str:
        """Name the topic of messages that begin so. Raises Doubt, IllegalTopicError."""
        name = self._topics.get(field)
        if name is None:
            try:
                topic = definition_pb2.Message.FromString(field).topic
            except DecodeError:
                raise Doubt from None
            name = wire.topic_name(topic)
            if field[0] != _TOPIC or topic.resource_namespace or name.startswith(RETRY_PREFIX):
                raise Doubt
            if len(self._topics) >= TOPICS_MAX:
                self._topics.clear()
            self._topics[field] = name
        return name


def _properties_end(data: bytes, at: int) -> int:
    """Check the user properties that begin at `at`; where they end. Raises Doubt, RequestError."""
    properties: dict[str, str] = {}
    count = 0
    while data[at] == _PROPERTY:
        start, end = span(data, at)
        name_at, name_end = span(data, start)
        value_at, value_end = span(data, name_end)
        if data[start] != _NAME or data[name_end] != _VALUE or value_end != end:
            raise Doubt
        properties[data[name_at:name_end].decode()] = data[value_at:value_end].decode()
        count += 1
        at = end
    if count:
        if len(properties) < count or count > REPEATED_MAX:
            raise Doubt
        if MESSAGE_GROUP_PROPERTY in properties or DEDUP_PROPERTY in properties:
            raise Doubt
        names.check_properties(properties)
    return at


def _system(
    data: bytes, at: int, end: int, side: StoreSide
) -> tuple[bytes, tuple[bytes, ...], bytes, bytes, bool, int, bytes]:
    """Read tag, keys, message id, what is kept, whether the body is zipped, delivery time, group.

    Of the last two, 0 and b"" stand for none.
    Raises Doubt, RequestError: as in `PlainReader`.
    """
    first = at
    tag, keys, message_id, at = _labels(data, at)
    named = at
    zipped = False
    if data[at] == _DIGEST:
        at = _digest_end(data, at)
    if data[at] == _ENCODING:
        encoding, at = _number(data, at)
        zipped = encoding == _GZIP
    if data[at] == _TYPE:
        kind, at = _number(data, at)
        if kind == _TRANSACTION:
            raise Doubt
    born = at
    birth = b""
    if data[at] == _BORN:
        _, _, at = _timestamp(data, at)
    else:
        birth = side.birth()
    at = _host_end(data, at)
    time_ms = 0
    if at < end and data[at] == _TIME:
        seconds, nanos, at = _timestamp(data, at)
        time_ms = seconds * 1_000 - (-nanos // _NANOS_PER_MS)
    kept = data[first:named] + birth + data[born:at]
    if at < end and data[at] == _QUEUE:
        _, at = _number(data, at)
    group = b""
    if at < end and data[at] == _GROUP and data[at + 1] == _GROUP_NEXT:
        start, stop = span(data, at + 1)
        group = data[start:stop]
        names.check_message_group(group.decode())
        if not group or time_ms:
            raise Doubt
        kept += data[at:stop]
        at = stop
    if at < end and data[at] == _TRACE and data[at + 1] == _TRACE_NEXT:
        start, stop = span(data, at + 1)
        data[start:stop].decode()
        kept += data[at:stop]
        at = stop
    if at != end:
        raise Doubt
    return tag, keys, message_id, kept, zipped, time_ms, group


def _labels(data: bytes, at: int) -> tuple[bytes, tuple[bytes, ...], bytes, int]:
    """Read tag, keys and message id of system properties; find their end. Raises as `_system`."""
    tag = b""
    keys: list[bytes] = []
    if data[at] == _TAG:
        start, at = span(data, at)
        tag = data[start:at]
        if not tag.isalnum():  # then it is ASCII, and right
            names.check_tag(tag.decode())
    while data[at] == _KEY:
        start, at = span(data, at)
        key = data[start:at]
        names.check_key(key.decode())
        keys.append(key)
    if data[at] != _ID or b"" in keys or len(keys) > REPEATED_MAX:
        raise Doubt
    start, at = span(data, at)
    message_id = data[start:at]
    if not message_id.isalnum():
        names.check_message_id(message_id.decode())
    return tag, tuple(keys), message_id, at


def _digest_end(data: bytes, at: int) -> int:
    """Check that the digest at `at`, which is dropped, is one; where it ends. Raises Doubt."""
    at, end = span(data, at)
    if at < end and data[at] == _DIGEST_TYPE:
        _, at = _number(data, at)
    if at < end and data[at] == _CHECKSUM:
        start, at = span(data, at)
        data[start:at].decode()
    if at != end:
        raise Doubt
    return end


def _timestamp(data: bytes, at: int) -> tuple[int, int, int]:
    """Read seconds and nanoseconds of the Timestamp whose field is at `at`; return its end, too.

    Raises Doubt: it has none of the first, or is not proper.
    """
    start, end = span(data, at)
    if data[start] != _SECONDS:
        raise Doubt
    seconds, at = length_at(data, start + 1)
    nanos = 0
    if at < end and data[at] == _NANOS:
        nanos, at = length_at(data, at + 1)
        if not 0 < nanos < _NANOS_PER_SECOND:
            raise Doubt
    if at != end or seconds < 1:
        raise Doubt
    return seconds, nanos, end


def _host_end(data: bytes, at: int) -> int:
    """Check the born host at `at`; where it ends. Raises Doubt, BadRequestError."""
    start, end = span(data, at)
    if data[at] != _HOST or start == end:  # the caller's address is put there
        raise Doubt
    names.check_born_host(data[start:end].decode())
    return end


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Read the value of the field with a number whose tag is at `at`; return where it ends, too."""
    number, end = length_at(data, at + 1)
    if number < 0:
        raise Doubt
    return number, end
