"""What the connected consumers of each group filter by; whether they agree.

A message goes to whichever consumer's receive meets it first, and what that one's filter does not
want is consumed for the whole group: two filters in one group lose messages. It is said in the log,
once for each group and topic, and shown by `latermq group show`.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from latermq_broker.delivery.filters.filter import MessageFilter
from latermq_broker.errors import RequestError
from latermq_broker.services.wire import wire
from latermq_proto.apache.rocketmq.v2 import definition_pb2

log = logging.getLogger("latermq.services")

WARNED_MAX: Final = 10_000  # groups and topics that were warned of; no further warning then
SHOWN_MAX: Final = 16  # filters of one topic, and topics of one group
EXPRESSION_SHOWN_CHARACTERS_MAX: Final = 200

_Place = tuple[str, str]  # group, topic


class FilterUse(NamedTuple):
    expression: str  # as the first of its clients wrote it, cut
    client_count: int


class GroupFilters:
    def __init__(self) -> None:
        self._uses: dict[_Place, dict[MessageFilter, FilterUse]] = {}
        self._by_client: dict[str, list[tuple[_Place, MessageFilter]]] = {}
        self._warned: set[_Place] = set()

    def add(self, client_id: str, settings: definition_pb2.Settings) -> None:
        """Note what a consumer, of whom nothing is noted, declares."""
        subscription = settings.subscription
        mine = self._by_client[client_id] = []
        for entry in subscription.subscriptions:
            place = (subscription.group.name, entry.topic.name)
            with suppress(RequestError):  # checked before
                wanted = wire.message_filter(entry.expression)
                expression = entry.expression.expression or "*"
                uses = self._uses.setdefault(place, {})
                known = uses.get(wanted, FilterUse(_cut(expression), 0))
                uses[wanted] = known._replace(client_count=known.client_count + 1)
                mine.append((place, wanted))
                if len(uses) > 1:
                    self._warn(place, uses)

    def remove(self, client_id: str) -> None:
        """Forget what a consumer declared."""
        for place, wanted in self._by_client.pop(client_id, ()):
            uses = self._uses[place]
            left = uses[wanted].client_count - 1
            if left:
                uses[wanted] = uses[wanted]._replace(client_count=left)
            else:
                del uses[wanted]
                if not uses:
                    del self._uses[place]

    def unequal(self, group: str) -> Iterator[tuple[str, list[FilterUse]]]:
        """List the topics whose consumers filter differently, with the filters; SHOWN_MAX each."""
        found = sorted(
            (topic, uses)
            for (owner, topic), uses in self._uses.items()
            if owner == group and len(uses) > 1
        )
        for topic, uses in found[:SHOWN_MAX]:
            by_count = sorted(uses.values(), key=lambda use: (-use.client_count, use.expression))
            yield topic, by_count[:SHOWN_MAX]

    def _warn(self, place: _Place, uses: dict[MessageFilter, FilterUse]) -> None:
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
