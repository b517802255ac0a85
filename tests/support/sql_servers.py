"""A MariaDB and a PostgreSQL of a test's own, on a socket in a directory of its own."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

_DEBIAN: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1:]
PATH: Final = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", *map(str, _DEBIAN)])
MARIADB: Final = shutil.which("mariadbd", path=PATH)
POSTGRES: Final = shutil.which("postgres", path=PATH)
NO_MARIADB: Final = "no mariadbd here: apt-get install mariadb-server"
NO_POSTGRES: Final = "no postgres here: apt-get install postgresql"


class Databases:
    """The servers of a module's tests: each begins when it is first asked for."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._made: dict[str, str] = {}

    def url(self, kind: str, folder: Path) -> str:
        """Return the URL of a database of its own, of `kind`."""
        if kind == "sqlite":
            return f"sqlite:///{folder}/db"
        if kind == "postgresql":
            pytest.importorskip("psycopg", reason="psycopg is not installed")
            if POSTGRES is None:
                pytest.skip(NO_POSTGRES)
            home = self._made.get(kind) or self._stack.enter_context(postgres_running())
            self._made[kind] = home
            server = f"postgresql+psycopg://postgres@/%s?host={home}"
            return self._anew(server, "postgres", "")
        pytest.importorskip("pymysql", reason="PyMySQL is not installed")
        if MARIADB is None:
            pytest.skip(NO_MARIADB)
        home = self._made.get("mariadb") or self._stack.enter_context(mariadb_running())
        self._made["mariadb"] = home
        server = f"mysql+pymysql://root@localhost/%s?unix_socket={home}"
        return self._anew(server, "mysql", "character set latin1" if kind == "latin1" else "")

    def _anew(self, server: str, first: str, how: str) -> str:
        engine = create_engine(server % first, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with engine.connect() as connection:
            connection.execute(text("drop database if exists shop"))
            connection.execute(text(f"create database shop {how}"))
        engine.dispose()
        return server % "shop"


@contextmanager
def mariadb_running() -> Iterator[str]:
    """Run it for as long as the block lasts; its socket, for a `root` without a password."""
    assert MARIADB is not None
    with tempfile.TemporaryDirectory(prefix="maria") as name:
        folder, socket = Path(name), f"{name}/socket"
        user = ["--user=root"] if os.geteuid() == 0 else []
        files = [f"--datadir={folder}/data", *user]
        _run("mariadb-install-db", "--auth-root-authentication-method=normal", *files)
        command = [
            MARIADB, "--no-defaults", *files, f"--socket={socket}", "--skip-networking",
            "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M",
        ]  # fmt: skip
        with _served(command, folder, "ready for connections"):
            yield socket


@contextmanager
def postgres_running() -> Iterator[str]:
    """Run it for as long as the block lasts; the directory of its socket, for a user `postgres`."""
    assert POSTGRES is not None
    with tempfile.TemporaryDirectory(prefix="pg") as name:
        folder = Path(name)
        before: list[str] = []
        if os.geteuid() == 0:  # it refuses to run as root
            owner = pwd.getpwnam("postgres")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
            before = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        initdb = str(Path(POSTGRES).resolve().with_name("initdb"))
        data = ["-D", f"{folder}/data"]
        _run(*before, initdb, *data, "--username=postgres", "--auth=trust", "--no-sync")
        command = [*before, POSTGRES, *data, "-k", name, "-c", "listen_addresses=", "-F"]
        with _served(command, folder, "ready to accept connections"):
            yield name


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PATH": PATH})


@contextmanager
def _served(command: Sequence[str], folder: Path, ready: str) -> Iterator[None]:
    server = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert server.stdout is not None
        said: list[str] = []
        for line in server.stdout:
            said.append(line)
            if ready in line:
                break
        else:
            raise RuntimeError(f"{command} ended with {server.wait()}: {''.join(said[-20:])}")
        yield
    finally:
        server.terminate()
        server.communicate()
