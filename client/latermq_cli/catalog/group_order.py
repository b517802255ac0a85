"""Groups by what needs a look first. The broker puts them in order: it need not send them all."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from latermq_cli.connection.connection import Connection
from latermq_proto.latermq.v1 import group_pb2

FIRST_MAX: Final = 1_000  # groups that a broker lists in another order than by name
BY_NAME: Final = "name"
ORDERS: Final = {
    "behind": group_pb2.BY_AGE,
    "ready": group_pb2.BY_READY,
    "failing": group_pb2.BY_FAILURES,
    "dead": group_pb2.BY_DEAD_LETTERS,
}
_KEYS: Final[dict[str, Callable[[group_pb2.Group], Any]]] = {
    "behind": lambda group: (
        -(group.progress.oldest_unread_at_ms or 1 << 62),
        group.progress.ready_count,
    ),
    "ready": lambda group: group.progress.ready_count,
    "failing": lambda group: group.progress.failed_per_s,
    "dead": lambda group: group.dead_letter_count,
}


def first_groups(broker: Connection, order: str, count: int) -> list[group_pb2.Group]:
    """Ask a broker, or a shard, for the first of its groups."""
    request = group_pb2.ListGroupsRequest(page_size=min(count, FIRST_MAX), order=ORDERS[order])
    return list(broker.call(broker.groups.ListGroups, request).groups)


def named_groups(broker: Connection, names: Iterable[str]) -> list[group_pb2.Group]:
    """Ask a broker, or a shard, for these groups: those of them that it has."""
    request = group_pb2.ListGroupsRequest(names=sorted(set(names))[:FIRST_MAX])
    return list(broker.call(broker.groups.ListGroups, request).groups)


def in_order(groups: Iterable[group_pb2.Group], order: str) -> list[group_pb2.Group]:
    """Put groups into an order by what they are now; by name where they are equal."""
    return sorted(groups, key=_KEYS[order], reverse=True)
