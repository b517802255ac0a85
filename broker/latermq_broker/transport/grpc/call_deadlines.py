"""Which calls of one connection get a timer: those that are not answered soon.

And which have not said what they want: those whose request a read left incomplete.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from latermq_broker.transport.grpc.call import LeanCall

SOON_MS: Final = 10  # within which most calls are answered


class Deadlines:
    """Of one connection.

    Args:
        arm: gives a call its timer.
        unknown: told of a call that has not said what it wants; may answer it.
    """

    def __init__(
        self, arm: Callable[[LeanCall], None], unknown: Callable[[LeanCall], None]
    ) -> None:
        self.opened: list[LeanCall] = []  # since the last `look`, with a deadline or without END
        self._watched: list[LeanCall] = []  # looked at again soon
        self._arm = arm
        self._unknown = unknown
        self._loop = asyncio.get_running_loop()

    def look(self) -> None:
        """After a read: a timer for who has little time, another look soon for the others."""
        opened, self.opened = self.opened, []
        for call in opened:
            if call.stream.call is not call or call.answered:
                continue
            if not call.known:
                self._unknown(call)
            timeout_ms = call.head.timeout_ms
            if call.answered or timeout_ms is None:
                continue
            if timeout_ms <= SOON_MS:
                self._arm(call)
                continue
            if not self._watched:
                self._loop.call_later(SOON_MS / 1_000, self._look_again)
            self._watched.append(call)

    def _look_again(self) -> None:
        watched, self._watched = self._watched, []
        for call in watched:
            if call.stream.call is call:
                self._arm(call)
