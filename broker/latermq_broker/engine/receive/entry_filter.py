"""What one receive wants, asked entry by entry; and how much it may look at.

Tags are compared by their hash. For SQL the message is read, so a receive looks at a bounded number
of messages and bytes: then it is `spent`, and goes on with the next. Verdicts are remembered for a
while: what stands in the retry lane is met again and again.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

from latermq_broker.delivery.filters.filter import EVERYTHING, MessageFilter
from latermq_broker.delivery.filters.sql_filter import TAGS, SqlFilter
from latermq_broker.engine.outcome.attempts import stored_slices
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import CorruptRecordError
from latermq_broker.store.records.message_fields import message_tag, user_properties

VERDICTS_MAX: Final = 16_384  # of all expressions together

Verdicts = OrderedDict[tuple[str, int], bool]  # (expression, position)


class EntryFilter(Protocol):
    @property
    def spent(self) -> bool:
        """Tell whether it has looked at as much as it may; then ask no further."""

    @property
    def look_max(self) -> int:
        """Return how many entries it can still be asked of, or as good as."""

    def __call__(self, tag_hash: int, position: int) -> bool: ...


class TagEntryFilter:
    __slots__ = ("_hashes", "look_max")
    spent = False

    def __init__(self, hashes: frozenset[int], look_max: int) -> None:
        self._hashes = hashes
        self.look_max = look_max

    def __call__(self, tag_hash: int, position: int) -> bool:
        return tag_hash in self._hashes


class SqlEntryFilter:
    __slots__ = ("_bytes", "_filter", "_reads", "_state", "_verdicts")

    def __init__(self, filter: SqlFilter, state: EngineState, verdicts: Verdicts) -> None:
        self._filter = filter
        self._state = state
        self._verdicts = verdicts
        bounds = state.config.delivery.bounds
        self._reads = bounds.filter_reads_max
        self._bytes = bounds.filter_read_bytes_max

    @property
    def spent(self) -> bool:
        return self._reads <= 0 or self._bytes <= 0

    @property
    def look_max(self) -> int:
        return max(self._reads, 1)

    def __call__(self, tag_hash: int, position: int) -> bool:
        key = (self._filter.expression, position)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._verdicts[key] = self._judge(position)
            if len(self._verdicts) > VERDICTS_MAX:
                self._verdicts.popitem(last=False)
        return verdict

    def _judge(self, position: int) -> bool:
        self._reads -= 1
        try:
            record = self._state.read(position)
        except CorruptRecordError:
            return True  # delivering it finds out, and gives it up
        self._bytes -= record.length
        rest, sys = stored_slices(record)
        properties = user_properties(rest)
        properties.pop(TAGS, None)
        if tag := message_tag(sys):
            properties[TAGS] = tag
        return self._filter.matches(properties)


class OtherFilters:
    """What consumers of the group want that filter otherwise than the receive does."""

    __slots__ = ("_everything", "_filters")

    def __init__(self, filters: Sequence[EntryFilter | None]) -> None:
        self._everything = None in filters
        self._filters = () if self._everything else [each for each in filters if each is not None]

    @property
    def spent(self) -> bool:
        return any(each.spent for each in self._filters)

    def __call__(self, tag_hash: int, position: int) -> bool:
        return self._everything or any(each(tag_hash, position) for each in self._filters)


NO_OTHERS: Final = OtherFilters(())


class Filters:
    """The filters of receives: what SQL said of a message once is remembered for all of them."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._verdicts: Verdicts = OrderedDict()

    def of(self, filter: MessageFilter) -> EntryFilter | None:
        """Make the filter of one receive; None: everything."""
        if isinstance(filter, SqlFilter):
            return SqlEntryFilter(filter, self._state, self._verdicts)
        hashes = filter.hashes()
        if hashes is None:
            return None
        return TagEntryFilter(hashes, self._state.config.delivery.bounds.entries_max)

    def others(self, filter: MessageFilter, wanted: Sequence[MessageFilter]) -> OtherFilters:
        """Make the filters of the other consumers, for a receive with `filter`."""
        if filter == EVERYTHING:
            return NO_OTHERS
        others = [self.of(each) for each in wanted if each != filter]
        return OtherFilters(others) if others else NO_OTHERS
