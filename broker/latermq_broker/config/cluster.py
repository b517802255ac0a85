"""Settings of the room `[cluster]`: several brokers behind one route, a shard each."""

from dataclasses import dataclass
from typing import Final

from latermq_broker.config.addresses import listen_address
from latermq_broker.errors import ConfigError

SHARDS_MAX: Final = 256  # names and handles have room for more; a route should not


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """The same in every shard but for `shard`; without `shards` a broker is alone.

    `advertise` and `ca` may stand alone: `serve --shards` makes the others.
    """

    shards: tuple[str, ...] = ()  # HOST:PORT of each, by number, as the others reach it
    shard: int = 0  # which of them this is
    advertise: tuple[str, ...] = ()  # HOST:PORT of each, as clients reach it, if otherwise
    ca: str = ""  # PEM file: who signs the shards' certificates; "": they call in clear text

    def __post_init__(self) -> None:
        count = len(self.shards)
        if count > SHARDS_MAX:
            raise ConfigError("cluster.shards", f"names {count} shards, at most {SHARDS_MAX}")
        for setting in ("shards", "advertise"):
            _check_addresses(f"cluster.{setting}", getattr(self, setting))
        if not count and self.shard:
            raise ConfigError("cluster.shards", "is empty, yet cluster.shard is set")
        if count and not 0 <= self.shard < count:
            raise ConfigError(
                "cluster.shard", f"must be 0 to {count - 1}, as cluster.shards names {count}"
            )
        if count and self.advertise and len(self.advertise) != count:
            raise ConfigError(
                "cluster.advertise",
                f"names {len(self.advertise)} addresses for {count} shards: one each, or none",
            )


def _check_addresses(setting: str, addresses: tuple[str, ...]) -> None:
    known: dict[tuple[str, int], int] = {}
    for number, address in enumerate(addresses):
        host, port = listen_address(setting, address)
        if not port:
            raise ConfigError(setting, f"{address!r}: others cannot find port 0")
        if (other := known.setdefault((host, port), number)) != number:
            raise ConfigError(setting, f"shards {other} and {number} are both at {address}")
