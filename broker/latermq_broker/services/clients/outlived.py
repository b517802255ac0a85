"""Consumers whose group was deleted while they were there: their receives do not make it again.

    group deleted ──→ its consumers wait ──group made, or as many others deleted──→ forgotten

A consumer that starts later makes its group as ever, by its first message. In memory only: after a
restart of the broker a consumer that lived on counts as one that starts.
"""

import logging
from collections import OrderedDict
from typing import Final

from latermq_broker.services.clients.lite_subscriptions import LiteSubscriptions
from latermq_broker.services.clients.rooms import Rooms

log = logging.getLogger("latermq.services")

GROUPS_MAX: Final = 1_024  # deleted groups whose consumers are remembered, the newest
SHOWN_MAX: Final = 16  # client ids in one log line


class Outlived:
    """Client ids by the name of the deleted group that they read."""

    def __init__(self, rooms: Rooms, lite: LiteSubscriptions) -> None:
        self._sessions = rooms.sessions
        self._lite = lite
        rooms.engine.groups.deleted.append(self.deleted)
        self._groups: OrderedDict[str, frozenset[str]] = OrderedDict()

    def deleted(self, group: str) -> None:
        """Note who reads a group that was deleted just now."""
        declared = {each.client_id for each in self._sessions.all() if each.group == group}
        noted = self._sessions.filters.readers(group) | self._lite.readers(group)
        clients = frozenset(declared | noted)
        if not clients:
            return
        self._groups[group] = clients
        self._groups.move_to_end(group)
        if len(self._groups) > GROUPS_MAX:
            self._groups.popitem(last=False)
        log.warning(
            "group deleted while consumers read it; they get nothing until it is created",
            extra={"group": group, "clients": sorted(clients)[:SHOWN_MAX]},
        )

    def has(self, group: str, client_id: str) -> bool:
        """Return whether the client was there when this group, which is not, was deleted."""
        clients = self._groups.get(group)
        return clients is not None and client_id in clients

    def made(self, group: str) -> None:
        """Forget a group that is there again."""
        self._groups.pop(group, None)
