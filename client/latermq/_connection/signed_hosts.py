"""Which hosts a signed call may go to, and the warning that it can be overheard on its way.

The headers of one signed call make others for 15 minutes. So they go to the hosts that the user
named; to another host, which a route or a cluster names, only where TLS checks its certificate.
All loopback addresses are one host: what goes there stays on this machine.
"""

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from latermq._values.credentials import Credentials
from latermq._values.endpoints import Endpoints
from latermq._values.tls import Tls
from latermq.errors import UntrustedHostError

log = logging.getLogger("latermq.client")

LOOPBACK: Final = "localhost"
WARNED_MAX: Final = 256  # endpoints and users that one process warned of


class SignedHosts:
    """The hosts that one client's signed calls may go to.

    Args:
        named: what the user named.
        checks_names: TLS compares the certificate of whoever answers with the host's name.
    """

    def __init__(self, named: Sequence[Endpoints], checks_names: bool) -> None:
        self._named = named
        self._hosts = frozenset(host for each in named for host in _hosts(each))
        self._checks_names = checks_names

    def check(self, endpoints: Endpoints) -> None:
        """Check that signed calls may go there. Raises UntrustedHostError."""
        if self._checks_names:
            return
        others = [host for host in _hosts(endpoints) if host not in self._hosts]
        if others:
            named = ";".join(map(str, self._named))
            raise UntrustedHostError(
                f"{named} names {endpoints}, which is another host: calls are signed, and nothing "
                "proves who answers there. Use TLS that checks certificates, or name the host, "
                f"too, in the endpoint: {named};{endpoints}"
            )


def signed_hosts(
    named: Sequence[Endpoints], credentials: Credentials | None, tls: bool | Tls
) -> SignedHosts | None:
    """Return where signed calls may go; None: calls are not signed, and may go anywhere.

    Warns, once per process, of calls that are signed and go to another machine in clear text.
    """
    if credentials is None:
        return None
    for each in named:
        if not tls and any(host != LOOPBACK for host in _hosts(each)):
            _warn(str(each), credentials.access_key)
    return SignedHosts(named, tls if isinstance(tls, bool) else tls.verify)


@lru_cache(maxsize=WARNED_MAX)
def _warn(named: str, access_key: str) -> None:
    log.warning(
        "calls to %s are signed by %s and not encrypted: whoever listens on the way can make calls "
        "as that user, and reads secrets that users are given; use TLS",
        named,
        access_key,
    )


def _hosts(endpoints: Endpoints) -> Iterable[str]:
    for host, _ in endpoints.addresses:
        yield LOOPBACK if is_loopback(host) else host.lower()


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a host; False of a name, whatever it stands for."""
    if host.lower() == LOOPBACK:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
