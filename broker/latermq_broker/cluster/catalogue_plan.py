"""How a shard's topics or groups become those of shard 0. Pure: names in, a plan out.

| here | at shard 0 | so |
|---|---|---|
| no | yes | make it |
| yes | yes | make it alike |
| the copy of what shard 0 says it deleted | no, or made anew | delete it, make it anew |
| yes, any other | no | tell shard 0, which makes it |

Only a deletion that shard 0 tells of deletes: a shard 0 that lost its last changes, or all of them
in another directory, is told what the others have, and nobody's messages go.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple


class Link(NamedTuple):
    """That an entry here is the copy of one at shard 0, by their identities."""

    first: str
    own: str


class Plan(NamedTuple):
    """Names, in order of what is done: each of `made` that is in `deleted` is made anew."""

    deleted: list[str]
    made: list[str]
    compared: list[str]
    news: list[str]


def plan(
    own: Mapping[str, str],
    first: Mapping[str, str],
    links: Mapping[str, Link],
    deleted: Collection[tuple[str, str]],
) -> Plan:
    """Plan what to do about the entries of one kind.

    Args:
        own: identity of each entry here, by name.
        first: the same of shard 0.
        links: those known here to be copies.
        deleted: (name, identity) of what shard 0 deleted.
    """
    result = Plan([], [], [], [])
    for name, identity in sorted(own.items()):
        link = links.get(name)
        if link is not None and link.own == identity and (name, link.first) in deleted:
            result.deleted.append(name)
            if name in first:
                result.made.append(name)
        elif name in first:
            result.compared.append(name)
        else:
            result.news.append(name)
    result.made.extend(sorted(first.keys() - own.keys()))
    return result
