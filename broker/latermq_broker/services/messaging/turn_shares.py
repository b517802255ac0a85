"""Messages leased to one group in one turn of the event loop, bounded for the other groups' sake.

Leasing is the most expensive part of a turn: a group with a hundred consumers and a hundred
thousand retries would use each turn alone, and delay a single message of another group. A group
beyond its bound continues in the next turn, after the groups that had none.
"""

import asyncio
from collections.abc import Callable
from typing import Final

MESSAGES: Final = 64  # of a turn, for each unit of weight; the last receive may take more


class TurnShares:
    """Counts messages by group. Made and used in one running loop."""

    def __init__(self, weight: Callable[[str], int], again: Callable[[str, str], None]) -> None:
        """
        Args:
            weight: of a group, by its name.
            again: has a group's line for a topic served in the next turn.
        """
        self._weight = weight
        self._again = again
        self._taken: dict[str, int] = {}
        self._loop = asyncio.get_running_loop()

    def spent(self, group: str) -> bool:
        """Return whether the group has had its share of this turn."""
        taken = self._taken.get(group, 0)
        return taken >= MESSAGES and taken >= MESSAGES * self._weight(group)

    def over(self, group: str, topic: str) -> bool:
        """Return whether the group has had its share; then it is served again in the next turn."""
        if not self.spent(group):
            return False
        self._again(group, topic)
        return True

    def take(self, group: str, count: int) -> None:
        """Count messages that were leased to the group in this turn."""
        if not self._taken:
            self._loop.call_soon(self._taken.clear)
        self._taken[group] = self._taken.get(group, 0) + count
