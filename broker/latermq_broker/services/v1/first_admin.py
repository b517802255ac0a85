"""At the start: an admin where names are asked for and none is known; a word where they are not.

The first admin's secret is written into a file that only the broker's user can read. It is never
printed or logged: what a process says ends up where many can read it.
"""

import logging
import os
import stat
from pathlib import Path
from typing import Final

from latermq_broker.config.addresses import listen_address
from latermq_broker.config.auth import SECRET_CHARACTERS_MIN, AuthConfig, OpenBroker
from latermq_broker.config.config import Config
from latermq_broker.engine.engine import Engine
from latermq_broker.errors import ConfigError
from latermq_broker.services.auth.admin_gate import is_loopback, listens_on_loopback
from latermq_broker.services.v1.v1_users import new_secret

log = logging.getLogger("latermq.services")

FIRST_ADMIN: Final = "root"
CREDENTIALS_NAME: Final = "root-credentials"
NAMED_MAX: Final = 20  # users with short secrets that one line of the log names


def look_at_the_door(engine: Engine, config: Config, log_name: str, now_ms: int) -> None:
    """Say who may come in when everybody may; make the first admin when nobody could."""
    if config.auth.enabled:
        directory = config.server.directory
        _make_first_admin(engine, config.auth, directory, now_ms)
        warn_of_open_files(directory / log_name)
        _warn_of_short_secrets(engine, config.auth)
        _warn_of_shards_in_clear_text(config)
    _warn_of_open_door(config)


def _warn_of_short_secrets(engine: Engine, config: AuthConfig) -> None:
    """Name the users whose secrets an earlier version took; they go on."""
    short = [
        user.access_key
        for user in engine.users.all()
        if len(user.secret) < SECRET_CHARACTERS_MIN and not user.disabled
    ]
    if 0 < len(config.root_secret_key) < SECRET_CHARACTERS_MIN:
        short.insert(0, config.root_access_key)
    if short:
        log.warning(
            "short secrets can be guessed: latermq user rotate NAME makes a long one; that of the "
            "configuration is auth.root_secret_key",
            extra={
                "characters_min": SECRET_CHARACTERS_MIN,
                "users": ", ".join(short[:NAMED_MAX]),
                "count": len(short),
            },
        )


def _warn_of_shards_in_clear_text(config: Config) -> None:
    """Say that users' secrets can be overheard between shards on several machines."""
    hosts = [listen_address("cluster.shards", each)[0] for each in config.cluster.all_addresses]
    if not config.cluster.ca and not all(map(is_loopback, hosts)):
        log.warning(
            "secrets of users travel between shards in clear text: set cluster.ca and [tls]"
        )


def _make_first_admin(engine: Engine, config: AuthConfig, directory: Path, now_ms: int) -> None:
    """Make an admin, if there is none; its record is in the file, not yet synced.

    Raises:
        ConfigError: the credentials cannot be kept; nothing was made.
    """
    if config.root_access_key or any(
        user.admin and not user.disabled for user in engine.users.all()
    ):
        return
    secret = new_secret()
    path = directory / CREDENTIALS_NAME
    text = f"LATERMQ_ACCESS_KEY={FIRST_ADMIN}\nLATERMQ_SECRET_KEY={secret}\n"
    try:
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(
            "auth.enabled", f"cannot keep the first admin in {path}: {error}"
        ) from error
    if engine.users.find(FIRST_ADMIN) is None:
        engine.users.create(FIRST_ADMIN, secret, admin=True, now_ms=now_ms)
    else:
        engine.users.rotate(FIRST_ADMIN, secret, now_ms)
        engine.users.alter(FIRST_ADMIN, admin=True, disabled=False, now_ms=now_ms)
    engine.write()
    log.warning(
        "made an admin, because there was none; its secret is in the file",
        extra={"access_key": FIRST_ADMIN, "file": str(path)},
    )


def warn_of_open_files(path: Path) -> None:
    """Say so when others may read a file, or a directory, that has secrets in it.

    The log has those of users, and older versions made it so; an operator makes a file of settings.
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        log.warning(
            "others on this machine may read what has secrets: chmod -R go= PATH",
            extra={"path": str(path), "mode": f"{mode:04o}"},
        )


def refuse_open_door(config: Config) -> None:
    """See to it before anything is made that not everybody may come in, where that is not wanted.

    Raises:
        ConfigError: `auth.open_beyond_loopback` is "refuse", and the broker would be open.
    """
    if config.auth.open_beyond_loopback is OpenBroker.REFUSE and _is_open(config):
        raise ConfigError(
            "server.listen",
            f"{config.server.listen} is open to other machines, and auth.enabled is false; "
            'auth.open_beyond_loopback = "refuse" does not want that',
        )


def _warn_of_open_door(config: Config) -> None:
    """Say that everybody may come in, unless the configuration wants that."""
    if config.auth.open_beyond_loopback is OpenBroker.WARN and _is_open(config):
        log.warning(
            "EVERYBODY who can reach this port may read, send and delete everything: "
            "set auth.enabled = true, listen on 127.0.0.1, or say that something else guards it "
            'with auth.open_beyond_loopback = "allow"',
            extra={"listen": config.server.listen},
        )


def _is_open(config: Config) -> bool:
    """Tell whether the broker listens beyond this machine and asks nobody for a name."""
    return not (config.auth.enabled or listens_on_loopback(config))
