"""How much of one connection's input is handled before others have their turn."""

from typing import Final

from latermq_broker.transport.grpc.server_state import Shared

WORK_CALLS_MAX: Final = 64  # handled in one go
WORK_CALLS_MIN: Final = 4  # the same while many connections have more waiting
WORK_MS_MAX: Final = 2


class Turn:
    """Bounds how much of one connection's input is handled before others have their turn."""

    __slots__ = ("_calls_left", "_is_behind", "_shared", "_until_ms")

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._calls_left = 0
        self._until_ms = 0
        self._is_behind = False  # more of its input waits

    def begin(self, now_ms: int) -> None:
        """Begin a turn: some input came, or some is left."""
        behind = self._shared.behind
        self._calls_left = max(WORK_CALLS_MIN, WORK_CALLS_MAX // (1 + behind // 2))
        self._until_ms = now_ms + WORK_MS_MAX

    def is_over(self) -> bool:
        """Tell whether one more call was the last for now."""
        self._calls_left -= 1
        return self._calls_left <= 0 or self._shared.now_ms() >= self._until_ms

    def end(self, *, is_behind: bool) -> None:
        """Tell whether input is left, which makes the turns of all shorter."""
        if is_behind != self._is_behind:
            self._is_behind = is_behind
            self._shared.behind += 1 if is_behind else -1
