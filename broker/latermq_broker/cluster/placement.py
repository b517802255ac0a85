"""Which shard has what. Pure: names and numbers in, numbers out.

    NORMAL, DELAY, dead letters   all shards
    MIXED                         all shards, but messages with a message group: the topic's home
    FIFO, TRANSACTION,            the topic's home: order, a lite topic's subscribers and the order
    PRIORITY, LITE                of priorities are one shard's to keep

A home is a hash of the name, the same in every shard and for ever, for the number of shards does
not change; unless it is pinned: a topic that was there before the cluster stays where it was.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from latermq_broker.catalog.catalog import TopicType

SPREAD: Final = (TopicType.NORMAL, TopicType.DELAY, TopicType.MIXED)  # over all shards
ORDERLESS: Final = (TopicType.NORMAL, TopicType.DELAY)  # never holds what needs a home
FIRST: Final = 0  # decides the catalogue; was the only broker, if there was one
_NAMED: Final = re.compile(r"(.*)@([0-9]{1,3})", re.DOTALL)


def shard_name(number: int) -> str:
    """Name a shard as routes do: clients know brokers by it."""
    return f"shard-{number:02}"


def home_by_name(topic: str, count: int) -> int:
    """Give the home that the hash of a topic's name says."""
    return int.from_bytes(blake2b(topic.encode(), digest_size=8).digest(), "big") % count


def handle_of(handle: str, shard: int) -> str:
    """Name the shard in a handle of its own; an empty one stays so."""
    return f"{handle}@{shard}" if handle else handle


def parse_handle(handle: str) -> tuple[str, int]:
    """Give a handle as its shard made it, and that shard; from before the cluster: the first."""
    match = _NAMED.fullmatch(handle)
    return (match[1], int(match[2])) if match is not None else (handle, FIRST)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the topics of a cluster of `count` shards are.

    Fields:
        pins: homes that are not by name.
    """

    count: int
    pins: Mapping[str, int]

    def home(self, topic: str) -> int:
        """Give the shard of what must be in one place, whatever the topic's type."""
        pinned = self.pins.get(topic)
        return home_by_name(topic, self.count) if pinned is None else pinned

    def shards(self, topic: str, kind: TopicType) -> Sequence[int]:
        """List the shards that have queues of a topic."""
        return range(self.count) if kind in SPREAD else (self.home(topic),)

    def home_of_send(self, topic: str, kind: TopicType, *, ordered: bool) -> int | None:
        """Give the only shard that may take a send; None: any may."""
        return self.home(topic) if ordered or kind not in SPREAD else None
