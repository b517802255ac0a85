"""Which consumer groups need a look first: by age, by what is ready, by failures, by dead letters.

For an order all groups have to be looked at, and whoever watches asks every two seconds. So what
was seen is kept for a time that grows with what there is to see; one look serves all who ask.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from itertools import islice
from typing import Any, Final, NamedTuple

from latermq_broker.engine.catalog.groups import GroupAdmin
from latermq_broker.engine.state.model import Group
from latermq_broker.engine.state.state import EngineState

KEPT_MS_MAX: Final = 15_000
SUBSCRIPTIONS_A_KEPT_MS: Final = 3  # some 7 us each: two hundredths of a core


class GroupOrder(IntEnum):
    """Numbers are those of group.proto."""

    BY_AGE = 1
    BY_READY = 2
    BY_FAILURES = 3
    BY_DEAD_LETTERS = 4


class Rank(NamedTuple):
    """What an order goes by, of one group and all its topics."""

    group_id: int
    oldest_ms: int = 0  # 0: nothing is unread
    ready: int = 0
    failed_per_s: float = 0.0
    dead: int = 0


_KEYS: Final[dict[GroupOrder, Callable[[Rank], Any]]] = {
    GroupOrder.BY_AGE: lambda rank: (rank.oldest_ms > 0, -rank.oldest_ms, rank.ready),
    GroupOrder.BY_READY: lambda rank: rank.ready,
    GroupOrder.BY_FAILURES: lambda rank: rank.failed_per_s,
    GroupOrder.BY_DEAD_LETTERS: lambda rank: rank.dead,
}


class GroupRanking:
    """`renew`, then `first`."""

    def __init__(self, state: EngineState, groups: GroupAdmin) -> None:
        self._state = state
        self._groups = groups
        self._ranks: list[Rank] = []  # by name
        self._orders: dict[GroupOrder, list[int]] = {}  # group ids, of those that were asked for
        self._began_ms = 0  # the last look, ended or not
        self._seen = False

    def renew(self, now_ms: int) -> Iterator[None]:
        """Look at all groups, unless somebody did lately; others may have their turn in between."""
        kept_ms = min(KEPT_MS_MAX, len(self._state.subscriptions) // SUBSCRIPTIONS_A_KEPT_MS)
        if self._seen and now_ms - self._began_ms < kept_ms:
            return
        # Not cleared at the end: a generator that is dropped has none in the compiled build.
        self._began_ms = now_ms
        groups = self._state.catalog.groups()
        ranks = {
            group.id: Rank(group.id, dead=self._groups.dead_letter_count(group)) for group in groups
        }
        for part in self._groups.progress(groups, now_ms):
            for group_id, progress in part:
                rank = ranks[group_id]
                times = (rank.oldest_ms, progress.oldest_unread_ms)
                ranks[group_id] = Rank(
                    group_id,
                    min(filter(None, times), default=0),
                    rank.ready + progress.ready_count,
                    rank.failed_per_s + progress.failed_per_s,
                    rank.dead,
                )
            yield
        self._ranks, self._orders, self._seen = [*ranks.values()], {}, True

    def first(self, order: GroupOrder, count: int) -> list[Group]:
        """Return the first of the groups that there are still; of equal ones by name."""
        if order not in self._orders:
            ranks = sorted(self._ranks, key=_KEYS[order], reverse=True)
            self._orders[order] = [rank.group_id for rank in ranks]
        known = map(self._state.catalog.group_by_id, self._orders[order])
        return list(islice((group for group in known if group is not None), count))
