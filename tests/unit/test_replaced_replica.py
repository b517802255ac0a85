"""What `serve --replace` looks at before the replica of its directory is told to go."""

import socket
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from latermq_broker.config.config import Config, MetricsConfig, ServerConfig
from latermq_broker.errors import ConfigError, HandoverError
from latermq_broker.handover import replacing
from latermq_broker.handover.passing import Port, Predecessor
from latermq_broker.store.directory import REPLICA_NAME, take_lock
from latermq_broker.store.files import RealFiles

NOT_HERE = "192.0.2.1:8081"  # RFC 5737: no machine has it


class Other:
    """A replica, which may have the ports open that its configuration names."""

    pid = 4711

    def __init__(self, **ports: Port) -> None:
        self.ports = {name.replace("_", "."): port for name, port in ports.items()}
        self.told = False
        self.waits = 1  # until it has ended

    def go(self) -> None:
        self.told = True

    def wait(self, _: float) -> bool:
        self.waits -= 1
        return self.waits == 0

    def close(self) -> None:
        """It has gone."""


@pytest.fixture
def held() -> Iterator[str]:
    """An address at which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch, held: str) -> Other:
    other = Other(server_listen=Port(held, held, ()))
    monkeypatch.setattr(Predecessor, "meet", lambda _: other)
    return other


def never() -> bool:
    return False


def replace(
    directory: Path, listen: str, metrics: str = "", stopped: Callable[[], bool] = never
) -> None:
    config = Config(server=ServerConfig(listen=listen), metrics=MetricsConfig(listen=metrics))
    replacing.end_replica(config, directory, stopped)


@pytest.mark.parametrize("setting", ["server.listen", "metrics.listen"])
def test_an_address_that_is_not_this_machines_ends_nobody(
    replaced: Other, held: str, tmp_path: Path, setting: str
) -> None:
    with pytest.raises(ConfigError, match=f"{setting}: cannot listen on 192"):
        replace(tmp_path, *((NOT_HERE,) if setting == "server.listen" else (held, NOT_HERE)))
    assert not replaced.told


def test_an_address_that_a_third_process_has_ends_nobody(replaced: Other, tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as third,
        pytest.raises(ConfigError, match="in use"),
    ):
        replace(tmp_path, f"127.0.0.1:{third.getsockname()[1]}")
    assert not replaced.told


def test_the_address_that_the_replica_has_is_no_matter(
    replaced: Other, held: str, tmp_path: Path
) -> None:
    replace(tmp_path, held)
    assert replaced.told


def test_an_owner_of_a_version_before_is_to_be_ended(
    replaced: Other, held: str, tmp_path: Path
) -> None:
    """It would hand its sockets over, as a broker with a log of its own does."""
    replaced.ports = {"server.listen": Port(held, held, (3,))}
    with pytest.raises(HandoverError, match="a log that is its own"):
        replace(tmp_path, held)
    (tmp_path / REPLICA_NAME).touch()
    with pytest.raises(HandoverError, match="end it by SIGTERM"):
        replace(tmp_path, held)
    assert not replaced.told


@pytest.mark.parametrize("locked", [True, False])
def test_who_is_told_to_stop_waits_no_longer(
    replaced: Other, held: str, tmp_path: Path, locked: bool
) -> None:
    """For the directory, or for the end of a process that has let it go."""
    replaced.waits = -1  # it never ends
    stopped = count()
    files = RealFiles()
    lock = take_lock(files, tmp_path) if locked else None
    try:
        replace(tmp_path, held, stopped=lambda: next(stopped) > 5)
    finally:
        if lock is not None:
            files.close(lock)
    assert replaced.told
