"""Which lite topics each client reads: in memory, as the clients themselves say and repeat it.

A client's set ends with its session, with its termination, and when it does not repeat it for too
long; clients send the whole set every 30 s and after a restart of the broker. Synchronous, no loop;
the time is handed in.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from latermq_broker.catalog.access import User
from latermq_broker.catalog.shares import Shares, count_up, key_of
from latermq_broker.config.auth import AuthConfig
from latermq_broker.config.config import LiteConfig
from latermq_broker.engine.catalog.lites import lite_key
from latermq_broker.errors import LiteSubscriptionQuotaError, TooManyRequestsError

SLACK: Final = 300  # a client may have so many more than it is told: its removals may be on the way

CLIENTS_MAX: Final = 50_000  # who reads none, but said so, is one too


@dataclass(slots=True)
class ClientSubscriptions:
    client_id: str
    group: str
    parent: str
    synced_ms: int
    names: set[str] = field(default_factory=set)
    keys: frozenset[int] = frozenset()  # of `names`
    version: int = 0  # of the whole set that was taken last
    user: User | None = None  # whose share its subscriptions are of


class LiteSubscriptions:
    def __init__(self, config: LiteConfig, shares: Shares | None = None) -> None:
        """
        Args:
            shares: of the subscriptions that users may have.
        """
        self._config = config
        self.silent_ms_max = config.client_silent_ms_max
        self._shares = shares or Shares(AuthConfig())
        self._of_users: dict[str, int] = {}  # subscriptions by access key
        self._clients: dict[str, ClientSubscriptions] = {}  # kept in order of `synced_ms`
        self._owners: dict[tuple[str, str, str], str] = {}
        """Of exclusive groups: (group, parent, lite topic) → client id."""
        self._count = 0

    def readers(self, group: str) -> set[str]:
        """Return the client ids that subscribe to lite topics for the group."""
        return {client_id for client_id, client in self._clients.items() if client.group == group}

    def keys(self, client_id: str, group: str, parent: str) -> frozenset[int]:
        """List what a client may be given, by the keys of the core."""
        client = self._clients.get(client_id)
        if client is None or (client.group, client.parent) != (group, parent):
            return frozenset()
        return client.keys

    def names(self, client_id: str) -> frozenset[str]:
        client = self._clients.get(client_id)
        return frozenset(client.names) if client is not None else frozenset()

    def reads(self, client_id: str, group: str) -> bool:
        """Tell whether the client reads any lite topic for the group."""
        client = self._clients.get(client_id)
        return client is not None and client.group == group and bool(client.names)

    def add(
        self,
        client_id: str,
        group: str,
        parent: str,
        names: Iterable[str],
        now_ms: int,
        *,
        exclusive: bool = False,
        user: User | None = None,
    ) -> tuple[set[str], list[tuple[str, str]]]:
        """Add names to a client's set: (what is new, who lost what: client id and lite topic).

        A repeat changes nothing.

        Raises LiteSubscriptionQuotaError, TooManyRequestsError, with nothing changed.
        """
        client = self._client(client_id, group, parent, now_ms, user)
        return self._become(client, client.names.union(names), now_ms, exclusive=exclusive)

    def replace(
        self,
        client_id: str,
        group: str,
        parent: str,
        names: Iterable[str],
        now_ms: int,
        *,
        exclusive: bool = False,
        version: int = 0,
        user: User | None = None,
    ) -> tuple[set[str], list[tuple[str, str]]]:
        """Make `names` a client's whole set: what is not among them is removed.

        `version` (0: none): a set older than the one that was taken last changes nothing.
        """
        client = self._client(client_id, group, parent, now_ms, user)
        if version and version < client.version:
            self._enter(client, now_ms)
            return set(), []
        changed = self._become(client, set(names), now_ms, exclusive=exclusive)
        client.version = max(client.version, version)
        return changed

    def remove(
        self, client_id: str, group: str, parent: str, names: Iterable[str], now_ms: int
    ) -> None:
        client = self._clients.get(client_id)
        if client is not None and (client.group, client.parent) == (group, parent):
            self._become(client, client.names.difference(names), now_ms, exclusive=False)

    def drop(self, client_id: str) -> None:
        """Drop all of a client that left."""
        client = self._clients.pop(client_id, None)
        if client is not None:
            self._change(client, set(), exclusive=False)

    def expire(self, now_ms: int) -> None:
        """Drop clients that did not repeat their subscriptions for too long."""
        silent: list[str] = []
        for client in self._clients.values():
            if now_ms - client.synced_ms <= self._config.client_silent_ms_max:
                break
            silent.append(client.client_id)
        for client_id in silent:
            self.drop(client_id)

    def _client(
        self, client_id: str, group: str, parent: str, now_ms: int, user: User | None
    ) -> ClientSubscriptions:
        """Find the client's set, or make an empty one, which nobody knows before `_enter`.

        Raises:
            TooManyRequestsError: CLIENTS_MAX others have sets.
        """
        client = self._clients.get(client_id)
        if client is None and len(self._clients) >= CLIENTS_MAX:
            raise TooManyRequestsError(f"{CLIENTS_MAX} clients read lite topics already")
        if client is None or (client.group, client.parent) != (group, parent):
            return ClientSubscriptions(client_id, group, parent, now_ms, user=user)
        return client

    def _enter(self, client: ClientSubscriptions, now_ms: int) -> None:
        """Note that the set was heard of now.

        What its client had of another group or parent is dropped.
        """
        if self._clients.get(client.client_id) is not client:
            self.drop(client.client_id)
        client.synced_ms = now_ms
        self._clients.pop(client.client_id, None)
        self._clients[client.client_id] = client

    def _become(
        self, client: ClientSubscriptions, names: set[str], now_ms: int, *, exclusive: bool
    ) -> tuple[set[str], list[tuple[str, str]]]:
        """Check it, then do it: who is refused has changed nothing."""
        new_count = len(names - client.names)
        if new_count:
            self._check(client, len(names), new_count)
        self._enter(client, now_ms)
        return self._change(client, names, exclusive=exclusive)

    def _change(
        self, client: ClientSubscriptions, names: set[str], *, exclusive: bool
    ) -> tuple[set[str], list[tuple[str, str]]]:
        new, dropped = names - client.names, client.names - names
        place = (client.group, client.parent)
        lost: list[tuple[str, str]] = []
        for name in dropped:
            if self._owners.get((*place, name)) == client.client_id:
                del self._owners[*place, name]
        if exclusive:
            for name in sorted(new):
                owner = self._owners.get((*place, name))
                if owner is not None and owner != client.client_id:
                    self._take(owner, name)
                    lost.append((owner, name))
                self._owners[*place, name] = client.client_id
        self._counted(client, len(new) - len(dropped))
        if new or dropped:
            client.names = names
            client.keys = frozenset(map(lite_key, names))
        return new, lost

    def _take(self, client_id: str, name: str) -> None:
        """Take it from a client whose lite topic another one has now."""
        client = self._clients.get(client_id)
        if client is not None and name in client.names:
            client.names = client.names - {name}
            client.keys = client.keys - {lite_key(name)}
            self._counted(client, -1)

    def _counted(self, client: ClientSubscriptions, count: int) -> None:
        self._count += count
        count_up(self._of_users, key_of(client.user), count)

    def _check(self, client: ClientSubscriptions, count: int, new_count: int) -> None:
        limit = self._config.subscriptions_per_client_max
        if count > limit + SLACK:
            raise LiteSubscriptionQuotaError(
                f"client {client.client_id} would read {count} lite topics, at most {limit} are "
                "allowed"
            )
        held, of_user = self._count, self._of_users.get(key_of(client.user), 0)
        before = self._clients.get(client.client_id)
        if before is not None and before is not client:  # which goes when this one comes
            held -= len(before.names)
            of_user -= len(before.names) if key_of(before.user) == key_of(client.user) else 0
        self._shares.check(
            client.user, "lite subscriptions", "lite.subscriptions_max",
            self._config.subscriptions_max, held, of_user, more=new_count,
        )  # fmt: skip
