"""Messages that look like one that was checked before, taken apart by their bytes alone.

What one producer sends differs from message to message in three places: the message id, the time
it was born, and the body. A `Shape` is all the rest of a message that went the whole way through
`validate` and `wire_messages`: what was found right about it once is right again, and what is
stored of it is the same again.

    message    = head  message id  middle  born timestamp  tail  0x22 length body
                 equal             equal                   equal
    stored sys = head  message id  middle  born timestamp  tail  and what `StoreSide` adds

Nothing is guessed: lengths are part of the equal pieces, the three open places are checked by the
same rules as ever, and on any doubt the request takes the whole way. Only messages without delay,
order, priority or transaction have a shape; the whole way gives the same result for each of them.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from latermq_broker.engine.model import Outgoing
from latermq_broker.services import wire
from latermq_broker.services.wire_messages import StoreSide
from latermq_proto.google.protobuf import timestamp_pb2

SHAPES_MAX: Final = 8
CREDIT_MAX: Final = 64  # shapes that may be learnt without one being of use
BORN_MAX: Final = 1_024
PIECE_BYTES_MAX: Final = 4_096  # what is equal is kept only when it is short

_MESSAGE: Final = 0x0A  # SendMessageRequest.messages
_TOPIC, _PROPERTY, _SYSTEM, _BODY = 0x0A, 0x12, 0x1A, 0x22  # of v2.Message
_MESSAGE_ID, _BORN, _BORN_HOST = 0x1A, 0x3A, 0x42  # of v2.SystemProperties


class Shape(NamedTuple):
    head: bytes  # from the message's first byte to its message id
    id_bytes: int
    middle: bytes
    born_bytes: int
    tail: bytes  # up to and with the tag of the body
    resource: bytes  # the topic's field
    topic: str
    tag: str
    keys: tuple[str, ...]
    properties: bytes  # the user properties, as stored before the body
    stored_head: bytes
    stored_middle: bytes
    stored_tail: bytes
    zipped: bool


class Lookalikes:
    """The shapes that were seen last.

    Args:
        body_bytes_max: larger ones are for the whole way to refuse.
    """

    def __init__(self, body_bytes_max: int) -> None:
        self._shapes: list[Shape] = []  # the one of last use first
        self._born: dict[bytes, None] = {}  # encoded times that are proper
        self._credit = CREDIT_MAX
        self._unlike = 0  # the message of the last request that no shape was found for
        self._body_bytes_max = body_bytes_max

    def outgoing(self, data: bytes, side: StoreSide, count_max: int) -> list[Outgoing] | None:
        """What is stored of a serialised SendMessageRequest; None: take the whole way."""
        made: list[Outgoing] = []
        resource = b""
        self._unlike = 0
        at, end = 0, len(data)
        while at < end:
            found = _length(data, at + 1) if data[at] == _MESSAGE else None
            if found is None:
                return None
            size, start = found
            at = start + size
            if at > end or len(made) == count_max:
                return None
            shape = self._shape(data, start)
            if shape is None or (made and shape.resource != resource):
                self._unlike = len(made)
                return None
            resource = shape.resource
            one = self._one(data, start, at, shape, side)
            if one is None:
                return None
            made.append(one)
        if self._credit < CREDIT_MAX:
            self._credit += 1
        return made or None

    def _shape(self, data: bytes, start: int) -> Shape | None:
        shapes = self._shapes
        for index, shape in enumerate(shapes):
            if data.startswith(shape.head, start):
                at = start + len(shape.head) + shape.id_bytes
                if not data.startswith(shape.middle, at):
                    continue
                at += len(shape.middle) + shape.born_bytes
                if data.startswith(shape.tail, at):
                    if index:
                        shapes.insert(0, shapes.pop(index))
                    return shape
        return None

    def _one(
        self, data: bytes, start: int, end: int, shape: Shape, side: StoreSide
    ) -> Outgoing | None:
        at = start + len(shape.head)
        id_end = at + shape.id_bytes
        message_id = data[at:id_end]
        at = id_end + len(shape.middle)
        born_end = at + shape.born_bytes
        born = data[at:born_end]
        body_tag = born_end + len(shape.tail) - 1
        found = _length(data, body_tag + 1)
        if found is None or found[0] + found[1] != end:
            return None  # other fields follow the body
        if not 0 < found[0] <= self._body_bytes_max:
            return None
        if born not in self._born and not self._is_proper(born):
            return None
        try:
            text = message_id.decode()
        except UnicodeDecodeError:
            return None
        if text.isspace():
            return None
        kept = b"".join(
            (shape.stored_head, message_id, shape.stored_middle, born, shape.stored_tail)
        )
        return Outgoing(
            shape.topic,
            shape.properties + data[body_tag:end],
            side.completed(kept, data[found[1] : end], zipped=shape.zipped),
            text,
            shape.tag,
            shape.keys,
        )

    def _is_proper(self, born: bytes) -> bool:
        """An encoded Timestamp that would be stored as it is."""
        try:
            timestamp = timestamp_pb2.Timestamp.FromString(born)
        except DecodeError:
            return False
        if not wire.is_proper(timestamp) or timestamp.SerializeToString() != born:
            return False
        if len(self._born) >= BORN_MAX:
            self._born.clear()
        self._born[born] = None
        return True

    def learn(self, data: bytes, stored: Sequence[Outgoing], side: StoreSide) -> None:
        """Remember the shape of the message at which `outgoing` gave up, if it has one.

        Args:
            stored: what the whole way made of the request.
        """
        if not self._credit:
            return
        at = 0
        start = 0
        for _ in range(self._unlike + 1):
            found = _length(data, at + 1)
            if found is None:
                return
            start, at = found[1], found[0] + found[1]
        shape = _shape_of(data, start, at, stored[self._unlike], side)
        if shape is not None:
            self._credit -= 1
            self._shapes.insert(0, shape)
            del self._shapes[SHAPES_MAX:]


class _Field(NamedTuple):
    """One field with a length: its tag is at `at`, its value from `start` to `end`."""

    tag: int
    at: int
    start: int
    end: int


def _shape_of(data: bytes, start: int, end: int, stored: Outgoing, side: StoreSide) -> Shape | None:
    fields = list(_fields(data, start, end))
    tags = [field.tag for field in fields]
    if len(tags) < 3 or tags != [_TOPIC, *[_PROPERTY] * (len(tags) - 3), _SYSTEM, _BODY]:
        return None
    system, body = fields[-2:]
    ids, born, hosts = (
        [field for field in _fields(data, system.start, system.end) if field.tag == tag]
        for tag in (_MESSAGE_ID, _BORN, _BORN_HOST)
    )
    if len(ids) != 1 or len(born) != 1 or len(hosts) != 1 or ids[0].end > born[0].at:
        return None
    zipped = True
    added = side.completed(b"", data[body.start : body.end], zipped=zipped)
    if not stored.sys.endswith(added):
        zipped = False
        added = side.completed(b"", data[body.start : body.end], zipped=zipped)
    kept = stored.sys[: -len(added)]
    again = {field.tag: field for field in _fields(kept, 0, len(kept))}
    stored_id, stored_born = again.get(_MESSAGE_ID), again.get(_BORN)
    as_sent = data[body.at : end]
    if (
        stored_id is None
        or stored_born is None
        or kept[stored_born.start : stored_born.end] != data[born[0].start : born[0].end]
        or hosts[0].start == hosts[0].end  # the caller's address was put there
        or not stored.sys.endswith(added)
        or not stored.rest.endswith(as_sent)
        or body.at - start > PIECE_BYTES_MAX
    ):
        return None
    return Shape(
        head=data[start : ids[0].start],
        id_bytes=ids[0].end - ids[0].start,
        middle=data[ids[0].end : born[0].start],
        born_bytes=born[0].end - born[0].start,
        tail=data[born[0].end : body.at + 1],
        resource=data[fields[0].at : fields[0].end],
        topic=stored.topic,
        tag=stored.tag,
        keys=stored.keys,
        properties=stored.rest[: -len(as_sent)],
        stored_head=kept[: stored_id.start],
        stored_middle=kept[stored_id.end : stored_born.start],
        stored_tail=kept[stored_born.end :],
        zipped=zipped,
    )


def _fields(data: bytes, at: int, end: int) -> Iterator[_Field]:
    """Fields of one-byte tags, numbers passed over; nothing at all if there are others."""
    found: list[_Field] = []
    while at < end:
        tag = data[at]
        value = _length(data, at + 1)
        if tag >= 0x80 or value is None or tag & 7 not in (0, 2):
            return
        stop = value[1] + (value[0] if tag & 7 == 2 else 0)
        if tag & 7 == 2:
            found.append(_Field(tag, at, value[1], stop))
        at = stop
    if at == end:
        yield from found


def _length(data: bytes, at: int) -> tuple[int, int] | None:
    """(the varint at `at`, where it ends); None: none of at most five bytes."""
    number = shift = 0
    for index, byte in enumerate(data[at : at + 5]):
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at + index + 1
        shift += 7
    return None
