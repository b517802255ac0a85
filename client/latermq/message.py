"""What goes in and what comes back: `Message`, `SendReceipt`, and what a delivery holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from types import MappingProxyType
from typing import Final

from latermq._values import arguments

PRIORITY_MAX: Final = (1 << 31) - 1
DEDUP_ID_BYTES_MAX: Final = 128
DEDUP_PROPERTY: Final = "LATERMQ_DEDUP_ID"  # as which it travels
NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})


class Sql(str):
    """A SQL92 filter over a message's properties and its tag, where a tag filter may stand.

    `Sql("price BETWEEN 5 AND 10 AND TAGS IN ('paid', 'open')")`. What is wrong with it the broker
    says: IllegalFilterError.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Message:
    """One message to send.

    Fields:
        body: the bytes; not empty, at most what the broker allows (4 MiB unless configured).
        tag: consumers filter by it; at most one.
        keys: business keys to find it by.
        properties: the application's own; keys reserved by RocketMQ are refused.
        message_group: messages of one group are delivered in order, in an ordered (FIFO) group.
        priority: 0 is the lowest; for topics of type priority, which give the higher ones first.
        lite_topic: the queue of its own inside a topic of type lite.
        deliver_at: not before this instant; must know its time zone. The past means at once.
        delay: not before so much from now, by this machine's clock. Excludes `deliver_at`.
        dedup_id: of messages of the topic with the same id, the broker stores one in 5 minutes,
            unless it is configured otherwise. At most 128 bytes of UTF-8.
    """

    body: bytes
    tag: str | None = field(default=None, kw_only=True)
    keys: Sequence[str] = field(default=(), kw_only=True)
    properties: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    message_group: str | None = field(default=None, kw_only=True)
    priority: int | None = field(default=None, kw_only=True)
    lite_topic: str | None = field(default=None, kw_only=True)
    deliver_at: datetime | None = field(default=None, kw_only=True)
    delay: timedelta | None = field(default=None, kw_only=True)
    dedup_id: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.body, bytes):
            raise arguments.wrong("body", "bytes", self.body)
        if self.keys != ():
            arguments.texts("keys", self.keys)
        if self.properties is not NO_PROPERTIES:
            arguments.text_mapping("properties", self.properties)
        if self.tag is not None:
            arguments.optional_text("tag", self.tag)
        if self.message_group is not None:
            arguments.optional_text("message_group", self.message_group)
        if self.lite_topic is not None:
            arguments.optional_text("lite_topic", self.lite_topic)
        if self.delay is not None:
            arguments.duration("delay", self.delay)
        if self.deliver_at is not None and not isinstance(self.deliver_at, datetime):
            raise arguments.wrong("deliver_at", "a datetime", self.deliver_at)
        if self.priority is not None:
            arguments.whole("priority", self.priority)
            if not 0 <= self.priority <= PRIORITY_MAX:
                raise ValueError(f"priority must be 0 to {PRIORITY_MAX}, not {self.priority}")
            if self.message_group is not None:
                raise ValueError("give priority or message_group, not both")
        if self.deliver_at is not None:
            if self.delay is not None:
                raise ValueError("give deliver_at or delay, not both")
            if self.deliver_at.tzinfo is None:
                raise ValueError("deliver_at must know its time zone, e.g. datetime.now(UTC) + …")
        if self.delay is not None and self.delay < timedelta(0):
            raise ValueError(f"delay must not be negative: {self.delay}")
        if self.dedup_id is not None:
            self._check_dedup_id(self.dedup_id)

    def _check_dedup_id(self, dedup_id: str) -> None:
        arguments.name_of("dedup_id", dedup_id)
        size = len(dedup_id.encode())
        if size > DEDUP_ID_BYTES_MAX:
            raise ValueError(f"dedup_id has {size} bytes, {DEDUP_ID_BYTES_MAX} are allowed")
        if DEDUP_PROPERTY in self.properties:
            raise ValueError(f"give dedup_id or the property {DEDUP_PROPERTY}, not both")

    def with_properties(self, **properties: str) -> "Message":
        """Return this message with further properties, or others of these names."""
        return replace(self, properties={**self.properties, **properties})

    def due(self, now: datetime) -> datetime | None:
        """Return the instant to deliver at, None for at once."""
        return self.deliver_at if self.delay is None else now + self.delay


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReceipt:
    """A message the broker has stored.

    Fields:
        queue_offset: its place in its queue; -1 while it is delayed.
        recall_handle: names a delayed message; "" for others.
        duplicate: nothing was stored, for another message with this `dedup_id` was, not long ago:
            all that the receipt says is said of that one. False for what only a try of the same
            send had stored.
    """

    topic: str
    message_id: str
    queue_offset: int
    recall_handle: str = ""
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetterOrigin:
    """Where a message read from a dead-letter topic came from."""

    topic: str
    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Where a lite topic begins for a group that subscribes to it. `Begin()`: its oldest message.

    At most one of the fields is given.

    Fields:
        new_only: with what is sent from now on.
        last: so many messages before where the group is, if it has read of it.
        offset: an offset of the parent's queue.
    """

    new_only: bool = False
    last: int | None = None
    offset: int | None = None

    def __post_init__(self) -> None:
        arguments.truth("new_only", self.new_only)
        if self.new_only + (self.last is not None) + (self.offset is not None) > 1:
            raise ValueError("give one of new_only, last and offset")
        for name, number in (("last", self.last), ("offset", self.offset)):
            if number is not None:
                arguments.whole(name, number)
                if number < 0:
                    raise ValueError(f"{name} must not be negative, and is {number}")


class ConsumeResult(Enum):
    """What a listener may return. Returning nothing is success."""

    SUCCESS = "success"
    RECONSUME_LATER = "reconsume later"


RECONSUME_LATER: Final = ConsumeResult.RECONSUME_LATER
"""What a listener returns to have the message come again, without raising."""


class Resolution(Enum):
    """How a transaction ended."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"  # not known yet: ask again


@dataclass(slots=True, kw_only=True, eq=False)
class Received:
    """What a delivered message says.

    Fields:
        body: uncompressed.
        message_id: its sender's.
        attempt: how often it was delivered to this group, this time included: from 1.
        topic: the one it was sent to, also when this is a retry.
        born_at: when its sender made it.
        stored_at: when the broker stored it.
        delivery_at: the time it was delayed to, None if it was not.
        origin: where it died; set when it was read from a dead-letter topic.
    """

    topic: str
    body: bytes = field(repr=False)
    message_id: str
    attempt: int
    tag: str | None = None
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    message_group: str | None = None
    priority: int | None = None
    lite_topic: str | None = None
    born_at: datetime
    born_host: str = ""
    stored_at: datetime | None = None
    delivery_at: datetime | None = None
    queue_id: int = 0
    queue_offset: int = 0
    origin: DeadLetterOrigin | None = None
