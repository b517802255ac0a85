"""`HOST:PORT` and URLs, as settings have them."""

from urllib.parse import urlsplit

from latermq_broker.errors import ConfigError


def listen_address(setting: str, text: str) -> tuple[str, int]:
    """Split `HOST:PORT` into host (an IPv6 one without brackets) and port.

    Raises:
        ConfigError: naming `setting`.
    """
    host, colon, port_text = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(setting, f"{text!r}: put an IPv6 host in brackets, as in [::1]:8081")
    if not (host and colon and port_text.isascii() and port_text.isdigit()):
        raise ConfigError(setting, f"{text!r} is not HOST:PORT")
    port = int(port_text)
    if port > 65_535:
        raise ConfigError(setting, f"{text!r}: a port is 0 to 65535")
    return host, port


def addresses_of(text: str) -> list[str]:
    """List what `HOST:PORT;HOST:PORT…` names: one shard's addresses."""
    return text.split(";")


def http_url(setting: str, text: str) -> None:
    """Check that a URL can be posted to, and holds no password: settings are printed.

    Raises:
        ConfigError: naming `setting`.
    """
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise ConfigError(setting, f"{text!r} is not http://HOST:PORT or https://HOST:PORT")
    if parts.username or parts.password:
        raise ConfigError(setting, "a URL here has no user and no password")
