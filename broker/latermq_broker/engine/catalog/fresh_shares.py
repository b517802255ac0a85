"""What first use made of late at this shard, which the other shards may not know of yet.

Each shard counts what a user made at any of them, as far as it was told. Untold may be as much at
every other shard: so what is new here counts once for each shard, until all have it. A user that
makes topics at all shards at once has no more than its part of the catalogue.
"""

from collections import deque
from typing import Final

from latermq_broker.catalog.limits import Limits

FRESH_MS: Final = 5_000  # a shard that is there has a copy by then


class FreshShares:
    """Topics, or groups, by the access key of the user that made them."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._made: deque[tuple[int, str]] = deque()  # (when, by whom), the oldest first

    def note(self, user: str, now_ms: int) -> None:
        """Note that first use has made one; `user` "": nobody's share."""
        if user and self._limits.parts > 1:
            self._made.append((now_ms, user))

    def unseen(self, user: str, now_ms: int) -> int:
        """Count what the user may have made at the other shards that is not known here."""
        while self._made and not 0 <= now_ms - self._made[0][0] < FRESH_MS:
            self._made.popleft()
        return (self._limits.parts - 1) * sum(by == user for _, by in self._made)
