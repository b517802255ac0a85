"""`latermq serve --replace`: what it takes over, and what it refuses without touching a broker."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc
import pytest

from latermq_broker.handover.passing import Predecessor
from latermq_broker.store.directory import LOCK_NAME
from latermq_h2.hpack.encoder import encode
from latermq_h2.http2 import frames
from support import wire_requests
from support.broker_process import BrokerProcess
from support.http2_peer import HELLO, headers
from support.machine import patient
from support.wire_client import WireClient, require_ok

IMPATIENT: Final = "[server]\nreplace_ms_max = 300\n"
SOON_S: Final = patient(10.0)
MARK: Final = b"so far  "

pytestmark = pytest.mark.skipif(
    os.environ.get("LATERMQ_SERVER_TRANSPORT", "lean") != "lean", reason="grpcio has no hand-over"
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker.start()


def serves(endpoint: str) -> bool:
    with grpc.insecure_channel(
        endpoint, options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        return bool(check(b"", timeout=SOON_S) == b"\x08\x01")


def refused(*arguments: str) -> str:
    """The one line that `latermq serve --replace` says before it ends with code 2."""
    command = [sys.executable, "-m", "latermq_broker", "serve", "--replace", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patient(60))
    assert ended.returncode == 2, ended.stderr
    return ended.stderr.splitlines()[-1]


def wait_for(broker: BrokerProcess, text: str) -> None:
    """Until its log, or that of the process which replaces it, says this."""
    until_s = time.monotonic() + SOON_S
    while text not in broker.log_path.read_text(encoding="utf-8"):
        assert time.monotonic() < until_s, broker.log_path.read_text(encoding="utf-8")
        time.sleep(0.02)


@contextmanager
def open_call(endpoint: str) -> Iterator[socket.socket]:
    """A connection with a call that the broker has begun and that waits for its request."""
    block = encode(
        [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", endpoint.encode()),
         (b":path", b"/apache.rocketmq.v2.MessagingService/SendMessage"),
         (b"te", b"trailers"), (b"content-type", b"application/grpc")]
    )  # fmt: skip
    host, _, port = endpoint.rpartition(":")
    with socket.create_connection((host, int(port)), SOON_S) as caller:
        caller.sendall(HELLO + headers(1, block=block) + frames.frame(frames.PING, 0, 0, MARK))
        said = b""
        while frames.frame(frames.PING, frames.ACK, 0, MARK) not in said:
            more = caller.recv(4096)
            assert more, said
            said += more
        yield caller


def where(broker: BrokerProcess) -> list[str]:
    return ["--listen", broker.endpoint, "--data-dir", str(broker.data_dir)]


def test_messages_and_port_pass_on(broker: BrokerProcess) -> None:
    with WireClient(broker.endpoint) as wire:
        wire.create_topic("orders")
        require_ok(wire.send(wire_requests.message("orders", b"body")))
    assert broker.replace().code == 0
    with WireClient(broker.endpoint) as wire:
        [message] = wire.receive("orders", "billing").messages
        assert message.body == b"body"


def test_a_connection_made_in_between_waits(broker: BrokerProcess) -> None:
    """The old process holds a call for its whole grace; who connects meanwhile is served after."""
    host, _, port = broker.endpoint.rpartition(":")
    with WireClient(broker.endpoint) as wire:
        wire.create_topic("orders")
    lock = broker.data_dir / LOCK_NAME
    predecessor = Predecessor.meet(lock)
    assert predecessor is not None
    assert predecessor.pid == broker.pid
    [mine] = predecessor.take("server.listen", broker.endpoint) or []
    predecessor.go()
    assert broker.wait_end().code == 0
    with mine, socket.create_connection((host, int(port)), SOON_S) as waiting:
        waiting.settimeout(SOON_S)  # nobody listens but us, and we do not accept
        mine.setblocking(True)
        accepted, _ = mine.accept()
        with accepted:
            accepted.sendall(b"here")
            assert waiting.recv(4) == b"here"
    assert predecessor.wait(SOON_S)
    predecessor.close()


def test_nobody_there_is_a_plain_start(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start("--replace")
        broker.kill()
        broker.start("--replace")
        assert serves(broker.endpoint)


def test_who_asks_and_does_not_take_changes_nothing(broker: BrokerProcess) -> None:
    predecessor = Predecessor.meet(broker.data_dir / LOCK_NAME)
    assert predecessor is not None
    assert "is being replaced already" in refused(*where(broker))
    predecessor.close()
    assert serves(broker.endpoint)
    assert broker.replace().code == 0


def test_another_address_is_tried_before_anybody_goes(broker: BrokerProcess) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        data = ["--data-dir", str(broker.data_dir)]
        line = refused("--listen", f"127.0.0.1:{port}", *data)
        assert f"cannot listen on 127.0.0.1:{port}" in line
        assert serves(broker.endpoint)


def test_grpcio_neither_takes_nor_gives_a_port(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATERMQ_SERVER_TRANSPORT", "grpcio")
    line = refused(*where(broker))
    assert "server.transport: --replace needs lean" in line
    assert serves(broker.endpoint)
    with BrokerProcess(tmp_path / "other") as other:
        other.start()
        monkeypatch.setenv("LATERMQ_SERVER_TRANSPORT", "lean")
        impatient = tmp_path / "impatient.toml"
        impatient.write_text(IMPATIENT, encoding="utf-8")
        line = refused("--config", str(impatient), *where(other))
        assert "is in use by another broker" in line
        assert "(server.replace_ms_max), and it was not told to go" in line
        assert serves(other.endpoint)


def test_one_that_does_not_go_is_given_up(broker: BrokerProcess, tmp_path: Path) -> None:
    """It was told and hangs: one line that names it and the limit, code 2."""
    config = tmp_path / "impatient.toml"
    config.write_text(IMPATIENT, encoding="utf-8")
    command = [sys.executable, "-m", "latermq_broker", "serve", "--replace", *where(broker)]
    command += ["--config", str(config)]
    with open_call(broker.endpoint):  # without it, it might have gone before the signal comes
        asking = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert asking.stderr is not None
        try:
            for line in asking.stderr:
                if "told the broker that runs to go" in line:
                    os.kill(broker.pid, signal.SIGSTOP)
                    break
            said = asking.stderr.read()
            code = asking.wait(60)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
            asking.kill()
            asking.stderr.close()
        assert code == 2, said
        assert f"process {broker.pid}, was told to go and still has" in said.splitlines()[-1]
        assert "Traceback" not in said
    assert broker.wait_end().code == 0


def test_one_that_goes_down_by_itself_is_waited_for(broker: BrokerProcess) -> None:
    """SIGTERM, and a call that keeps it draining: nothing is handed over, the lock is awaited."""
    with ThreadPoolExecutor(1) as pool, open_call(broker.endpoint) as caller:
        os.kill(broker.pid, signal.SIGTERM)
        wait_for(broker, "draining")
        replaced = pool.submit(broker.replace)
        wait_for(broker, "waiting for the broker that has the directory")
        assert not replaced.done()
        caller.close()
        assert replaced.result().code == 0
    assert serves(broker.endpoint)
