"""A rate over time, given the time: tokens that come back, one after the other.

A bucket holds what comes back in a second, unless it is told otherwise. Who finds any token at all
may take as many as it needs: the bucket then owes them. So one request larger than a second's worth
passes, and what follows waits longer; over time the rate holds.
"""


class TokenBucket:
    __slots__ = ("_at_ms", "_most", "_per_s", "_tokens")

    def __init__(
        self, per_s: int, now_ms: int, most: float | None = None, tokens: float | None = None
    ) -> None:
        """
        Args:
            most: tokens that it holds; a second's worth by default.
            tokens: that are in it now; full by default.
        """
        self._per_s = per_s
        self._most = float(per_s) if most is None else most
        self._tokens = self._most if tokens is None else tokens
        self._at_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """Tell how long until `take` is allowed; 0: it is."""
        self._refill(now_ms)
        if self._tokens > 0:
            return 0
        return int(-self._tokens * 1_000 / self._per_s) + 1

    def whole(self, now_ms: int) -> int:
        """Count the tokens that may be taken without owing any."""
        self._refill(now_ms)
        return max(0, int(self._tokens))

    def take(self, count: int) -> None:
        """Take tokens: any number after `wait_ms` gave 0, or what `whole` counted."""
        self._tokens -= count

    def _refill(self, now_ms: int) -> None:
        """Add what has come since; a clock that went back gives nothing."""
        if now_ms > self._at_ms:
            came = (now_ms - self._at_ms) * self._per_s / 1_000
            self._tokens = min(self._most, self._tokens + came)
        self._at_ms = now_ms
