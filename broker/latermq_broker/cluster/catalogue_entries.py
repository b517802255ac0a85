"""What of the catalogue shards share: topics and groups by name and identity, limits, users."""

from collections.abc import Iterable
from typing import NamedTuple

from latermq_broker.catalog.access import encode_user
from latermq_broker.catalog.catalog import (
    GROUPS,
    TOPICS,
    Catalog,
    Group,
    Topic,
    TopicTimes,
    encode_group,
    encode_topic,
)
from latermq_broker.catalog.limits import encode_limit
from latermq_broker.engine.engine import Engine
from latermq_proto.latermq.v1 import cluster_pb2


class Key(NamedTuple):
    """Which topic or group."""

    kind: str  # TOPICS or GROUPS
    name: str


class Touched(set[Key]):
    """What of a catalogue was put or removed since this was made, or cleared."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__()
        catalog.on_change = lambda kind, name: self.add(Key(kind, name))


def all_shared(catalog: Catalog) -> set[Key]:
    """List the groups, and the topics but those of dead letters: each shard makes its own."""
    topics = {Key(TOPICS, topic.name) for topic in catalog.topics() if not topic.internal}
    return topics | {Key(GROUPS, group.name) for group in catalog.groups()}


def identity_of(catalog: Catalog, key: Key) -> str | None:
    """Tell an entry from another of its name, made before or after it; None: nothing is shared."""
    if key.kind == TOPICS:
        topic = catalog.topic(key.name)
        return None if topic is None or topic.internal else topic.epoch
    group = catalog.group(key.name)
    return None if group is None else group_identity(group)


def identities(catalog: Catalog, keys: Iterable[Key]) -> dict[Key, str]:
    """Give the identities of those that there are."""
    return {key: identity for key in keys if (identity := identity_of(catalog, key)) is not None}


def group_identity(group: Group) -> str:
    """Tell a group from another of its name."""
    return str(group.created_ms)


def times_of(topic: Topic) -> TopicTimes:
    """Give a topic's own times: to another shard, which is to have the same."""
    return TopicTimes(topic.retention_ms, topic.unread_retention_ms, topic.dedup_window_ms)


def version_of(engine: Engine) -> tuple[int, int, int]:
    """Give three numbers, one of which is another one after each change."""
    return engine.catalog.version, engine.limits.table.version, engine.users.version


def encoded(catalog: Catalog, keys: Iterable[Key]) -> tuple[list[bytes], list[bytes]]:
    """Give topics and groups that there are, as they are in the log."""
    names = sorted(identities(catalog, keys))
    return (
        [encode_topic(catalog.require_topic(key.name)) for key in names if key.kind == TOPICS],
        [encode_group(catalog.require_group(key.name)) for key in names if key.kind == GROUPS],
    )


def add_rights(
    response: cluster_pb2.CopyCatalogueResponse, engine: Engine, *, has_users: bool
) -> None:
    """Add the limits and the users, as they are in the log."""
    response.limits.extend(map(encode_limit, engine.limits.table.all()))
    if has_users:
        response.users.extend(map(encode_user, engine.users.all()))
