"""Topics and groups that the copies of damaged ranges in `lost/` still tell of.

A CONFIG record that does not match its checksum mostly has its name still. Nothing in it is
verified, so it makes nothing by itself: it is asked when another record speaks of a topic or group
that nobody knows. A field that makes no sense gets its default.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

from latermq_broker.catalog.catalog import UNSET, TopicType, decode_group
from latermq_broker.engine.state.model import Group, Topic
from latermq_broker.store.directory import LOST_NAME
from latermq_broker.store.files import Files, OpenMode
from latermq_broker.store.records.catalog_records import CONFIG_PUT, CONFIG_TOPIC, decode_config
from latermq_broker.store.records.record import (
    HEADER,
    HEADER_BYTES,
    RECORD_MAGIC,
    RECORD_MAGIC_OFFSET,
    RecordType,
)

COPY_SUFFIX: Final = ".bytes"
READ_BYTES: Final = 4 << 20  # of a copy, in one go
CONFIG_BYTES_MAX: Final = 64 << 10  # of a CONFIG record: what is longer is none
CONFIG_HEAD_BYTES: Final = 8
QUEUES_MAX: Final = 1 << 16  # of a topic
AGE_MS_MAX: Final = 1 << 53
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
_EPOCH: Final = re.compile(r"[0-9a-f]{16}")
_FIELD: Final = re.compile(rb'"([a-z_]+)":("[ !#-\[\]-~]*"|-?(?:0|[1-9][0-9]{0,18})(?=[,}]|.\Z))')


class LostCatalog:
    """By the ids that a damaged record has: in its own fields, and in its body."""

    def __init__(self) -> None:
        self.topics: dict[int, Topic] = {}
        self.groups: dict[int, Group] = {}

    def add(self, payload: bytes) -> None:
        """Add what the payload of a CONFIG record seems to put; the newest stands."""
        if len(payload) < CONFIG_HEAD_BYTES:
            return
        config = decode_config(payload)
        if config.operation != CONFIG_PUT:
            return
        if config.kind == CONFIG_TOPIC:
            topic = topic_of(config.body)
            if topic is not None:
                self.topics[topic.id] = self.topics[config.id] = topic
            return
        group = group_of(config.body)
        if group is not None:
            self.groups[group.id] = self.groups[config.id] = group


def read_lost(files: Files, directory: Path) -> LostCatalog:
    """Read the copies that repairs have left in a data directory, the oldest range first."""
    lost = LostCatalog()
    try:
        names = files.list_directory(directory / LOST_NAME)
    except FileNotFoundError:
        return lost
    for name in names:
        stem = name.partition(".")[0].partition("-")[0]
        if name.endswith(COPY_SUFFIX) and stem.isdecimal():
            for payload in _configs(files, directory / LOST_NAME / name, int(stem)):
                lost.add(payload)
    return lost


def topic_of(body: bytes) -> Topic | None:
    """Decode the body of a damaged record that put a topic; None: it has no name any more."""
    fields = _fields(body)
    name = fields.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return None
    try:
        kind = TopicType(_number(fields, "type", 0, 255, TopicType.MIXED))
    except ValueError:
        kind = TopicType.MIXED
    id = _number(fields, "id", 0, 1 << 32, 0)
    epoch = fields.get("epoch")
    known = isinstance(epoch, str) and _EPOCH.fullmatch(epoch) is not None
    return Topic(
        id=id,
        name=name,
        type=kind,
        queue_count=_number(fields, "queue_count", 1, QUEUES_MAX, 1),
        created_ms=_number(fields, "created_ms", 0, AGE_MS_MAX, 0),
        epoch=str(epoch) if known else f"{id:016x}",
        ordered_queue_count=_number(fields, "ordered_queue_count", 0, QUEUES_MAX, 0),
        retention_ms=_number(fields, "retention_ms", UNSET, AGE_MS_MAX, UNSET),
        unread_retention_ms=_number(fields, "unread_retention_ms", UNSET, AGE_MS_MAX, UNSET),
        dedup_window_ms=_number(fields, "dedup_window_ms", UNSET, AGE_MS_MAX, UNSET),
    )


def group_of(body: bytes) -> Group | None:
    """Decode the body of a damaged record that put a group; None: it makes no sense any more."""
    try:
        group = decode_group(body)
        sound = (
            _NAME.fullmatch(group.name)
            and _has_its_types(group)
            and min(group.id, group.max_attempts, group.weight) > 0
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return group if sound else None


def _has_its_types(group: Group) -> bool:
    """Tell whether each field is of its type, which decoding a verified body takes for granted."""
    numbers = [
        group.id,
        group.max_attempts,
        group.created_ms,
        group.weight,
        *chain(*group.forgotten),
    ]
    words = [group.name, group.lite_parent, group.made_by]
    flags = [group.fifo, group.lite_exclusive]
    factors: list[object] = []
    if (backoff := group.backoff) is not None:
        numbers += [*backoff.delays_ms, backoff.initial_ms, backoff.max_ms]
        factors = [backoff.multiplier, backoff.jitter]
    return (
        all(type(number) is int for number in numbers)
        and all(type(word) is str for word in words)
        and all(type(flag) is bool for flag in flags)
        and all(type(factor) in (int, float) for factor in factors)
    )


def _fields(body: bytes) -> Mapping[str, Any]:
    """Read a JSON object; if it is none any more, what of it are plain fields."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        fields = {name.decode(): json.loads(value) for name, value in _FIELD.findall(body)}
    return fields if isinstance(fields, dict) else {}


def _number(fields: Mapping[str, Any], name: str, least: int, most: int, default: int) -> int:
    number = fields.get(name)
    if type(number) is int and least <= number <= most:
        return number
    return default


def _configs(files: Files, path: Path, position: int) -> Iterator[bytes]:
    """Yield the payloads of what seem to be CONFIG records in the copy of a range."""
    fd = files.open(path, OpenMode.READ)
    try:
        for begin in range(0, files.size(fd), READ_BYTES):
            data = files.pread(fd, READ_BYTES + CONFIG_BYTES_MAX, begin)
            at = data.find(RECORD_MAGIC, RECORD_MAGIC_OFFSET)
            while 0 <= at < READ_BYTES + RECORD_MAGIC_OFFSET:
                start = at - RECORD_MAGIC_OFFSET
                if payload := _config_at(data, start, position + begin + start):
                    yield payload
                at = data.find(RECORD_MAGIC, at + 1)
    finally:
        files.close(fd)


def _config_at(data: bytes, start: int, position: int) -> bytes:
    """Return the payload of the CONFIG record there; nothing: there is none."""
    if len(data) < start + HEADER_BYTES:
        return b""
    _, length, kind, _, _, own_position, *_ = HEADER.unpack_from(data, start)
    whole = HEADER_BYTES < length <= CONFIG_BYTES_MAX and start + length <= len(data)
    if kind != RecordType.CONFIG or own_position != position or not whole:
        return b""
    return data[start + HEADER_BYTES : start + length]
