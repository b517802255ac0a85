"""What the consumers of each group filter by, as they declare it or receive; whether they agree.

What a live consumer wants is not consumed by another's receive: the core is told with each receive
what all of them want (`wanted`). A consumer's filter is the one that it declared or received by
last. What it wanted before counts until it has been silent about it for as long as a client may be:
a receive by it may be under way, and some clients go on with it. What counted when the broker ended
counts for as long after a start.

That filters differ is said in the log, once for as long as a group has consumers of a topic, and
shown by `latermq group show`: each consumer gets a part of the topic, and who is slow holds it up.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from latermq_broker.engine.state.model import EVERYTHING, MessageFilter, filter_text
from latermq_broker.errors import RequestError
from latermq_broker.services.wire import wire
from latermq_proto.apache.rocketmq.v2 import definition_pb2

log = logging.getLogger("latermq.services")

WARNED_MAX: Final = 10_000  # groups and topics that were warned of; no further warning then
NOTED_MAX: Final = 20_000  # places of clients of which only receives told; no more are noted then
SHOWN_MAX: Final = 16  # filters of one topic, and topics of one group
WANTED_MAX: Final = 16  # filters of one group and topic; of more, everything is wanted
FADING_MAX: Final = 64  # former filters of one group and topic, likewise
EXPRESSION_SHOWN_CHARACTERS_MAX: Final = 200
FOREVER_MS: Final = 1 << 62

_Place = tuple[str, str]  # group, topic
Before = Callable[[], Iterable[tuple[_Place, tuple[MessageFilter, ...]]]]


class FilterUse(NamedTuple):
    expression: str  # as the first of its clients wrote it, cut
    client_count: int


class _Wanted(NamedTuple):
    filters: tuple[MessageFilter, ...]
    until_ms: int  # when one of them may be wanted no longer


class GroupFilters:
    def __init__(self, silent_ms: int) -> None:
        """
        Args:
            silent_ms: how long a client lives that says nothing.
        """
        self._silent_ms = silent_ms
        self.before: Before = tuple  # what was wanted when the broker's last life ended
        self._restored: dict[_Place, tuple[MessageFilter, ...]] | None = None
        self._restored_until_ms = 0
        self.on_change: Callable[[str, str, str, MessageFilter], None] | None = None
        """Called with group, topic, client and filter when a client filters otherwise now."""
        self._uses: dict[_Place, dict[MessageFilter, FilterUse]] = {}
        self._by_client: dict[str, dict[_Place, MessageFilter]] = {}
        self._declared: dict[
            str, set[_Place]
        ] = {}  # by client: where the filter is of its settings
        self._fading: dict[_Place, dict[tuple[str, MessageFilter], int]] = {}
        """By client and former filter: when it is wanted no longer."""
        self._wanted: dict[_Place, _Wanted] = {}  # as found last
        self._noted: dict[str, int] = {}  # by client: at how many places only its receives told it
        self._noted_count = 0
        self._seen_ms: dict[str, int] = {}  # of clients without settings, the longest silent first
        self._warned: set[_Place] = set()  # that filters differ
        self._changed: set[_Place] = set()  # … and that one has changed

    def add(self, client_id: str, settings: definition_pb2.Settings, now_ms: int = 0) -> None:
        """Note what a consumer declares, instead of what is noted of it."""
        self._seen_ms.pop(client_id, None)
        self._noted_count -= self._noted.pop(client_id, 0)
        subscription = settings.subscription
        declared = self._declared[client_id] = set()
        before = dict(self._by_client.get(client_id, {}))
        changed: list[tuple[_Place, MessageFilter]] = []
        for entry in subscription.subscriptions:
            place = (subscription.group.name, entry.topic.name)
            with suppress(RequestError):  # checked before
                filter = wire.message_filter(entry.expression)
                declared.add(place)
                if before.get(place, filter) != filter:
                    self._fade(client_id, place, before[place], now_ms)
                    changed.append((place, filter))
                self._use(client_id, place, filter, entry.expression.expression)
        for place in [each for each in self._by_client.get(client_id, ()) if each not in declared]:
            self._let_go(client_id, place)
        self._by_client.setdefault(client_id, {})
        for place, filter in changed:
            self._tell(client_id, place, before[place], filter)

    def note(
        self,
        client_id: str,
        place: _Place,
        filter: MessageFilter,
        expression: str,
        now_ms: int,
        *,
        declares: bool,
    ) -> None:
        """Note by what a consumer filters a receive, if it is not what is noted of it already.

        Args:
            declares: it has settings, which are kept for as long as it is there.
        """
        if not declares:
            self._seen_ms.pop(client_id, None)
            self._seen_ms[client_id] = now_ms
        known = self._by_client.get(client_id)
        kept = None if known is None else known.get(place)
        if kept == filter:
            return
        if kept is None:
            if self._noted_count >= NOTED_MAX:
                self._seen_ms.pop(client_id, None)
                return
            self._noted_count += 1
            self._noted[client_id] = self._noted.get(client_id, 0) + 1
            self._use(client_id, place, filter, expression)
            return
        fading = self._fading.get(place, {})
        is_new = fading.get((client_id, filter), 0) <= now_ms
        if not is_new and place in self._declared.get(client_id, ()):
            self._fade(client_id, place, filter, now_ms)  # it goes on with what it declared before
            self._warn(place, dict.fromkeys((kept, filter), FilterUse(_cut(expression), 1)))
            return
        fading.pop((client_id, filter), None)
        self._declared.get(client_id, set()).discard(place)
        self._fade(client_id, place, kept, now_ms)
        self._use(client_id, place, filter, expression)
        if is_new:
            self._tell(client_id, place, kept, filter)

    def readers(self, group: str) -> set[str]:
        """Return the client ids of which it is noted that they read the group."""
        return {
            client_id
            for client_id, places in self._by_client.items()
            if any(owner == group for owner, _ in places)
        }

    def remove(self, client_id: str) -> None:
        """Forget what a consumer declared, and what it received by."""
        self._seen_ms.pop(client_id, None)
        self._declared.pop(client_id, None)
        self._noted_count -= self._noted.pop(client_id, 0)
        for place in list(self._by_client.get(client_id, ())):
            self._let_go(client_id, place)
        self._by_client.pop(client_id, None)

    def expire(self, before_ms: int) -> None:
        """Forget those without settings that have received nothing since."""
        silent: list[str] = []
        for client_id, seen_ms in self._seen_ms.items():
            if seen_ms >= before_ms:
                break
            silent.append(client_id)
        for client_id in silent:
            self.remove(client_id)

    def wanted(self, place: _Place, now_ms: int) -> tuple[MessageFilter, ...]:
        """Return what the live consumers of a group want of a topic.

        The same tuple for as long as it is the same.
        """
        known = self._wanted.get(place)
        if known is not None and now_ms < known.until_ms:
            return known.filters
        if self._restored is None:
            self._restored = dict(self.before())
            self._restored_until_ms = now_ms + self._silent_ms
        fading = self._fading.get(place, {})
        for key in [key for key, until_ms in fading.items() if until_ms <= now_ms]:
            del fading[key]
        if place in self._fading and not fading:
            del self._fading[place]
        filters = dict.fromkeys(self._uses.get(place, ()))
        filters |= dict.fromkeys(filter for _, filter in fading)
        until_ms = min(fading.values(), default=FOREVER_MS)
        if now_ms >= self._restored_until_ms:
            self._restored.clear()
        elif place in self._restored:
            filters |= dict.fromkeys(self._restored[place])
            until_ms = min(until_ms, self._restored_until_ms)
        wanted = tuple(filters) if len(filters) <= WANTED_MAX else (EVERYTHING,)
        if place in self._uses:
            self._wanted[place] = _Wanted(wanted, until_ms)
        return wanted

    def _use(self, client_id: str, place: _Place, filter: MessageFilter, expression: str) -> None:
        mine = self._by_client.setdefault(client_id, {})
        if place in mine:
            self._count_down(place, mine[place])
        mine[place] = filter
        uses = self._uses.setdefault(place, {})
        known = uses.get(filter) or FilterUse(_cut(expression or "*"), 0)
        uses[filter] = known._replace(client_count=known.client_count + 1)
        self._wanted.pop(place, None)
        if len(uses) > 1:
            self._warn(place, uses)

    def _fade(self, client_id: str, place: _Place, filter: MessageFilter, now_ms: int) -> None:
        """Want what a client wanted before, or goes on with, for a while."""
        fading = self._fading.setdefault(place, {})
        if len(fading) >= FADING_MAX and (client_id, filter) not in fading:
            client_id, filter = "", EVERYTHING
        fading[client_id, filter] = now_ms + self._silent_ms
        self._wanted.pop(place, None)

    def _let_go(self, client_id: str, place: _Place) -> None:
        """Forget what a client filters by at a place, and filtered by before."""
        filter = self._by_client[client_id].pop(place)
        self._declared.get(client_id, set()).discard(place)
        if (fading := self._fading.get(place)) is not None:
            for key in [key for key in fading if key[0] == client_id]:
                del fading[key]
            if not fading:
                del self._fading[place]
        self._count_down(place, filter)

    def _count_down(self, place: _Place, filter: MessageFilter) -> None:
        self._wanted.pop(place, None)
        uses = self._uses[place]
        left = uses[filter].client_count - 1
        if left:
            uses[filter] = uses[filter]._replace(client_count=left)
            return
        del uses[filter]
        if not uses:
            del self._uses[place]
            self._warned.discard(place)
            self._changed.discard(place)

    def _tell(
        self, client_id: str, place: _Place, former: MessageFilter, filter: MessageFilter
    ) -> None:
        """Say once that a consumer filters otherwise now, and have its older waits end."""
        if place not in self._changed and len(self._changed) < WARNED_MAX:
            self._changed.add(place)
            texts = [_cut(filter_text(each) or "*") for each in (former, filter)]
            log.warning(
                "a consumer has another filter: what only its former one wants is passed over",
                extra={
                    "client_id": client_id,
                    "group": place[0],
                    "topic": place[1],
                    "filters": texts,
                },
            )
        if self.on_change is not None:
            self.on_change(*place, client_id, filter)

    def unequal(self, group: str) -> Iterator[tuple[str, list[FilterUse]]]:
        """List the topics whose consumers filter differently, with the filters; SHOWN_MAX each."""
        filters = sorted(
            (topic, uses)
            for (owner, topic), uses in self._uses.items()
            if owner == group and len(uses) > 1
        )
        for topic, uses in filters[:SHOWN_MAX]:
            by_count = sorted(uses.values(), key=lambda use: (-use.client_count, use.expression))
            yield topic, by_count[:SHOWN_MAX]

    def _warn(self, place: _Place, uses: dict[MessageFilter, FilterUse]) -> None:
        if place in self._warned or len(self._warned) >= WARNED_MAX:
            return
        self._warned.add(place)
        group, topic = place
        log.warning(
            "consumers of one group filter differently: each gets a part of the topic",
            extra={
                "group": group,
                "topic": topic,
                "filters": [use.expression for use in uses.values()][:SHOWN_MAX],
            },
        )


def _cut(expression: str) -> str:
    if len(expression) <= EXPRESSION_SHOWN_CHARACTERS_MAX:
        return expression
    return expression[: EXPRESSION_SHOWN_CHARACTERS_MAX - 1] + "…"
