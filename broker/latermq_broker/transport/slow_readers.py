"""Ends answers that are not read, sooner than `stall_ms_max`, while others need the room.

Watched are connections that hold more than a small answer. Each is looked at once a second: it has
`stall_scarce_ms` to take PROGRESS_BYTES, if more than half of what all may hold is held.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from latermq_broker.transport.grpc.reply_memory import SMALL_BYTES, ReplyBudget

LOOK_S: Final = 1.0
PROGRESS_BYTES: Final = 64 << 10  # 13 KB/s of 5 s: a modem's worth


class Reader(Protocol):
    """A connection, as it is seen here."""

    @property
    def held_bytes(self) -> int:
        """Count the bytes of answers that wait to be read; 0 when it is over."""

    @property
    def taken_bytes(self) -> int:
        """Count the bytes written so far."""

    def end_unread(self) -> None:
        """Reset what waits, or end all if nothing can be written."""


class _Mark(NamedTuple):
    at_ms: int
    taken_bytes: int


class SlowReaders:
    """Ends the replies of a server's peers that read too slowly.

    Args:
        ended: told of each reader whose answers were ended.
    """

    def __init__(
        self,
        budget: ReplyBudget,
        stall_ms: int,
        now_ms: Callable[[], int],
        ended: Callable[[Reader], None],
    ) -> None:
        self._budget = budget
        self._stall_ms = stall_ms
        self._now_ms = now_ms
        self._ended = ended
        self._marks: dict[Reader, _Mark] = {}

    def __len__(self) -> int:
        return len(self._marks)

    def watch(self, reader: Reader) -> None:
        """Watch a reader: it holds more than a small answer; again does nothing."""
        if reader not in self._marks:
            self._marks[reader] = _Mark(self._now_ms(), reader.taken_bytes)

    def look(self) -> None:
        """Forget who has read, end what was not read for too long."""
        now_ms = self._now_ms()
        for reader, mark in list(self._marks.items()):
            taken_bytes = reader.taken_bytes
            if reader.held_bytes <= SMALL_BYTES:
                del self._marks[reader]
            elif taken_bytes - mark.taken_bytes >= PROGRESS_BYTES:
                self._marks[reader] = _Mark(now_ms, taken_bytes)
            elif self._budget.scarce and now_ms - mark.at_ms >= self._stall_ms:
                del self._marks[reader]
                reader.end_unread()
                self._ended(reader)


class EachSecond:
    """Calls what has to be looked at now and then, until it is stopped."""

    def __init__(self, *looks: Callable[[], None]) -> None:
        self._looks = looks
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self.start()
        for look in self._looks:
            look()
