"""A rate over time, given the time: tokens that come back, one after the other.

A bucket holds what comes back in a second. Who finds any token at all may take as many as it needs:
the bucket then owes them. So one request larger than a second's worth passes, and what follows
waits longer; over time the rate holds.
"""


class TokenBucket:
    __slots__ = ("_at_ms", "_per_s", "_tokens")

    def __init__(self, per_s: int, now_ms: int) -> None:
        self._per_s = per_s
        self._tokens = float(per_s)
        self._at_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """Tell how long until `take` is allowed; 0: it is."""
        self._refill(now_ms)
        if self._tokens > 0:
            return 0
        return int(-self._tokens * 1_000 / self._per_s) + 1

    def take(self, count: int) -> None:
        """Take tokens, after `wait_ms` gave 0."""
        self._tokens -= count

    def _refill(self, now_ms: int) -> None:
        """Add what has come since; a clock that went back gives nothing."""
        if now_ms > self._at_ms:
            came = (now_ms - self._at_ms) * self._per_s / 1_000
            self._tokens = min(float(self._per_s), self._tokens + came)
        self._at_ms = now_ms
