"""Settings of the room `[cluster]`: several brokers behind one route, a shard each."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from latermq_broker.config.addresses import addresses_of, listen_address
from latermq_broker.errors import ConfigError

SHARDS_MAX: Final = 256  # names and handles have room for more; a route should not


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """Name the shards, alike in each but for `shard` and `machine`; a broker without any is alone.

    `machines`, `machine`, `advertise` and `ca` may stand alone: `serve --shards` makes the others.
    With `[replication]` a shard is at several addresses, HOST:PORT;HOST:PORT: one owns it.
    """

    shards: tuple[str, ...] = ()  # HOST:PORT of each, by number, as the others reach it
    shard: int = 0  # which of them this is
    machines: tuple[str, ...] = ()  # HOST:PORT of the first shard at each; the others follow it
    machine: int = 0  # which of them, and of the addresses of its shard, is this broker's
    advertise: tuple[str, ...] = ()  # HOST:PORT of each, as clients reach it, if otherwise
    ca: str = ""  # PEM file: who signs the shards' certificates; "": they call in clear text

    def __post_init__(self) -> None:
        count = len(self.shards)
        if count > SHARDS_MAX:
            raise ConfigError("cluster.shards", f"names {count} shards, at most {SHARDS_MAX}")
        _check_addresses("cluster.shards", self.shards)
        _check_addresses("cluster.machines", self.machines)
        _check_addresses("cluster.advertise", self.advertise)
        if not count and self.shard:
            raise ConfigError("cluster.shards", "is empty, yet cluster.shard is set")
        if count and not 0 <= self.shard < count:
            raise ConfigError(
                "cluster.shard", f"must be 0 to {count - 1}, as cluster.shards names {count}"
            )
        machines = len(self.addresses if count else self.machines) or 1
        if not 0 <= self.machine < machines:
            raise ConfigError("cluster.machine", f"must be 0 to {machines - 1}: so many are named")
        if count and self.advertise and len(self.advertise) != count:
            raise ConfigError(
                "cluster.advertise",
                f"names {len(self.advertise)} addresses for {count} shards: one each, or none",
            )
        for entry in self.advertise or self.shards:
            _check_for_clients(entry)

    @property
    def addresses(self) -> list[str]:
        """List the addresses of this shard: this broker's, and those of who stands by for it."""
        return addresses_of(self.shards[self.shard]) if self.shards else []

    @property
    def all_addresses(self) -> list[str]:
        """List the addresses of all shards."""
        return [address for entry in self.shards for address in addresses_of(entry)]

    @property
    def rank(self) -> int | None:
        """Tell how many brokers are to own this shard before this one; None: nothing says it.

        Shards take turns among machines, and those of one machine among the others, should it die.
        """
        count = len(self.addresses)
        if count < 2:
            return None
        ahead = self.machine - self.shard
        return (ahead if self.shard // count % 2 == 0 else -ahead) % count


def _check_addresses(setting: str, entries: Iterable[str]) -> None:
    what = "machines" if setting == "cluster.machines" else "shards"
    known: dict[tuple[str, int], int] = {}
    for number, entry in enumerate(entries):
        for address in addresses_of(entry):
            host, port = listen_address(setting, address)
            if not port:
                raise ConfigError(setting, f"{address!r}: others cannot find port 0")
            if (host, port) in known:
                other = known[host, port]
                raise ConfigError(setting, f"{what} {other} and {number} are both at {address}")
            known[host, port] = number


def _check_for_clients(entry: str) -> None:
    """Check that official clients take a shard's addresses. Raises ConfigError."""
    addresses = addresses_of(entry)
    if len(addresses) < 2:
        return
    try:
        hosts = [listen_address("cluster.shards", address)[0] for address in addresses]
        kinds = {ip_address(host).version for host in hosts}
    except ValueError:
        kinds = set()
    if len(kinds) != 1:
        raise ConfigError(
            "cluster.advertise",
            f"{entry!r}: clients take several addresses only where all are IPv4 or all IPv6; "
            "advertise a name that stands for all of them",
        )
