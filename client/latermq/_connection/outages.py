"""One line when a broker is away, one when it is back, however much is tried meanwhile."""

import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from latermq._connection.one_loop import OneLoop
from latermq._connection.silence import nobody_answered
from latermq._connection.transport import Metadata, Stream, Transport
from latermq._values.endpoints import Endpoints
from latermq.errors import LaterMQError

log = logging.getLogger("latermq.client")

# A broker that is replaced or restarted is back before anybody need read of it.
SILENT_S: Final = 1.0


def log_failure(
    logger: logging.Logger,
    what: str,
    error: LaterMQError,
    *,
    quietly: bool = False,
    **about: object,
) -> None:
    """Log what failed and is tried again.

    At DEBUG where it is said once anyhow: no broker answers, or `quietly`.
    """
    level = logging.DEBUG if quietly or nobody_answered(error) else logging.INFO
    where = "".join(f", {name} {value}" for name, value in about.items())
    logger.log(level, "%s%s: %s", what, where, error, extra={**about, "reason": str(error)})


class _Outage:
    """A broker that does not answer, since when, and whether it was said."""

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.logged = False


class Outages:
    """Keeps which brokers do not answer, of those that a client's connections go to.

    Args:
        now_s: a clock that only goes forward.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._away: dict[Endpoints, _Outage] = {}
        self._followed: Counter[Endpoints] = Counter()  # by how many sessions

    @property
    def count(self) -> int:
        """Return how many brokers do not answer, of those followed; short absences included.

        Before any is followed, only the access point was called.
        """
        if not self._followed:
            return len(self._away)
        return sum(each in self._followed for each in self._away)

    def away(self, endpoints: Endpoints) -> bool:
        """Tell whether the last call to a broker reached nobody."""
        return endpoints in self._away

    def lost(self, endpoints: Endpoints, error: Exception) -> None:
        """Note a call that reached no broker; the first one after a second of them is logged."""
        now_s = self._now_s()
        outage = self._away.setdefault(endpoints, _Outage(now_s))
        if not outage.logged and now_s - outage.since_s >= SILENT_S:
            outage.logged = True
            reason = str(error)
            where = "" if str(endpoints) in reason else f"no broker answers at {endpoints}: "
            log.warning(
                "%s%s; trying again until one does", where, reason,
                extra={"endpoint": str(endpoints), "reason": reason},
            )  # fmt: skip

    def follow(self, endpoints: Endpoints) -> None:
        """Count a broker while it is away: a session calls it until it is there."""
        self._followed[endpoints] += 1

    def forget(self, endpoints: Endpoints) -> None:
        """Count it no longer, once no session follows it: none would see that it is there again."""
        self._followed[endpoints] -= 1
        if not self._followed[endpoints]:
            del self._followed[endpoints]
            self._away.pop(endpoints, None)

    def reached(self, endpoints: Endpoints) -> None:
        """Note a call that was answered."""
        if not self._away:
            return
        outage = self._away.pop(endpoints, None)
        if outage is not None and outage.logged:
            seconds = self._now_s() - outage.since_s
            log.info(
                "the broker at %s answers again after %.1f s", endpoints, seconds,
                extra={"endpoint": str(endpoints), "seconds": seconds},
            )  # fmt: skip


class Noting:
    """A transport that notes which calls reached a broker; of streams in both directions, nothing.

    Args:
        endpoints: that `inner` goes to.
        loop: that its calls are made in; each raises RuntimeError in another one.
    """

    def __init__(
        self, inner: Transport, endpoints: Endpoints, outages: Outages, loop: OneLoop
    ) -> None:
        self._inner = inner
        self._endpoints = endpoints
        self._outages = outages
        self._check_loop = loop.check

    async def unary(
        self, path: str, request: bytes, metadata: Metadata, timeout: float | None
    ) -> bytes:
        self._check_loop()
        try:
            answer = await self._inner.unary(path, request, metadata, timeout)
        except LaterMQError as error:
            if nobody_answered(error):
                self._outages.lost(self._endpoints, error)
            raise
        self._outages.reached(self._endpoints)
        return answer

    async def server_stream(
        self, path: str, request: bytes, metadata: Metadata, timeout: float | None
    ) -> AsyncGenerator[bytes, None]:
        self._check_loop()
        answers = self._inner.server_stream(path, request, metadata, timeout)
        try:
            async with aclosing(answers):
                async for answer in answers:
                    self._outages.reached(self._endpoints)
                    yield answer
        except LaterMQError as error:
            if nobody_answered(error):
                self._outages.lost(self._endpoints, error)
            raise

    def bidi_stream(self, path: str, metadata: Metadata) -> Stream:
        self._check_loop()
        return self._inner.bidi_stream(path, metadata)

    async def close(self) -> None:
        await self._inner.close()
