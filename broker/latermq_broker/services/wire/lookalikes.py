"""Messages that look like one that was checked before, taken apart by their bytes alone.

What one producer sends differs from message to message in three places: the message id, the time
it was born, and the body. A `Template` is all the rest of a message that went the whole way through
`validate` and `wire_messages`: what was found right about it once is right again, and what is
stored of it is the same again.

    message    = head  message id  middle  born timestamp  tail  0x22 length body
                 equal             equal                   equal
    stored sys = head  message id  middle  born timestamp  tail  and what `StoreSide` adds

A template and a size together say where everything lies: a `Layout`. Messages of one size are taken
apart in one call each, and compared with what must be equal.

Nothing is guessed: lengths are part of the equal pieces, the three open places are checked by the
same rules as ever, and on any doubt the request takes the whole way. Only messages without delay,
order, priority or transaction have a template; the whole way gives the same result for each of
them.
"""

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from latermq_broker.engine.state.model import Outgoing, PlainMessages, hash64
from latermq_broker.services.call.names import has_control_character
from latermq_broker.services.wire import wire
from latermq_broker.services.wire.wire_fields import varint
from latermq_broker.services.wire.wire_messages import DIGEST_HEAD, StoreSide, body_digest
from latermq_proto.google.protobuf import timestamp_pb2

TEMPLATES_MAX: Final = 8
CREDIT_MAX: Final = 64  # templates that may be learnt without one being of use
BORN_MAX: Final = 1_024
LAYOUTS_MAX: Final = 1_024  # of a template
PIECE_BYTES_MAX: Final = 4_096  # what is equal is kept only when it is short

_MESSAGE: Final = 0x0A  # SendMessageRequest.messages
_MESSAGE_TAG: Final = bytes((_MESSAGE,))
_TOPIC, _PROPERTY, _SYSTEM, _BODY = 0x0A, 0x12, 0x1A, 0x22  # of v2.Message
_MESSAGE_ID, _BORN, _BORN_HOST = 0x1A, 0x3A, 0x42  # of v2.SystemProperties
_SECONDS: Final = 0x08  # of Timestamp
_SECONDS_BYTES: Final = 6  # of the whole field, from 1978 to 3058
_PARTS: Final = "{}s{}s{}s{}s{}s{}s{}s"  # head, message id, middle, seconds, nanos, tail, body


class Layout(NamedTuple):
    """Where the parts of a template's messages of one size are, and what must be equal in them."""

    unpack: Callable[[bytes, int], tuple[bytes, ...]]  # as `_PARTS`
    size: int  # of all parts
    head: bytes  # from the tag of the request's field on
    middle: bytes
    tail: bytes  # with the length of the body
    before: bytes  # what is stored before the body
    stored_head: bytes
    stored_middle: bytes
    stored_tail: bytes
    rest_bytes: int
    template: "Template"

    def fits(self, data: bytes, at: int) -> bool:
        """Tell whether the message at `at` is as long as it says, and like this."""
        parts = self.unpack(data, at)
        return parts[0] == self.head and parts[2] == self.middle and parts[5] == self.tail


class Template(NamedTuple):
    head: bytes  # from the message's first byte to its message id
    id_bytes: int
    middle: bytes
    born_bytes: int
    tail: bytes  # up to and with the tag of the body
    resource: bytes  # the topic's field
    topic: str
    tag_hash: int
    key_hashes: tuple[int, ...]
    properties: bytes  # the user properties, as stored before the body
    stored_head: bytes
    stored_middle: bytes
    stored_tail: bytes  # with the head of the digest
    zipped: bool
    layouts: dict[int, Layout]  # by the size of the message

    def layout(self, size: int, body_bytes_max: int) -> Layout | None:
        """Give the layout of one size; None: no body has such a size, or it may not have it."""
        known = self.layouts.get(size)
        if known is not None:
            return known
        equal = len(self.head) + self.id_bytes + len(self.middle) + self.born_bytes + len(self.tail)
        body_bytes = size - equal - 1
        while body_bytes > 0 and equal + len(varint(body_bytes)) + body_bytes > size:
            body_bytes -= 1
        length = varint(max(body_bytes, 0))
        fits = equal + len(length) + body_bytes == size
        if not fits or not 0 < body_bytes <= body_bytes_max:
            return None
        head = b"".join((_MESSAGE_TAG, varint(size), self.head))
        tail = self.tail + length
        before = b"".join((self.properties, bytes((_BODY,)), length))
        nanos_bytes = self.born_bytes - _SECONDS_BYTES
        sizes = (len(head), self.id_bytes, len(self.middle), _SECONDS_BYTES, nanos_bytes, len(tail))
        parts = Struct(_PARTS.format(*sizes, body_bytes))
        if len(self.layouts) >= LAYOUTS_MAX:
            self.layouts.clear()
        made = self.layouts[size] = Layout(
            parts.unpack_from, parts.size, head, self.middle, tail, before,
            self.stored_head, self.stored_middle, self.stored_tail, len(before) + body_bytes, self,
        )  # fmt: skip
        return made


_NO_LAYOUT: Final = Layout(
    Struct(_PARTS.format(1, 0, 0, 0, 0, 0, 0)).unpack_from, 1, b"unlike any",
    b"", b"", b"", b"", b"", b"", 0,
    Template(b"", 0, b"", 0, b"", b"", "", 0, (), b"", b"", b"", b"", False, {}),
)  # fmt: skip


class SendTemplates:
    """The templates that were seen last.

    Args:
        body_bytes_max: larger ones are for the whole way to refuse.
    """

    def __init__(self, body_bytes_max: int) -> None:
        self._templates: list[Template] = []  # the one of last use first
        self._last = _NO_LAYOUT  # of the last message
        self._seconds: set[bytes] = set()  # the fields of proper times
        self._nanos: set[bytes] = set()
        self._credit = CREDIT_MAX
        self._unlike = 0  # the message of the last request that no template was found for
        self._body_bytes_max = body_bytes_max

    def outgoing(self, data: bytes, side: StoreSide, count_max: int) -> PlainMessages | None:
        """Make what is stored of a serialised SendMessageRequest; None: take the whole way."""
        self._unlike = 0
        ids: list[bytes] = []
        stored: list[bytes] = []
        all_seconds, all_nanos = self._seconds, self._nanos
        layout = self._last
        ending = side.ending(zipped=layout.template.zipped)
        unpack, size, head, middle, tail, before, first, second, third = layout[:9]
        runs = [(layout, 0)]  # and the number of the message from which on it is used
        at, end = 0, len(data)
        while at < end:
            like = at + size <= end
            if like:
                its_head, message_id, its_middle, seconds, nanos, its_tail, body = unpack(data, at)
                like = its_head == head and its_middle == middle and its_tail == tail
            if not like:
                other = self._layout(data, at, len(ids), layout.template)
                if other is None:
                    return None
                if other.template is not layout.template:
                    if ids and other.template.resource != layout.template.resource:
                        return None
                    ending = side.ending(zipped=other.template.zipped)
                layout = other
                runs.append((layout, len(ids)))
                unpack, size, head, middle, tail, before, first, second, third = layout[:9]
                _, message_id, _, seconds, nanos, _, body = unpack(data, at)
            if len(ids) == count_max:
                return None
            known = nanos in all_nanos and seconds in all_seconds
            if not (known or self._is_proper(seconds, nanos)):
                return None
            at += size
            ids.append(message_id)
            digest = body_digest(body)
            parts = (
                before, body, first, message_id, second, seconds, nanos, third, digest, ending,
            )  # fmt: skip
            stored.append(b"".join(parts))
        if not (ids and are_texts(ids)):
            return None
        self._last = layout
        if self._credit < CREDIT_MAX:
            self._credit += 1
        return _columns(runs, ids, stored)

    def _layout(self, data: bytes, at: int, number: int, likely: Template) -> Layout | None:
        """Find the layout of the message at `at`, the `number`th, if its template is known.

        Args:
            likely: its template, more often than not.
        """
        length = _length(data, at + 1) if data[at] == _MESSAGE else None
        if length is None or length[0] + length[1] > len(data):
            return None
        size, start = length
        layout = likely.layouts.get(size)
        if layout is not None and layout.fits(data, at):
            return layout
        template = self._template(data, start)
        if template is None:
            self._unlike = number
            return None
        layout = template.layout(size, self._body_bytes_max)
        if layout is None:
            return None
        # Else a length takes more bytes than it needs, or fields follow the body.
        return layout if layout.fits(data, at) else None

    def _template(self, data: bytes, start: int) -> Template | None:
        templates = self._templates
        for index, template in enumerate(templates):
            if data.startswith(template.head, start):
                at = start + len(template.head) + template.id_bytes
                if not data.startswith(template.middle, at):
                    continue
                at += len(template.middle) + template.born_bytes
                if data.startswith(template.tail, at):
                    if index:
                        templates.insert(0, templates.pop(index))
                    return template
        return None

    def _is_proper(self, seconds: bytes, nanos: bytes) -> bool:
        """Tell whether both are an encoded Timestamp that would be stored as it is.

        Seconds and nanos have their limits each for itself, so they are remembered each for itself.
        """
        try:
            timestamp = timestamp_pb2.Timestamp.FromString(seconds + nanos)
        except DecodeError:
            return False
        if not wire.is_proper(timestamp) or timestamp.SerializeToString() != seconds + nanos:
            return False
        if not _is_seconds(seconds):
            return False
        for known, field in ((self._seconds, seconds), (self._nanos, nanos)):
            if len(known) >= BORN_MAX:
                known.clear()
            known.add(field)
        return True

    def learn(self, data: bytes, stored: Sequence[Outgoing], side: StoreSide) -> None:
        """Remember the template of the message at which `outgoing` gave up, if it has one.

        Args:
            stored: what the whole way made of the request.
        """
        if not self._credit:
            return
        at = 0
        start = 0
        for _ in range(self._unlike + 1):
            length = _length(data, at + 1) if data[at : at + 1] == _MESSAGE_TAG else None
            if length is None:
                return
            start, at = length[1], length[0] + length[1]
        template = _template_of(data, start, at, stored[self._unlike], side)
        if template is not None:
            self._credit -= 1
            self._templates.insert(0, template)
            del self._templates[TEMPLATES_MAX:]


def _columns(
    runs: Sequence[tuple[Layout, int]], ids: list[bytes], stored: list[bytes]
) -> PlainMessages:
    """Put messages into columns: what those of one layout have in common, once for each."""
    tag_hashes: list[int] = []
    key_hashes: list[tuple[int, ...]] = []
    rest_bytes: list[int] = []
    sys_bytes: list[int] = []
    ends = [*(first for _, first in runs[1:]), len(ids)]
    for (layout, first), end in zip(runs, ends, strict=True):
        if count := end - first:
            template = layout.template
            tag_hashes += [template.tag_hash] * count
            key_hashes += [template.key_hashes] * count
            rest_bytes += [layout.rest_bytes] * count
            sys_bytes += [len(stored[first]) - layout.rest_bytes] * count
    return PlainMessages(
        runs[-1][0].template.topic, ids, tag_hashes, key_hashes, rest_bytes, sys_bytes, stored
    )


class _Field(NamedTuple):
    """One field with a length: its tag is at `at`, its value from `start` to `end`."""

    tag: int
    at: int
    start: int
    end: int


def _template_of(
    data: bytes, start: int, end: int, stored: Outgoing, side: StoreSide
) -> Template | None:
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
        or born[0].end - born[0].start < _SECONDS_BYTES
        or not _is_seconds(data[born[0].start : born[0].start + _SECONDS_BYTES])
    ):
        return None
    return Template(
        head=data[start : ids[0].start],
        id_bytes=ids[0].end - ids[0].start,
        middle=data[ids[0].end : born[0].start],
        born_bytes=born[0].end - born[0].start,
        tail=data[born[0].end : body.at + 1],
        resource=data[fields[0].at : fields[0].end],
        topic=stored.topic,
        tag_hash=hash64(stored.tag),
        key_hashes=tuple(map(hash64, stored.keys)),
        properties=stored.rest[: -len(as_sent)],
        stored_head=kept[: stored_id.start],
        stored_middle=kept[stored_id.end : stored_born.start],
        stored_tail=kept[stored_born.end :] + DIGEST_HEAD,
        zipped=zipped,
        layouts={},
    )


def _fields(data: bytes, at: int, end: int) -> Iterator[_Field]:
    """Yield fields of one-byte tags, numbers passed over; nothing at all if there are others."""
    fields: list[_Field] = []
    while at < end:
        tag = data[at]
        value = _length(data, at + 1)
        if tag >= 0x80 or value is None or tag & 7 not in (0, 2):
            return
        stop = value[1] + (value[0] if tag & 7 == 2 else 0)
        if tag & 7 == 2:
            fields.append(_Field(tag, at, value[1], stop))
        at = stop
    if at == end:
        yield from fields


def _is_seconds(field: bytes) -> bool:
    """Tell whether a field is the seconds of a Timestamp, and nothing else."""
    number = _length(field, 1)
    return field[0] == _SECONDS and number is not None and number[1] == len(field)


def are_texts(ids: Sequence[bytes]) -> bool:
    """Tell whether all are UTF-8, none is blank and none has a control character."""
    if b"".join(ids).isalnum():  # ASCII, as every client's own ids are
        return True
    try:
        return all(map(_is_text, map(bytes.decode, ids)))
    except UnicodeDecodeError:
        return False


def _is_text(message_id: str) -> bool:
    return not (message_id.isspace() or has_control_character(message_id))


def _length(data: bytes, at: int) -> tuple[int, int] | None:
    """Read (the varint at `at`, where it ends); None: none of at most five bytes."""
    if at + 1 < len(data) and data[at + 1] < 128 <= data[at]:  # two bytes, as most have
        return data[at] - 128 | data[at + 1] << 7, at + 2
    number = shift = 0
    for index, byte in enumerate(data[at : at + 5]):
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at + index + 1
        shift += 7
    return None
