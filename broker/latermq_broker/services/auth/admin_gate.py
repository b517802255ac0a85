"""Whether the services that need no right but to reach the port answer at all.

Where nobody is asked for a name, a broker that listens beyond the machine serves the Admin service,
which logs, sends and resets, only where the configuration says so; and users, who would then be
anybody's to make, not at all. With `auth.enabled` both are an admin's, wherever the broker listens.
"""

from ipaddress import ip_address
from typing import NoReturn

from google.protobuf.message import Message

from latermq_broker.config.addresses import listen_address
from latermq_broker.config.config import Config
from latermq_broker.errors import ForbiddenError
from latermq_broker.services.call.answers import Caller


def admin_served(config: Config) -> bool:
    return config.admin.beyond_loopback or users_served(config)


def users_served(config: Config) -> bool:
    return config.auth.enabled or listens_on_loopback(config)


def listens_on_loopback(config: Config) -> bool:
    """Tell whether only this machine can reach the port."""
    return is_loopback(listen_address("server.listen", config.server.listen)[0])


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name, of whatever it may be
        return False


def refuse_admin(request: Message, caller: Caller) -> NoReturn:
    raise ForbiddenError(
        "the Admin service is off, because the broker listens beyond this machine and asks nobody "
        "for a name; auth.enabled = true serves it to admins, admin.beyond_loopback = true to all"
    )


def refuse_users(request: Message, caller: Caller) -> NoReturn:
    raise ForbiddenError(
        "users are not shown or changed, because the broker listens beyond this machine and asks "
        "nobody for a name; set auth.enabled = true, or listen on 127.0.0.1"
    )
