"""The options of `format("latermq")`: names, defaults, bounds.

Where Spark's Kafka source has an option of the same meaning, ours has its name. An unknown option
is an error: a typing error in `failOnDataLoss` must not pass in silence.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

from latermq._values.credentials import credentials_of
from latermq._values.tls import Tls, tls_of
from latermq.spark.errors import OptionError
from latermq.spark.places import topic_of
from latermq_text.durations import parse_duration_ms, shown
from latermq_text.instants import parse_instant_ms

Value = TypeVar("Value")

DLQ_PREFIX: Final = "%DLQ%"
PAGE_BYTES_MAX: Final = 8 << 20  # a broker gives 2 MiB, older ones so much
PAGE_ROWS_MAX: Final = 2_000
_AT_EARLIEST: Final = -2  # Kafka's numbers in offset JSON
_AT_LATEST: Final = -1
_BARE_MS_MIN: Final = 1_000  # of a span without a unit
_COUNT_MAX: Final = (1 << 62) - 1  # of rows, partitions and offsets
_QUEUE_MAX: Final = (1 << 31) - 1
_DIGITS_MAX: Final = 40  # of a number that is read: longer is out of every bound


class Edge(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Where a new query starts, or a batch ends."""

    edge: Edge
    offsets: Mapping[str, Mapping[int, int]] | None = None  # -2 earliest, -1 latest
    at_ms: int = 0

    @property
    def moves(self) -> bool:
        """Tell whether asking again later may give later offsets though nothing was deleted."""
        if self.offsets is not None:
            return any(_AT_LATEST in queues.values() for queues in self.offsets.values())
        return self.edge in (Edge.LATEST, Edge.TIME)


@dataclass(frozen=True, slots=True)
class Subscription:
    """Exact topic names, or a regular expression that matches whole names."""

    topics: tuple[str, ...] = ()
    pattern: str = ""

    def __contains__(self, place: str) -> bool:
        topic = topic_of(place)
        if self.pattern:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    endpoints: tuple[str, ...]
    subscription: Subscription
    starting: Boundary = Boundary(edge=Edge.EARLIEST)
    ending: Boundary = Boundary(edge=Edge.LATEST)
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int = 0
    trigger_delay_ms_max: int = 15 * 60_000
    partitions_min: int = 4
    partition_rows_max: int = 50_000
    fail_on_data_loss: bool = True
    retry_ms: int = 30_000
    request_timeout_ms: int = 10_000
    page_bytes_max: int = 1 << 20
    page_rows_max: int = PAGE_ROWS_MAX
    offset_poll_ms: int = 200
    access_key: str = ""  # "": calls are not signed
    secret_key: str = field(default="", repr=False)
    tls: bool = False
    ca: bytes = field(default=b"", repr=False)  # PEM; empty: whom the system trusts


def parse(given: Mapping[str, str]) -> Options:
    """Parse the options as Spark hands them over: text, their names in any case.

    Raises:
        OptionError: names the option, and the nearest one if there is none of that name.
    """
    known = {name.lower(): name for name in _PARSERS}
    names = {known.get(key.lower()) for key in given}
    for which in ("starting", "ending"):
        by_offset, by_time = f"{which}Offsets", f"{which}Timestamp"
        if {by_offset, by_time} <= names:
            raise OptionError(f"{by_offset} and {by_time} exclude each other")
    values: dict[str, Any] = {}
    for key, text in given.items():
        name = known.get(key.lower())
        if name is None:
            near = get_close_matches(key.lower(), known, n=1, cutoff=0.5)
            hint = f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(_PARSERS)}"
            raise OptionError(f"there is no option {key}; {hint}")
        try:
            values[name] = _PARSERS[name](text.strip())
        except ValueError as error:
            said = name if name in _SECRET else f"{name}={shown(text)}"
            raise OptionError(f"{said}: {error}") from error
    if "endpoint" not in values:
        raise OptionError("endpoint is missing: host:port of the broker, reachable by executors")
    if values.get("minOffsetsPerTrigger", 0) > values.get("maxOffsetsPerTrigger", _COUNT_MAX):
        raise OptionError("minOffsetsPerTrigger is above maxOffsetsPerTrigger: nothing would run")
    fields = {known: values[name] for name, known in _FIELDS.items() if name in values}
    fields |= _identity(values)
    return Options(
        endpoints=values["endpoint"],
        subscription=_subscription(values),
        starting=_boundary(values, "starting", Edge.EARLIEST),
        ending=_boundary(values, "ending", Edge.LATEST),
        **fields,
    )


def _identity(values: Mapping[str, Any]) -> dict[str, Any]:
    """Find who asks, and whom to trust: in the options, else in the driver's environment."""
    try:
        credentials = credentials_of(values.get("accessKey"), values.get("secretKey"))
    except ValueError as error:
        raise OptionError(f"accessKey, secretKey: {error}") from None
    identity: dict[str, Any] = {}
    if credentials is not None:
        identity |= {"access_key": credentials.access_key, "secret_key": credentials.secret}
    if "caFile" in values:
        if values.get("tls") is False:
            raise OptionError("tls=false does not go with caFile")
        return identity | {"tls": True, "ca": values["caFile"]}
    security = tls_of(values.get("tls"))
    if not isinstance(security, Tls):
        return identity | {"tls": security}
    if not security.verify:
        raise OptionError("a Spark reader cannot trust whoever answers: set the option caFile")
    ca = str(security.ca)  # $LATERMQ_CA: a file
    try:
        return identity | {"tls": True, "ca": _file(ca)}
    except ValueError as error:
        raise OptionError(f"LATERMQ_CA={ca}: {error}") from None


def _subscription(values: Mapping[str, Any]) -> Subscription:
    chosen = [name for name in ("topics", "topicPattern", "group") if name in values]
    if len(chosen) != 1:
        given = " and ".join(chosen) or "none"
        raise OptionError(f"exactly one of topics, topicPattern and group is needed, not {given}")
    if "topicPattern" in values:
        return Subscription(pattern=values["topicPattern"])
    prefix = DLQ_PREFIX if "group" in values else ""
    names = dict.fromkeys(prefix + name for name in values[chosen[0]])
    return Subscription(topics=tuple(sorted(names)))


def _boundary(values: Mapping[str, Any], which: str, default: Edge) -> Boundary:
    by_offset, by_time = f"{which}Offsets", f"{which}Timestamp"
    boundary: Boundary = values.get(by_offset) or values.get(by_time) or Boundary(edge=default)
    unlike = Edge.LATEST if default is Edge.EARLIEST else Edge.EARLIEST
    if which == "ending" and boundary.edge is unlike:
        raise OptionError("endingOffsets=earliest would read nothing")
    return boundary


def _file(path: str) -> bytes:
    """Read here: executors need not have it."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error


def _text(text: str) -> str:
    return text


def _list(text: str) -> tuple[str, ...]:
    items = tuple(item.strip() for item in text.split(",") if item.strip())
    if not items:
        raise ValueError("at least one is needed, several are separated by commas")
    return items


def _endpoints(text: str) -> tuple[str, ...]:
    for endpoint in _list(text):
        host, colon, port = endpoint.rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 1 << 16) or "/" in host:
            raise ValueError("host:port is needed, several are separated by commas")
    return _list(text)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    if not text:
        raise ValueError("an empty pattern matches no topic")
    return text


def _offsets(text: str) -> Boundary:
    if text.lower() in (Edge.EARLIEST.value, Edge.LATEST.value):
        return Boundary(edge=Edge(text.lower()))
    expected = 'earliest, latest or JSON such as {"orders": {"0": 23, "1": -1}}'
    try:
        document = json.loads(text)
        offsets = {
            topic: {int(queue_id): offset for queue_id, offset in queues.items()}
            for topic, queues in document.items()
        }
    except (AttributeError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{expected} is needed") from error
    for queues in offsets.values():
        for queue_id, offset in queues.items():
            if type(offset) is not int or not _AT_EARLIEST <= offset <= _COUNT_MAX:
                raise ValueError(
                    f"{expected} is needed; -2 is earliest, -1 latest, at most {_COUNT_MAX}"
                )
            if not 0 <= queue_id <= _QUEUE_MAX:
                raise ValueError(f"{expected} is needed; queues are from 0 to {_QUEUE_MAX}")
    return Boundary(edge=Edge.OFFSETS, offsets=offsets)


def _time(text: str) -> Boundary:
    return Boundary(edge=Edge.TIME, at_ms=parse_instant_ms(text, zone=UTC))


def _duration_ms(text: str) -> int:
    """Read a span; a bare number is of milliseconds, from a second on: fewer are rather seconds."""
    if text.isascii() and text.isdigit() and int(text[:_DIGITS_MAX]) >= _BARE_MS_MIN:
        text += "ms"
    span_ms = parse_duration_ms(text)
    if not span_ms:
        raise ValueError("a duration above 0 is needed, such as 500ms, 30s, 15m or 1h")
    return span_ms


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false is needed")
    return text.lower() == "true"


def _count(low: int, high: int = _COUNT_MAX) -> Callable[[str], int]:
    def parse_count(text: str) -> int:
        is_number = text.isdecimal() and len(text) <= _DIGITS_MAX
        if not is_number or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high} is needed")
        return int(text)

    return parse_count


_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "endpoint": _endpoints,
    "topics": _list,
    "topicPattern": _pattern,
    "group": _list,
    "startingOffsets": _offsets,
    "endingOffsets": _offsets,
    "startingTimestamp": _time,
    "endingTimestamp": _time,
    "maxOffsetsPerTrigger": _count(1),
    "minOffsetsPerTrigger": _count(1),
    "maxTriggerDelay": _duration_ms,
    "minPartitions": _count(1),
    "rowsPerPartition": _count(1),
    "failOnDataLoss": _flag,
    "retryFor": _duration_ms,
    "requestTimeout": _duration_ms,
    "pageBytes": _count(1, PAGE_BYTES_MAX),
    "pageRows": _count(1, PAGE_ROWS_MAX),
    "offsetPollMs": _count(0),
    "accessKey": _text,
    "secretKey": _text,
    "tls": _flag,
    "caFile": _file,
}
_SECRET: Final = frozenset({"secretKey"})  # in no message
_FIELDS: Final = {
    "maxOffsetsPerTrigger": "offsets_per_trigger_max",
    "minOffsetsPerTrigger": "offsets_per_trigger_min",
    "maxTriggerDelay": "trigger_delay_ms_max",
    "minPartitions": "partitions_min",
    "rowsPerPartition": "partition_rows_max",
    "failOnDataLoss": "fail_on_data_loss",
    "retryFor": "retry_ms",
    "requestTimeout": "request_timeout_ms",
    "pageBytes": "page_bytes_max",
    "pageRows": "page_rows_max",
    "offsetPollMs": "offset_poll_ms",
}
