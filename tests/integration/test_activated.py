"""A broker at sockets that systemd keeps: whatever becomes of it, no connection is refused."""

import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import grpc
import pytest

from support import activation, wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient, require_ok

SOON_S: Final = patient(20.0)

pytestmark = pytest.mark.skipif(
    os.environ.get("LATERMQ_SERVER_TRANSPORT", "lean") != "lean",
    reason="grpcio takes no open port",
)


class Connecting:
    """A thread that connects again and again while it is entered, and counts what became of it."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.rpartition(":")
        self._where = (host, int(port))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.made = 0
        self.refused: list[OSError] = []

    def _run(self) -> None:
        while not self._over.wait(0.002):
            try:
                socket.create_connection(self._where, SOON_S).close()
                self.made += 1
            except OSError as error:
                self.refused.append(error)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture
def kept() -> Iterator[socket.socket]:
    with activation.listening() as listening:
        yield listening


@pytest.fixture
def broker(tmp_path: Path, kept: socket.socket) -> Iterator[BrokerProcess]:
    sockets = {"server.listen": kept}
    with BrokerProcess(
        tmp_path / "data",
        prefix=activation.prefix(sockets),
        pass_fds=activation.descriptors(sockets),
    ) as broker:
        yield broker.start()


def ask(endpoint: str) -> bytes:
    """Call on a connection of its own; it may wait for a broker to be there."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(endpoint, options=options) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        return bytes(check(b"", timeout=SOON_S))


def test_it_serves_where_it_was_told_to_listen(broker: BrokerProcess, kept: socket.socket) -> None:
    assert broker.endpoint == activation.endpoint(kept)
    assert ask(broker.endpoint) == b"\x08\x01"


@pytest.mark.parametrize("end", [BrokerProcess.terminate, BrokerProcess.kill])
def test_no_connection_is_refused_when_it_is_started_again(
    broker: BrokerProcess, end: Callable[[BrokerProcess], object]
) -> None:
    """Stopped in order or killed: who connects meanwhile is answered by the next one."""
    with WireClient(broker.endpoint) as wire:
        wire.create_topic("orders")
        require_ok(wire.send(wire_requests.message("orders", b"body")))
    with Connecting(broker.endpoint) as connecting, ThreadPoolExecutor(1) as beside:
        for _ in range(3):
            end(broker)
            before = connecting.made
            waiting = beside.submit(ask, broker.endpoint)
            while connecting.made == before:
                assert not connecting.refused, connecting.refused[0]
            broker.start()
            assert waiting.result(SOON_S) == b"\x08\x01"
    assert not connecting.refused, connecting.refused[0]
    with WireClient(broker.endpoint) as wire:
        [message] = wire.receive("orders", "billing").messages
        assert message.body == b"body"


def test_the_page_of_metrics_may_be_kept_too(tmp_path: Path, kept: socket.socket) -> None:
    with activation.listening() as metrics:
        sockets = {"server.listen": kept, "metrics.listen": metrics}
        with BrokerProcess(
            tmp_path / "data",
            prefix=activation.prefix(sockets),
            pass_fds=activation.descriptors(sockets),
        ) as broker:
            broker.start()
            page = f"http://{activation.endpoint(metrics)}/readyz"
            with urllib.request.urlopen(page, timeout=SOON_S) as answer:
                assert answer.read() == b"ready\n"


def test_a_unit_that_names_no_socket_means_the_port(tmp_path: Path, kept: socket.socket) -> None:
    """systemd gives the unit's name then; `systemd-socket-activate` none at all."""
    sockets = {"latermq.socket": kept}
    for names in (None, ""):
        with BrokerProcess(
            tmp_path / "data",
            prefix=activation.prefix(sockets, names),
            pass_fds=activation.descriptors(sockets),
        ) as broker:
            assert broker.start().endpoint == activation.endpoint(kept)


def test_nobody_takes_its_ports_over(broker: BrokerProcess) -> None:
    """Or systemd would keep a port that nobody serves any more."""
    line = refused({}, "--replace", "--listen", broker.endpoint, "--data-dir", str(broker.data_dir))
    assert line.endswith("systemd keeps its ports; `systemctl restart` refuses nobody")
    assert ask(broker.endpoint) == b"\x08\x01"


def test_what_cannot_be_served_at_is_named(tmp_path: Path, kept: socket.socket) -> None:
    data = ["--data-dir", str(tmp_path / "data")]
    with ExitStack() as made:
        bound = made.enter_context(socket.socket())
        bound.bind(("127.0.0.1", 0))
        datagrams = made.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        local = made.enter_context(socket.socket(socket.AF_UNIX))
        local.bind(str(tmp_path / "local"))
        local.listen()
        second = made.enter_context(activation.listening())
        nothing = made.enter_context((tmp_path / "file").open("w"))
        known = "server.listen"
        assert "does not listen: Accept= is to be no" in refused({known: bound}, *data)
        assert "is no TCP socket: ListenStream=" in refused({known: datagrams}, *data)
        assert "is no TCP socket: ListenStream=" in refused({known: local}, *data)
        assert "is not a socket" in refused({known: nothing}, *data)  # type: ignore[dict-item]
        assert "FileDescriptorName= is server.listen or metrics.listen" in refused(
            {"http": kept}, *data
        )
        assert "there are 2 names for 1 sockets" in refused({"a:b": kept}, *data)
        assert "have several ports" in refused({known: kept, "latermq.socket": second}, *data)
    at_it = {"server.listen": kept}
    assert "--replace takes none" in refused(at_it, *data, "--replace")
    assert "--shards takes no sockets of systemd" in refused(at_it, *data, "--shards", "2")
    assert not (tmp_path / "data").exists()


def test_a_door_that_is_open_to_others_is_refused(tmp_path: Path) -> None:
    """What the socket says counts, not server.listen."""
    settings = tmp_path / "latermq.toml"
    settings.write_text('[auth]\nopen_beyond_loopback = "refuse"\n', encoding="utf-8")
    with activation.listening("0.0.0.0") as everywhere:
        line = refused(
            {"server.listen": everywhere},
            "--data-dir", str(tmp_path / "data"), "--config", str(settings),
        )  # fmt: skip
    assert "is open to other machines" in line


def refused(sockets: dict[str, socket.socket], *arguments: str) -> str:
    """The one line that `latermq serve` says before it ends with code 2."""
    command = [sys.executable, "-m", "latermq_broker", "serve", *arguments]
    if sockets:
        command = [*activation.prefix(sockets), *command]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=patient(60),
        pass_fds=activation.descriptors(sockets),
    )
    assert ended.returncode == 2, ended.stderr
    return ended.stderr.splitlines()[-1]
