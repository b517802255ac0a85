"""A pump that has always written already, with a clock the test turns."""

import asyncio
from collections.abc import Awaitable

from latermq_broker.errors import TooManyRequestsError


class FakeCommitter:
    """`seam.Committer`. Waits end at once, unless `hold` was called."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.time_ms = now_ms
        self.backlogged = False
        self.waits = 0
        self._held: list[asyncio.Future[None]] | None = None

    def now_ms(self) -> int:
        return self.time_ms

    def admit(self) -> None:
        if self.backlogged:
            raise TooManyRequestsError("the disk is behind")

    def written(self) -> Awaitable[None]:
        self.waits += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._held is None:
            future.set_result(None)
        else:
            self._held.append(future)
        return future

    def synced(self) -> Awaitable[None]:
        return self.written()

    def leased(self) -> Awaitable[None]:
        return self.written()

    def hold(self) -> None:
        self._held = []

    def release(self, error: Exception | None = None) -> None:
        """End the waits held so far, with `error` if given; later ones end at once."""
        held, self._held = self._held or [], None
        for future in held:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
