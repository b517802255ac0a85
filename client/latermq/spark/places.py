"""A topic in one shard of a cluster: by one name, in offsets and in ranges.

    orders      of a broker that is alone, or in shard 0
    orders@2    in shard 2

So the checkpoint of a query over one broker goes on when that becomes shard 0 of a cluster, and the
others begin at their earliest. No topic has an @ in its name.
"""

from typing import Final

_MARK: Final = "@"


def place_of(topic: str, shard: int) -> str:
    """Name a topic in a shard."""
    return f"{topic}{_MARK}{shard}" if shard else topic


def topic_of(place: str) -> str:
    """Return the topic of a place."""
    return place.partition(_MARK)[0]


def shard_of(place: str) -> int:
    """Return the shard of a place."""
    return int(place.partition(_MARK)[2] or 0)
