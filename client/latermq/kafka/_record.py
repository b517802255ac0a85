"""A record of Kafka, and the message that carries it: nothing of it is lost on the way.

    body                     the value; or, where that is empty or missing or the line below is
                             long: the line, a newline, the value
    property kafka-record    the line: a JSON object; "body": it stands there

    {"topic": …, "partition": …, "offset": …, "group": …, "timestamp_ms": … or null,
     "key": text or null, "headers": [[name, text or null], …], "null": the value is null}

Bytes are text as UTF-8; what is not UTF-8 in them as lone surrogates ("surrogateescape"), so that
any bytes come back as they were.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from string import ascii_letters, digits
from typing import Any, Final, TypeAlias

from latermq.message import Message

Header: TypeAlias = tuple[str, bytes | None]

# Of a record that was written to its topic again, for one group alone.
GROUP_HEADER: Final = "latermq-group"
"""The header of a republished record that names the group which it is for."""
ATTEMPT_HEADER: Final = "latermq-attempt"
"""The header of a republished record that says which attempt it is."""

RECORD_PROPERTY: Final = "kafka-record"
IN_BODY: Final = "body"
LINE_BYTES_MAX: Final = 7 << 10  # of 16 KiB that a message's properties may take together
MESSAGE_GROUP_BYTES_MAX: Final = 63


class BadRecordError(ValueError):
    """A message that holds no record; it is a dead letter, as it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a handler is called with.

    Fields:
        topic, partition, offset: where it was read.
        timestamp: of its producer, or of Kafka's log, as the topic says.
        attempt: how often this group was given it, this time included, from 1.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp: datetime | None = None
    attempt: int = 1

    @property
    def place(self) -> str:
        """Return topic, partition and offset, which name it: the key of its message."""
        return f"{self.topic}-{self.partition}-{self.offset}"


def meant_for(group: str, headers: Iterable[Header] | None) -> bool:
    """Tell whether a consumer of the group is to handle a record with these headers.

    For consumers that are not ours, of a topic that another group has records written to again.
    """
    wanted = last_header(headers or (), GROUP_HEADER)
    return wanted is None or wanted == group.encode()


def last_header(headers: Iterable[Header], name: str) -> bytes | None:
    """Return the value of the last header of that name, as Kafka's own clients do."""
    return next((value for key, value in reversed(tuple(headers)) if key == name), None)


def without_ours(headers: Iterable[Header]) -> tuple[Header, ...]:
    """Return the headers that its producer gave it."""
    return tuple(each for each in headers if each[0] not in (GROUP_HEADER, ATTEMPT_HEADER))


def retry_topic_of(topic: str, group: str) -> str:
    """Name the topic of LaterMQ that keeps a group's records of a topic of Kafka.

    The last dash stands between the two: of no two pairs the names are equal. What a name of
    LaterMQ may not have, and a dash in the group's, is written as in a URL: `%2D`.
    """
    return f"{_quoted(topic, '-')}-{_quoted(group, '')}"


def _quoted(name: str, allowed: str) -> str:
    plain = f"{ascii_letters}{digits}_{allowed}"
    return "".join(chr(byte) if chr(byte) in plain else f"%{byte:02X}" for byte in name.encode())


def message_group_of(record: Record) -> str:
    """Name what keeps the order: the key; a record without one is in order with nothing."""
    if record.key is None:
        return digest_of(record.place.encode())
    name = as_text(record.key)
    plain = name.isascii() and name.isprintable() and bool(name.strip())
    return name if plain and len(name) <= MESSAGE_GROUP_BYTES_MAX else digest_of(record.key)


def digest_of(data: bytes) -> str:
    return "#" + blake2b(data, digest_size=24).hexdigest()


def message_of(
    record: Record, group: str, properties: Mapping[str, str], message_group: str | None
) -> Message:
    """Make the message that carries a record.

    Args:
        properties: what else it is to say.
    """
    line = _line(record, group)
    value = record.value or b""
    inside = not value or len(line) > LINE_BYTES_MAX
    return Message(
        line.encode() + b"\n" + value if inside else value,
        keys=(record.place,),
        properties={**properties, RECORD_PROPERTY: IN_BODY if inside else line},
        message_group=message_group,
    )


def record_of(body: bytes, properties: Mapping[str, str], attempt: int) -> Record:
    """Take the record out of its message. Raises BadRecordError: there is none."""
    record, _ = owned_record_of(body, properties)
    return replace(record, attempt=attempt)


def owned_record_of(body: bytes, properties: Mapping[str, str]) -> tuple[Record, str]:
    """Do as `record_of`, and name the group that the record is for; "": no line names one."""
    line = properties.get(RECORD_PROPERTY, "")
    try:
        if line == IN_BODY:
            head, newline, body = body.partition(b"\n")
            if not newline:
                raise BadRecordError("its body does not hold a record")
            line = head.decode("ascii")
        fields = json.loads(line)
        return _read(fields, body), _of_type(str, fields.get("group", ""))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        why = f"property {RECORD_PROPERTY} or the body is no record of Kafka: {error!r}"
        raise BadRecordError(why) from error


def as_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _line(record: Record, group: str) -> str:
    at = record.timestamp
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "group": group,
        "timestamp_ms": None if at is None else round(at.timestamp() * 1000),
        "key": _optional_text(record.key),
        "headers": [[name, _optional_text(value)] for name, value in record.headers],
        "null": record.value is None,
    }
    return json.dumps(fields, separators=(",", ":"))  # ASCII


def _read(fields: dict[str, Any], value: bytes) -> Record:
    at = fields["timestamp_ms"]
    return Record(
        topic=_of_type(str, fields["topic"]),
        partition=_of_type(int, fields["partition"]),
        offset=_of_type(int, fields["offset"]),
        key=_optional_bytes(fields["key"]),
        value=None if fields["null"] else value,
        headers=tuple(
            (_of_type(str, name), _optional_bytes(each)) for name, each in fields["headers"]
        ),
        timestamp=None if at is None else datetime.fromtimestamp(at / 1000, UTC),
    )


def _of_type(kind: type[Any], value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} should be of type {kind.__name__}")
    return value


def _optional_text(data: bytes | None) -> str | None:
    return None if data is None else as_text(data)


def _optional_bytes(text: str | None) -> bytes | None:
    return None if text is None else as_bytes(text)
