"""The rate of redrives: of all that run for one group together, not of each.

Two operators who each redrive 50 letters a second would send the consumers 100. So the redrives of
a group share one bucket of tokens, at the lowest rate that one of them asked for; a redrive that
asked for none is held to it, too. A redrive counts as running while it asks for tokens.
"""

from typing import Final

from latermq_broker.catalog.token_bucket import TokenBucket

CATCH_UP_MS: Final = 200  # of a rate: what was not used for longer is not made up for
SILENT_MS: Final = 5_000  # a redrive that has not asked for tokens for so long has ended


class _GroupPace:
    def __init__(self) -> None:
        self.asked: dict[int, tuple[int, int]] = {}  # redrive → its rate, when it last asked
        self.last_ms = 0
        self.rate = 0
        self.bucket: TokenBucket | None = None

    def look(self, now_ms: int) -> None:
        """Forget redrives that have ended, and go on at the lowest rate of those that run."""
        for job in [job for job, (_, ms) in self.asked.items() if now_ms - ms > SILENT_MS]:
            del self.asked[job]
        if not self.asked:
            return  # the next one goes on with the tokens that are left
        rate = min((rate for rate, _ in self.asked.values() if rate), default=0)
        if rate == self.rate:
            return
        tokens = 1.0 if self.bucket is None else float(min(1, self.bucket.whole(now_ms)))
        most = 1.0 + rate * CATCH_UP_MS / 1_000
        self.bucket = TokenBucket(rate, now_ms, most, tokens) if rate else None
        self.rate = rate


class RedrivePaces:
    """One of a broker."""

    def __init__(self) -> None:
        self._groups: dict[str, _GroupPace] = {}
        self._jobs = 0

    def begin(self, now_ms: int) -> int:
        """Return a number for a redrive, and forget groups whose redrives have ended."""
        for group, pace in list(self._groups.items()):
            pace.look(now_ms)
            if not pace.asked and now_ms - pace.last_ms > SILENT_MS:
                del self._groups[group]
        self._jobs += 1
        return self._jobs

    def allowed(self, group: str, job: int, rate: int, count: int, now_ms: int) -> int:
        """Return how many of `count` letters a redrive may redrive now.

        Args:
            rate: letters per second that it asked for; 0: no bound.
        """
        pace = self._groups.setdefault(group, _GroupPace())
        pace.asked[job] = (rate, now_ms)
        pace.last_ms = now_ms
        pace.look(now_ms)
        return count if pace.bucket is None else min(count, pace.bucket.whole(now_ms))

    def end(self, group: str, job: int) -> None:
        """Hold other redrives of the group no longer to the rate of this one."""
        pace = self._groups.get(group)
        if pace is not None:
            pace.asked.pop(job, None)

    def take(self, group: str, count: int) -> None:
        """Count letters that were redriven of those allowed."""
        pace = self._groups.get(group)
        if pace is not None and pace.bucket is not None:
            pace.bucket.take(count)
