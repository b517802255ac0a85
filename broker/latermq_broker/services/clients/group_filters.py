"""What the consumers of each group filter by, as they declare it or receive; whether they agree.

A message goes to whichever consumer's receive meets it first, and what that one's filter does not
want is consumed for the whole group: two filters in one group lose messages. It is said in the log,
once for as long as a group has consumers of a topic, and shown by `latermq group show`.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from latermq_broker.engine.state.model import MessageFilter
from latermq_broker.errors import RequestError
from latermq_broker.services.wire import wire
from latermq_proto.apache.rocketmq.v2 import definition_pb2

log = logging.getLogger("latermq.services")

WARNED_MAX: Final = 10_000  # groups and topics that were warned of; no further warning then
NOTED_MAX: Final = 20_000  # places of clients of which only receives told; no more are noted then
SHOWN_MAX: Final = 16  # filters of one topic, and topics of one group
EXPRESSION_SHOWN_CHARACTERS_MAX: Final = 200

_Place = tuple[str, str]  # group, topic


class FilterUse(NamedTuple):
    expression: str  # as the first of its clients wrote it, cut
    client_count: int


class GroupFilters:
    def __init__(self) -> None:
        self._uses: dict[_Place, dict[int, FilterUse]] = {}  # by the filter's hash
        self._by_client: dict[str, dict[_Place, int]] = {}
        self._noted: dict[str, int] = {}  # by client: at how many places only its receives told it
        self._noted_count = 0
        self._seen_ms: dict[str, int] = {}  # of clients without settings, the longest silent first
        self._warned: set[_Place] = set()

    def add(self, client_id: str, settings: definition_pb2.Settings) -> None:
        """Note what a consumer declares, instead of all that was noted of it."""
        self.remove(client_id)
        subscription = settings.subscription
        self._by_client[client_id] = {}
        for entry in subscription.subscriptions:
            place = (subscription.group.name, entry.topic.name)
            with suppress(RequestError):  # checked before
                filter = wire.message_filter(entry.expression)
                self._use(client_id, place, hash(filter), entry.expression.expression)

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
        known, filter_hash = self._by_client.get(client_id), hash(filter)
        if known is None or known.get(place) != filter_hash:
            if known is None or place not in known:
                if self._noted_count >= NOTED_MAX:
                    return
                self._noted_count += 1
                self._noted[client_id] = self._noted.get(client_id, 0) + 1
            self._use(client_id, place, filter_hash, expression)
        if not declares:
            self._seen_ms.pop(client_id, None)
            self._seen_ms[client_id] = now_ms

    def remove(self, client_id: str) -> None:
        """Forget what a consumer declared, and what it received by."""
        self._seen_ms.pop(client_id, None)
        self._noted_count -= self._noted.pop(client_id, 0)
        for place, filter_hash in self._by_client.pop(client_id, {}).items():
            self._let_go(place, filter_hash)

    def expire(self, before_ms: int) -> None:
        """Forget those without settings that have received nothing since."""
        silent: list[str] = []
        for client_id, seen_ms in self._seen_ms.items():
            if seen_ms >= before_ms:
                break
            silent.append(client_id)
        for client_id in silent:
            self.remove(client_id)

    def _use(self, client_id: str, place: _Place, filter_hash: int, expression: str) -> None:
        mine = self._by_client.setdefault(client_id, {})
        if place in mine:
            self._let_go(place, mine[place])
        mine[place] = filter_hash
        uses = self._uses.setdefault(place, {})
        known = uses.get(filter_hash) or FilterUse(_cut(expression or "*"), 0)
        uses[filter_hash] = known._replace(client_count=known.client_count + 1)
        if len(uses) > 1:
            self._warn(place, uses)

    def _let_go(self, place: _Place, filter_hash: int) -> None:
        uses = self._uses[place]
        left = uses[filter_hash].client_count - 1
        if left:
            uses[filter_hash] = uses[filter_hash]._replace(client_count=left)
            return
        del uses[filter_hash]
        if not uses:
            del self._uses[place]
            self._warned.discard(place)

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

    def _warn(self, place: _Place, uses: dict[int, FilterUse]) -> None:
        if place in self._warned or len(self._warned) >= WARNED_MAX:
            return
        self._warned.add(place)
        group, topic = place
        log.warning(
            "consumers of one group filter differently: what one does not want, none of them gets",
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
