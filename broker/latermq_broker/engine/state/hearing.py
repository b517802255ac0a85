"""When the broker could not hear: it was stopped, or something held its event loop for long.

Whoever judges others by their silence, or by a time that they let pass, leaves out what is noted
here: clients, leases, transactions. Nothing of it is in the log, for a restart has its own grace.
"""

from collections import OrderedDict, deque
from typing import Final

STANDSTILLS_MAX: Final = 64  # that are remembered, the newest
LEFT_MAX: Final = 100_000  # client ids remembered as gone, the newest


class Hearing:
    """Standstills of this life of the broker, on its own clock, in their order; gone clients."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, None] = OrderedDict()  # client ids, the longest gone first
        self._standstills: deque[tuple[int, int]] = deque(maxlen=STANDSTILLS_MAX)

    def missed(self, from_ms: int, until_ms: int) -> None:
        """Note that nothing was heard from `from_ms` until `until_ms`."""
        assert from_ms <= until_ms
        if self._standstills and from_ms < self._standstills[-1][1]:
            from_ms = self._standstills[-1][1]
        if from_ms < until_ms:
            self._standstills.append((from_ms, until_ms))

    def client_left(self, client_id: str) -> None:
        """Note that a client has no connection, or ended its session."""
        self._left[client_id] = None
        self._left.move_to_end(client_id)
        if len(self._left) > LEFT_MAX:
            self._left.popitem(last=False)

    def client_back(self, client_id: str) -> None:
        """Note a sign of life of a client."""
        self._left.pop(client_id, None)

    def has_left(self, client_id: str) -> bool:
        """Return whether a client left and gave no sign of life since."""
        return client_id in self._left

    def judged_ms(self, now_ms: int, silence_ms: int) -> int:
        """Return the time to judge by whether somebody was silent for more than `silence_ms`.

        That is `now_ms`, less what was missed while that much was heard.
        """
        left_ms, at_ms, missed_ms = silence_ms, now_ms, 0
        for from_ms, until_ms in reversed(self._standstills):
            left_ms -= at_ms - until_ms
            if left_ms < 0:
                break
            missed_ms += until_ms - from_ms
            at_ms = from_ms
        return now_ms - missed_ms

    def extended_ms(self, deadline_ms: int) -> int:
        """Return the deadline of somebody who had to be heard by `deadline_ms`.

        One that fell into a standstill lies as long after its end as it lay after its beginning.
        """
        for from_ms, until_ms in reversed(self._standstills):
            if until_ms < deadline_ms:
                break
            if from_ms < deadline_ms:
                return until_ms + deadline_ms - from_ms
        return deadline_ms

    def missed_since_ms(self, since_ms: int) -> int:
        """Return for how long nothing was heard since then."""
        return sum(
            until_ms - max(from_ms, since_ms)
            for from_ms, until_ms in self._standstills
            if until_ms > since_ms
        )
