"""What of the catalogue shards share: topics and groups by name and identity, limits, users."""

from latermq_broker.catalog.access import encode_user
from latermq_broker.catalog.catalog import (
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


def shared_topics(catalog: Catalog) -> dict[str, Topic]:
    """List the topics by name, but those of dead letters: each shard makes its own."""
    return {topic.name: topic for topic in catalog.topics() if not topic.internal}


def shared_groups(catalog: Catalog) -> dict[str, Group]:
    """List the groups by name."""
    return {group.name: group for group in catalog.groups()}


def group_identity(group: Group) -> str:
    """Tell a group from another of its name, made before or after it."""
    return str(group.created_ms)


def times_of(topic: Topic) -> TopicTimes:
    """Give a topic's own times: to another shard, which is to have the same."""
    return TopicTimes(topic.retention_ms, topic.unread_retention_ms, topic.dedup_window_ms)


def version_of(engine: Engine) -> tuple[int, int, int]:
    """Give three numbers, one of which is another one after each change."""
    return engine.catalog.version, engine.limits.table.version, engine.users.version


def entries(engine: Engine, *, has_users: bool) -> cluster_pb2.CopyCatalogueResponse:
    """Give all that is shared, as it is in the log."""
    return cluster_pb2.CopyCatalogueResponse(
        topics=map(encode_topic, shared_topics(engine.catalog).values()),
        groups=map(encode_group, shared_groups(engine.catalog).values()),
        limits=map(encode_limit, engine.limits.table.all()),
        users=map(encode_user, engine.users.all()) if has_users else (),
    )
