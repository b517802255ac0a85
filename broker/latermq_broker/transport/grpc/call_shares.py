"""How many calls each may have open: a connection and an address fewer, the fewer are left.

    HEADERS ─→ open ─┬─ a whole request, or a stream's first message ─→ one of all, and no more said
                     └─ not in that read ─→ begun ─┬─ whole ─→ one of all
                                                   └─ too late, or others need the place ─→ ended
    health, reflection: whoever asks ─→ public, for as long as it lasts, which is bounded

Begun and public calls may be a small part of all, so that those who hold calls open without saying
what they want, or who they are, take nothing from those who did.

A share goes by the square of what is left: a thousand connections that take all they can leave more
than 2,000 of 50,000 calls, where a plain proportion would leave none after a few hundred.
"""

import ipaddress
from typing import Any, Final, NamedTuple

from latermq_text.places import network_of

CONNECTION_MIN: Final = 4  # calls a connection may have as long as there is one left
ADDRESS_MIN: Final = 100  # the same of an address
ALL: Final = 0
PUBLIC: Final = 1
NAMES: Final = ("calls", "public calls")


class Refused(NamedTuple):
    reason: str  # one of a few, to be counted
    message: str  # with the numbers, for the caller


class Holder:
    """A connection, or an address: how many calls it has open, of each kind.

    Args:
        bounded: it has a share of its own; else it may have all.
    """

    __slots__ = ("begun", "bounded", "connections", "open", "rank", "ranked")

    def __init__(self, *, bounded: bool = True) -> None:
        self.bounded = bounded
        self.open = [0, 0]
        self.rank = 0  # how many it has in a `Ranking`
        self.begun: dict[Any, None] = {}  # of a connection: its begun calls, in order
        self.connections = 0  # of an address
        self.ranked: Ranking | None = None  # of an address: its connections


class Ranking:
    """Holders by how many they have of something; who has most is found at once."""

    __slots__ = ("_by_rank",)

    def __init__(self) -> None:
        self._by_rank: list[dict[Holder, None]] = [{}]

    def up(self, holder: Holder) -> None:
        """Rank a holder higher: it has one more."""
        self._move(holder, holder.rank + 1)

    def down(self, holder: Holder) -> None:
        """Rank a holder lower: it has one less."""
        self._move(holder, holder.rank - 1)
        while len(self._by_rank) > 1 and not self._by_rank[-1]:
            self._by_rank.pop()

    def first(self) -> Holder:
        """Find a holder that has most; somebody has some."""
        return next(iter(self._by_rank[-1]))

    def _move(self, holder: Holder, rank: int) -> None:
        if holder.rank:
            del self._by_rank[holder.rank][holder]
        holder.rank = rank
        if rank == len(self._by_rank):
            self._by_rank.append({})
        if rank:
            self._by_rank[rank][holder] = None


class CallPool:
    """Calls of one kind, of the whole broker.

    Args:
        kind: ALL or PUBLIC.
        connection_max: of one connection, while none is open.
        address_percent: of one address, while none is open; 0: no bound.
        setting: what an operator changes.
    """

    __slots__ = (
        "_address_percent",
        "_connection_max",
        "_kind",
        "_setting",
        "_square",
        "count",
        "count_max",
    )

    def __init__(
        self, kind: int, count_max: int, connection_max: int, address_percent: int, setting: str
    ) -> None:
        self.count = 0
        self.count_max = count_max
        self._square = count_max * count_max
        self._kind = kind
        self._connection_max = connection_max
        self._address_percent = address_percent
        self._setting = setting

    def refusal(self, connection: Holder, address: Holder) -> Refused | None:
        """Say why one more may not be opened now; None: it may."""
        left = self.count_max - self.count
        if left <= 0:
            return self._refused("at once", "on this broker", self.count, self.count_max)
        held = connection.open[self._kind]
        if held >= CONNECTION_MIN:
            share = self._connection_max * left * left // self._square
            if held >= share:
                share = max(share, CONNECTION_MIN)
                return self._refused("of one connection", "on this connection", held, share)
        held = address.open[self._kind]
        if held >= ADDRESS_MIN and address.bounded and self._address_percent:
            share = self._address_percent * left * left // (100 * self.count_max)
            if held >= share:
                share = max(share, ADDRESS_MIN)
                return self._refused("from one address", "from this address", held, share)
        return None

    def enter(self, connection: Holder, address: Holder) -> None:
        """Count one more open call."""
        self.count += 1
        connection.open[self._kind] += 1
        address.open[self._kind] += 1

    def leave(self, connection: Holder, address: Holder) -> None:
        """Count a call out: it is over."""
        self.count -= 1
        connection.open[self._kind] -= 1
        address.open[self._kind] -= 1

    def _refused(self, whose: str, where: str, held: int, share: int) -> Refused:
        name = NAMES[self._kind]
        return Refused(
            f"too many {name} {whose}",
            f"{held} {name} are open {where}, at most {share} may be now: {self.count} of "
            f"{self.count_max} are taken ({self._setting})",
        )


class Addresses:
    """Those that have connections now."""

    def __init__(self) -> None:
        self._holders: dict[str, Holder] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def join(self, peer: str) -> Holder:
        """Count one more connection of the address in `host:port`; return its holder."""
        name = owner_of(peer)
        holder = self._holders.get(name)
        if holder is None:
            holder = self._holders[name] = Holder(bounded=name != HERE)
        holder.connections += 1
        return holder

    def leave(self, peer: str, holder: Holder) -> None:
        """Count a connection of the address out; forget the address with its last."""
        holder.connections -= 1
        if holder.connections == 0:
            self._holders.pop(owner_of(peer), None)


HERE: Final = "loopback"


def owner_of(peer: str) -> str:
    """Name who counts as one: an IPv4 address, an IPv6 network of 64 bits, this machine."""
    host = network_of(peer.rpartition(":")[0])
    try:
        return HERE if ipaddress.ip_address(host).is_loopback else host
    except ValueError:
        return host
