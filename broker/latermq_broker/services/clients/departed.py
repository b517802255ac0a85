"""Clients that left without a farewell: their last stream has ended, and nothing was heard since.

    stream open ──last one ends──→ departed ──heard, or a new stream──→ with us again
                                      └── room is wanted, and it holds nothing ──→ forgotten

Programs that make a client for each request leave such ones behind. Their sessions stay until they
are silent for too long, as others do, unless a new client finds no room.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final

LOOKED_AT_MAX: Final = 64  # departed clients that one new client has looked at


class Departed:
    """Departed clients by their users, those that left first in front.

    Args:
        holds: tells whether a client id has leases that the broker renews.
    """

    def __init__(self, holds: Callable[[str], bool]) -> None:
        self._holds = holds
        self._of_users: dict[str, dict[str, None]] = {}

    def add(self, client_id: str, owner: str) -> None:
        """Note that the last stream of a client has ended."""
        self._of_users.setdefault(owner, {})[client_id] = None

    def remove(self, client_id: str, owner: str) -> None:
        """Note that a client was heard, or is known no more."""
        clients = self._of_users.get(owner)
        if clients is not None and clients.pop(client_id, self) is None and not clients:
            del self._of_users[owner]

    def oldest(self, owner: str, *, any_user: bool) -> str:
        """Find a departed client that holds nothing, of this user or, if told so, of another.

        Those that hold something go to the end of the line. "": there is none.
        """
        others = islice(self._of_users, LOOKED_AT_MAX) if any_user else ()
        for user in (owner, *others):
            clients = self._of_users.get(user, {})
            for client_id in list(islice(clients, LOOKED_AT_MAX)):
                if not self._holds(client_id):
                    return client_id
                del clients[client_id]
                clients[client_id] = None
        return ""
