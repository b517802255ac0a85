"""Whether the Admin service answers at all.

Its calls need no right but to reach the port, and they log, send and reset. So a broker that
listens beyond the machine serves them only where the configuration says so.
"""

from ipaddress import ip_address
from typing import NoReturn

from google.protobuf.message import Message

from latermq_broker.config import Config, listen_address
from latermq_broker.errors import ForbiddenError
from latermq_broker.services.answers import Caller


def admin_served(config: Config) -> bool:
    if config.admin.beyond_loopback:
        return True
    host, _ = listen_address("server.listen", config.server.listen)
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name, of whatever it may be
        return False


def refuse_admin(request: Message, caller: Caller) -> NoReturn:
    raise ForbiddenError(
        "the Admin service is off, because the broker listens beyond this machine; "
        "admin.beyond_loopback = true serves it"
    )
