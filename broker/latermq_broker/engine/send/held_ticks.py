"""Users whose schedules wait, as they have sent all that their limit allows."""

import logging
from collections import OrderedDict
from typing import Final

from latermq_broker.catalog.schedules import NEVER, Schedules
from latermq_broker.engine.send.send_gate import SendGate

log = logging.getLogger("latermq.engine")

TOLD_MS: Final = 3_600_000  # a user's waiting schedules are logged again after so long
TOLD_MAX: Final = 10_000  # users of whom is known when that was


class HeldTicks:
    def __init__(self, gate: SendGate, table: Schedules) -> None:
        self._gate = gate
        self._table = table
        self._until_ms: dict[str, int] = {}  # by access key
        self._told_ms: OrderedDict[str, int] = OrderedDict()
        self._changes = 0
        self._seen: tuple[int, int, int] = (-1, -1, -1)  # what `_next_ms` was found by
        self._next_ms: int | None = None
        self._version = gate.version

    def __len__(self) -> int:
        """Count the users whose schedules wait; after a change of limits none does."""
        if self._version != self._gate.version:
            self._version = self._gate.version
            self._until_ms.clear()
        return len(self._until_ms)

    def holds(self, user: str, schedule: str, now_ms: int) -> bool:
        """Tell whether a tick of the user's schedule has to wait."""
        if len(self) and self._until_ms.get(user, 0) > now_ms:
            return True
        wait_ms = self._gate.wait_ms(user, now_ms)
        if wait_ms:
            self._until_ms[user] = now_ms + wait_ms
            self._changes += 1
            self._tell(user, schedule, wait_ms, now_ms)
            return True
        if self._until_ms.pop(user, None) is not None:
            self._changes += 1
        return False

    def next_deadline_ms(self, ahead_ms: int) -> int | None:
        """Return when the next tick may be sent, on the broker's own clock; None: there is none.

        Args:
            ahead_ms: how far the wall clock is ahead of that.
        """
        seen = (self._table.version, self._changes, ahead_ms)
        if seen != self._seen:
            self._seen = seen
            self._next_ms = min(
                (
                    max(each.next_ms - ahead_ms, self._until_ms.get(each.made_by, 0))
                    for each in self._table.all()
                    if each.next_ms != NEVER
                ),
                default=None,
            )
        return self._next_ms

    def _tell(self, user: str, schedule: str, wait_ms: int, now_ms: int) -> None:
        told_ms = self._told_ms.get(user)
        if told_ms is not None and 0 <= now_ms - told_ms < TOLD_MS:
            return
        self._told_ms[user] = now_ms
        self._told_ms.move_to_end(user)
        if len(self._told_ms) > TOLD_MAX:
            self._told_ms.popitem(last=False)
        log.warning(
            "schedules wait: their user has sent all that its limit allows",
            extra={"user": user, "schedule": schedule, "ms": wait_ms},
        )
