"""A listing of what waits, gone through a few entries at a time, with other work in between.

Finding the next entries costs as much as putting in order all that is due in the same minute. So
many are found at once; one that no longer waits when its turn comes is left out.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from latermq_broker.engine.state.model import PendingFilter
from latermq_broker.engine.state.state import EngineState
from latermq_broker.engine.views.pending_place import PageCursor, Waiting, token_of

AHEAD_MAX: Final = 1_000  # entries found at once
SLICE_AHEAD_MIN: Final = (
    64  # … and of ready retries, before a further slice of them is put in order
)


class PendingWalk:
    """One listing's way from a place to the end; made by `PendingView.walk`.

    Args:
        in_order: yields what comes behind a place.
        ahead_max: entries found at once.
    """

    def __init__(
        self,
        filter: PendingFilter,
        place: PageCursor,
        in_order: Callable[[PendingFilter, PageCursor], Iterator[PageCursor]],
        state: EngineState,
        ahead_max: int = AHEAD_MAX,
    ) -> None:
        self.filter = filter
        self._place = place
        self._in_order = in_order
        self._state = state
        self._ahead_max = ahead_max
        self._ahead: deque[PageCursor] = deque()
        self._is_whole = False  # nothing comes behind those ahead

    @property
    def token(self) -> str:
        """Name the place, for a walk that goes on from there; "": the end."""
        self._look_ahead()
        return token_of(self._place) if self._ahead else ""

    def take(self) -> PageCursor | None:
        """Return the next entry, which waits; None: there is none."""
        while True:
            self._look_ahead()
            if not self._ahead:
                return None
            self._place = self._ahead.popleft()
            if _waits(self._state, self._place[1]):
                return self._place

    def end(self) -> None:
        """Leave out all that comes behind."""
        self._ahead.clear()
        self._is_whole = True

    def _look_ahead(self) -> None:
        if self._ahead or self._is_whole:
            return
        row = -1
        for entry in self._in_order(self.filter, self._place):
            if len(self._ahead) >= SLICE_AHEAD_MIN and entry[0] != row:
                return
            row = entry[0]
            self._ahead.append(entry)
            if len(self._ahead) >= self._ahead_max:
                return
        self._is_whole = True


def _waits(state: EngineState, waiting: Waiting) -> bool:
    """Tell whether a delivery or half that was found before still waits.

    Delayed messages are not asked: one that became due since then is listed as it was found.
    """
    _, side, name = waiting
    if side == 1:
        return name in state.leases.deliveries
    if side == 2:
        return state.halves.get(name) is not None
    return name >= state.store.log.start
