"""What the console is told at its start, and where it may listen."""

from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from latermq import Tls

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Fields:
    hosts: names it answers to in a Host header; None: any. On a loopback they are few, so that
        no page elsewhere can reach it under a name of its own (DNS rebinding).
    secure: it serves https itself.
    proxies: addresses and networks of reverse proxies, whose X-Forwarded-Proto and X-Forwarded-For
        are believed.
    prometheus: the address of one that scrapes the broker; "": figures reach no further back than
        the console remembers.
    access_key, secret: of a user as whom figures are sampled from the start on; "": of whoever
        signs in first, from then on.
    """

    endpoint: str
    tls: bool | Tls = False
    hosts: frozenset[str] | None = LOOPBACK_NAMES
    secure: bool = False
    proxies: tuple[str, ...] = ()
    prometheus: str = field(default="", repr=False)  # a password may be in it
    access_key: str = ""
    secret: str = field(default="", repr=False)


class ListenError(ValueError):
    """An address to listen on that is none, or that it must not listen on."""


def parse_listen(text: str) -> tuple[str, int]:
    """Return host, without brackets, and port. Raises ListenError."""
    host, colon, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ListenError(f"{text!r} is not HOST:PORT such as 127.0.0.1:8088")
    return host, int(port)


def parse_prometheus(text: str) -> str:
    """Return the address of a Prometheus. Raises ValueError: it is none."""
    parts = urlsplit(text)
    if text and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query):
        raise ValueError("--prometheus is an address such as http://127.0.0.1:9090")
    return text


def parse_proxy(text: str) -> str:
    """Return the address or network of a proxy. Raises ValueError: it is none."""
    try:
        return str(ip_network(text.strip()) if "/" in text else ip_address(text.strip()))
    except ValueError:
        raise ValueError(
            f"--proxy {text!r} is not an address such as 10.0.0.7, or a network such as 10.0.0.0/24"
        ) from None


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a port there."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name, of whatever it may be
        return False


def overheard(settings: Settings, host: str) -> list[str]:
    """Return a warning for each secret that would travel in clear text to another machine."""
    warnings = []
    if not (settings.secure or is_loopback(host)):
        warnings.append(
            f"secrets come to {host} in clear text, unless a proxy before it speaks https: give "
            "--certificate and --private-key"
        )
    figures = urlsplit(settings.prometheus)
    if figures.password and figures.scheme == "http" and not is_loopback(figures.hostname or ""):
        warnings.append(
            f"the password for Prometheus at {figures.hostname} travels in clear text: use https"
        )
    return warnings


def check_exposure(host: str, *, asks_for_names: bool | None, secure: bool) -> None:
    """Refuse to listen where strangers could act, or secrets be overheard.

    Args:
        asks_for_names: of the broker; None: it did not answer.
    Raises:
        ListenError: with what is missing.
    """
    if is_loopback(host):
        return
    missing = []
    if not asks_for_names:
        said = "asks nobody for a name" if asks_for_names is False else "does not answer now"
        missing.append(f"the broker {said}, so whoever reaches this port could do everything")
    if not secure:
        missing.append("secrets would travel in clear text; give --certificate and --private-key")
    if missing:
        raise ListenError(
            f"not listening on {host}, which other machines can reach: {'; '.join(missing)}. "
            "Listen on 127.0.0.1, or say --exposed where something else keeps strangers out"
        )
