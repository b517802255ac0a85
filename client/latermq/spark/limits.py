"""How many rows of a limited batch come from which queue."""

from collections.abc import Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def share(backlogs: Mapping[Key, int], limit: int) -> dict[Key, int]:
    """Count the rows to take from each queue: min(limit, total backlog) altogether.

    Smallest backlog first, each an equal share of what is left of the limit: small queues are
    emptied, large ones split the rest. Whatever a division leaves over falls to the largest, so
    any limit ≥ 1 makes progress and none starves: the largest does not stay the largest.
    """
    taken = {}
    left = limit
    by_size = sorted(backlogs, key=lambda key: backlogs[key])  # stable: equal backlogs keep order
    for index, key in enumerate(by_size):
        taken[key] = min(backlogs[key], left // (len(by_size) - index))
        left -= taken[key]
    return taken
