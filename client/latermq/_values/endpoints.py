"""Where a broker listens, as the client was told. Compared as given, never resolved."""

import ipaddress
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

_HOST_PORT: Final = re.compile(
    r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^:\[\]/,\s]+)):(?P<port>[0-9]{1,10})"
)
PORT_MAX: Final = 65535


class AddressScheme(IntEnum):
    """What kind of host the addresses have; the numbers are the protocol's."""

    UNSPECIFIED = 0
    IPV4 = 1
    IPV6 = 2
    DOMAIN_NAME = 3


@dataclass(frozen=True, slots=True)
class Endpoints:
    """One broker's addresses; equal only if scheme, hosts, ports and their order are."""

    scheme: AddressScheme
    addresses: tuple[tuple[str, int], ...]

    @classmethod
    def parse(cls, text: str) -> "Endpoints":
        """Read "host:port", or several with ";" between; an IPv6 host stands in brackets.

        Raises:
            ValueError: anything else, or addresses of more than one kind.
        """
        parts = [_parse(part) for part in text.split(";")]
        schemes = {scheme for scheme, _ in parts}
        if len(schemes) > 1:
            raise ValueError(f"{text!r}: addresses of one broker are of one kind")
        return cls(schemes.pop(), tuple(address for _, address in parts))

    def __str__(self) -> str:
        return ";".join(self._spelled())

    def target(self) -> str:
        """Return the addresses as gRPC wants them, which takes one name only."""
        spelled = self._spelled()
        if self.scheme is AddressScheme.IPV4:
            return f"ipv4:{','.join(spelled)}"
        if self.scheme is AddressScheme.IPV6:
            return f"ipv6:{','.join(spelled)}"
        return f"dns:///{spelled[0]}"

    def _spelled(self) -> list[str]:
        bracket = self.scheme is AddressScheme.IPV6
        return [
            f"[{host}]:{port}" if bracket else f"{host}:{port}" for host, port in self.addresses
        ]


def _parse(text: str) -> tuple[AddressScheme, tuple[str, int]]:
    """Read one address. Raises ValueError."""
    match = _HOST_PORT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an endpoint such as 127.0.0.1:8081 or [::1]:8081")
    if not 1 <= int(match["port"]) <= PORT_MAX:
        raise ValueError(f"{text!r}: a port is a number from 1 to {PORT_MAX}")
    host = match["v6"] or match["host"]
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        if match["v6"]:
            raise ValueError(f"{text!r}: {host!r} is no IPv6 address") from None
        scheme = AddressScheme.DOMAIN_NAME
    else:
        if match["v6"] and version == 4:
            raise ValueError(f"{text!r}: {host!r} is no IPv6 address")
        scheme = AddressScheme.IPV4 if version == 4 else AddressScheme.IPV6
    return scheme, (host, int(match["port"]))
