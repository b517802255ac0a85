"""`latermq serve` as a process: how it starts, what it refuses, how it ends."""

import fcntl
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2

import latermq.sync
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2.service_pb2 import TelemetryCommand
from support import wire_requests
from support.broker_process import BrokerProcess, Ended
from support.machine import patient
from support.wire_client import WireClient

SMALL = "[store]\nsegment_bytes = 20971520\n"  # quicker to make than the default
IDLE_RSS_BYTES_MAX = 100 << 20
F_SETPIPE_SZ = 1031
SERVE = [sys.executable, "-m", "latermq_broker", "serve"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", config=SMALL) as process:
        yield process


def refused(*arguments: str, code: int = 2, python: tuple[str, ...] = ()) -> str:
    """Run `latermq serve` with arguments it must refuse; its one line on stderr."""
    command = [sys.executable, *python, *SERVE[1:], *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patient(60))
    assert ended.returncode == code, ended.stderr
    assert ended.stdout == ""
    lines = [line for line in ended.stderr.splitlines() if " INFO " not in line]
    assert len(lines) == 1, ended.stderr
    assert lines[0].startswith("latermq: ")
    return lines[0]


def clean(ended: Ended) -> None:
    assert ended.code == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert " ERROR " not in ended.stderr
    assert " WARNING " not in ended.stderr


class TestLife:
    def test_says_when_it_is_ready_and_where(self, broker: BrokerProcess) -> None:
        broker.start()
        ended = broker.terminate()
        assert ended.stdout == f"latermq ready on {broker.endpoint}\n"
        clean(ended)

    def test_tells_who_started_it(
        self, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As systemd wants to know; the watchdog hears it each second."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(tmp_path / "notify"))
            listener.settimeout(patient(30))
            monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
            monkeypatch.setenv("WATCHDOG_USEC", "60000000")
            broker.start()
            heard = [listener.recv(1_000), listener.recv(1_000)]
            assert heard[0] == f"READY=1\nSTATUS=serving on {broker.endpoint}".encode()
            assert heard[1] == b"WATCHDOG=1"
            clean(broker.terminate())
            while not heard[-1].startswith(b"STOPPING=1"):
                heard.append(listener.recv(1_000))

    def test_a_log_that_nobody_reads_stops_nothing(self, tmp_path: Path) -> None:
        words = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
        with subprocess.Popen(
            [*SERVE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as serve:
            try:
                assert serve.stdout is not None
                assert serve.stderr is not None
                fcntl.fcntl(serve.stderr, F_SETPIPE_SZ, 4096)
                endpoint = serve.stdout.readline().split()[-1]
                for _ in range(40):  # each leaves two lines
                    with latermq.sync.connect(endpoint) as mq:
                        mq.send("t", b"x")
                serve.terminate()
                said = serve.stderr.read()
                assert len(said) > 4096
                assert said.rstrip().endswith("closed drained=True")
                assert serve.wait(patient(30)) == 0
            finally:
                serve.kill()

    def test_an_interrupt_stops_it_in_order_too(self, broker: BrokerProcess) -> None:
        broker.start()
        os.kill(broker.pid, signal.SIGINT)
        clean(broker.wait_end())

    def test_a_second_signal_ends_it_without_waiting_for_calls(self, broker: BrokerProcess) -> None:
        broker.start()
        with grpc.insecure_channel(broker.endpoint) as channel:
            open_call = channel.stream_stream(
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
            )(silent())
            open_call.initial_metadata()
            os.kill(broker.pid, signal.SIGTERM)
            time.sleep(0.5)
            assert broker.running
            ended = broker.terminate()
        assert ended.code == -signal.SIGTERM
        broker.start()
        clean(broker.terminate())

    @pytest.mark.parametrize("flush", ["none", "async", "sync", "sync-strict"])
    @pytest.mark.parametrize("end", ["terminate", "kill"])
    def test_what_was_acknowledged_is_there_after_a_restart(
        self, broker: BrokerProcess, flush: str, end: str
    ) -> None:
        broker.start("--flush", flush)
        with WireClient(broker.endpoint) as client:
            client.route("t")
            for n in range(20):
                client.send(wire_requests.message("t", f"body {n}".encode()))
            acked = client.receive("t", "g", count_max=1).messages
            client.ack("t", "g", *(one.system_properties.receipt_handle for one in acked))
        getattr(broker, end)()
        broker.start("--flush", flush)
        with WireClient(broker.endpoint) as client:
            rest = client.take("t", "g", 19, 10)
            assert client.receive("t", "g", wait_ms=100).messages == []
        assert sorted(one.body for one in (*acked, *rest)) == sorted(
            f"body {n}".encode() for n in range(20)
        )
        clean(broker.terminate())

    def test_health_says_serving_and_a_watcher_sees_it_drain(self, broker: BrokerProcess) -> None:
        broker.start()
        with grpc.insecure_channel(broker.endpoint) as channel:
            answers = channel.unary_stream(
                "/grpc.health.v1.Health/Watch",
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )(b"", timeout=patient(30))
            assert next(answers).status == health_pb2.HealthCheckResponse.SERVING
            os.kill(broker.pid, signal.SIGTERM)
            assert next(answers).status == health_pb2.HealthCheckResponse.NOT_SERVING
            assert list(answers) == []
        clean(broker.wait_end())

    def test_a_waiting_receive_is_answered_empty_when_it_drains(
        self, broker: BrokerProcess
    ) -> None:
        broker.start()
        with WireClient(broker.endpoint) as client:
            client.route("t")
            request = wire_requests.receive("t", "g", wait_ms=20_000)
            stream = client.messaging.ReceiveMessage(
                request, metadata=wire_requests.metadata(client.client_id), timeout=patient(25)
            )
            time.sleep(0.5)
            began = time.monotonic()
            os.kill(broker.pid, signal.SIGTERM)
            codes = [element.status.code for element in stream if element.HasField("status")]
            assert codes == [v2.MESSAGE_NOT_FOUND]
        clean(broker.wait_end())
        assert time.monotonic() - began < patient(5)

    def test_a_telemetry_stream_ends_with_a_word_and_no_error_when_it_drains(
        self, broker: BrokerProcess
    ) -> None:
        broker.start()
        with WireClient(broker.endpoint) as client:
            settings = v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing())
            stream = client.messaging.Telemetry(
                endless(TelemetryCommand(settings=settings)),
                metadata=wire_requests.metadata(client.client_id),
            )
            assert next(stream).status.code == v2.OK
            os.kill(broker.pid, signal.SIGTERM)
            [last] = stream
            assert last.reconnect_endpoints_command.nonce == "1"
        clean(broker.wait_end())

    def test_an_idle_broker_is_small(self, broker: BrokerProcess) -> None:
        broker.start()
        pages = int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1])
        assert pages * resource.getpagesize() < IDLE_RSS_BYTES_MAX
        broker.terminate()


class TestStoreFailure:
    def test_a_failed_write_is_told_and_ends_it_with_3(self, broker: BrokerProcess) -> None:
        broker.start()
        with WireClient(broker.endpoint) as client:
            client.route("t")
            client.send(wire_requests.message("t", b"safe" * 25_000))
            # As a disk that fails; what the broker says goes to a smaller file.
            resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (50_000, 50_000))
            answer = client.send(wire_requests.message("t", b"lost"))
            assert answer.status.code == v2.INTERNAL_SERVER_ERROR
            assert not answer.entries
        ended = broker.wait_end()
        assert ended.code == 3
        assert "the store failed, going down" in ended.stderr
        broker.start()
        with WireClient(broker.endpoint) as client:
            assert [one.body for one in client.take("t", "g", 1, 10)] == [b"safe" * 25_000]
            assert client.receive("t", "g", wait_ms=100).messages == []
        clean(broker.terminate())

    @pytest.mark.parametrize("how", ["removed", "moved"])
    def test_a_directory_that_is_gone_ends_it_with_3(self, broker: BrokerProcess, how: str) -> None:
        broker.start()
        with WireClient(broker.endpoint) as client:
            client.route("t")
            client.send(wire_requests.message("t", b"safe"))
            if how == "removed":
                shutil.rmtree(broker.data_dir)
            else:
                broker.data_dir.rename(broker.data_dir.with_name("elsewhere"))
            ended = broker.wait_end()
        assert ended.code == 3
        assert f"{broker.data_dir} is gone, or not to be written to" in ended.stderr
        assert "Traceback" not in ended.stderr

    def test_a_stop_says_that_the_directory_is_gone(self, broker: BrokerProcess) -> None:
        broker.start()
        shutil.rmtree(broker.data_dir)
        assert broker.terminate().code == 3

    def test_a_damaged_log_is_refused_with_3_and_left_as_it_is(self, broker: BrokerProcess) -> None:
        broker.start()
        with WireClient(broker.endpoint) as client:
            client.route("t")
            for n in range(10):
                client.send(wire_requests.message("t", b"%03d" % n * 100))
                time.sleep(0.03)
            time.sleep(0.5)  # synced and marked: what is damaged below was durable
        broker.kill()
        (segment,) = (broker.data_dir / "log").glob("*.seg")
        data = bytearray(segment.read_bytes())
        data[data.index(b"003003003") + 5] ^= 1
        segment.write_bytes(data)
        line = refused("--listen", "127.0.0.1:0", "--data-dir", str(broker.data_dir), code=3)
        assert "damaged" in line
        assert segment.read_bytes() == data


class TestRefusals:
    def test_a_port_in_use(self, broker: BrokerProcess, tmp_path: Path) -> None:
        broker.start()
        line = refused("--listen", broker.endpoint, "--data-dir", str(tmp_path / "other"))
        assert f"cannot listen on {broker.endpoint}: Address already in use" in line
        broker.terminate()

    def test_a_second_broker_on_the_directory(self, broker: BrokerProcess) -> None:
        broker.start()
        line = refused("--listen", "127.0.0.1:0", "--data-dir", str(broker.data_dir))
        assert "in use by another broker" in line
        broker.terminate()

    def test_a_data_directory_that_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        for path in (tmp_path / "file", tmp_path / "file" / "below"):
            assert str(path) in refused("--listen", "127.0.0.1:0", "--data-dir", str(path))

    def test_a_directory_of_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("x")
        line = refused("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
        assert "is not a LaterMQ data directory" in line
        assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.tex"]

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_an_unreadable_directory(self, tmp_path: Path) -> None:
        closed = tmp_path / "closed"
        closed.mkdir(mode=0)
        line = refused("--listen", "127.0.0.1:0", "--data-dir", str(closed))
        assert "Permission denied" in line

    @pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("capsh") is None, reason="needs root and capsh"
    )
    @pytest.mark.parametrize(
        "command",
        [
            "serve --listen 127.0.0.1:0 --data-dir",
            "serve --listen 127.0.0.1:0 --replace --data-dir",
            "serve --listen 127.0.0.1:0 --shards 2 --data-dir",
            "log verify", "log dump", "log repair --skip", "backup restore /none --to",
            "serve --config", "serve --print-config --config",
        ],
    )  # fmt: skip
    def test_what_is_of_another_user_is_told_in_a_line(
        self, broker: BrokerProcess, command: str
    ) -> None:
        broker.start()
        broker.terminate()
        shutil.chown(broker.data_dir, "nobody")
        broker.data_dir.chmod(0o700)
        file = broker.data_dir / "latermq.toml" if "--config" in command else broker.data_dir
        rights = "--drop=cap_dac_override,cap_dac_read_search,cap_fowner,cap_chown"
        words = f"{sys.executable} -m latermq_broker {command} {file}"
        ended = subprocess.run(
            ["capsh", rights, "--", "-c", words],
            capture_output=True, text=True, timeout=patient(60),
        )  # fmt: skip
        assert ended.returncode == 2, ended.stderr
        assert len(ended.stderr.splitlines()) == 1, ended.stderr
        assert "unexpected" not in ended.stderr
        if "none" not in command:
            assert "Permission denied" in ended.stderr

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--listen", "here"], "not HOST:PORT"),
            (["--flush", "never"], "'never' is not one of"),
            (["--config", "none.toml"], "cannot read none.toml"),
            (["--colour"], "No such option"),
        ],
    )
    def test_flags(self, arguments: list[str], words: str) -> None:
        assert words in refused(*arguments)

    def test_a_setting_that_does_not_exist(self, tmp_path: Path) -> None:
        file = tmp_path / "latermq.toml"
        file.write_text("[store]\nflsh = 'sync'\n")
        assert "store.flsh: no such setting, did you mean flush?" in refused("--config", str(file))

    def test_optimised_python(self) -> None:
        assert "start without -O" in refused(python=("-O",))


def test_the_configuration_can_be_printed_and_read_back(tmp_path: Path) -> None:
    arguments = ["--flush", "sync", "--no-auto-create", "--print-config"]
    printed = subprocess.run(
        [*SERVE, *arguments], capture_output=True, text=True, timeout=patient(60)
    )
    assert 'flush = "sync"' in printed.stdout
    assert "auto_create = false" in printed.stdout
    file = tmp_path / "latermq.toml"
    file.write_text(printed.stdout)
    again = [*SERVE, "--config", str(file), "--print-config"]
    assert subprocess.run(again, capture_output=True, text=True).stdout == printed.stdout


def test_without_the_broker_extra_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['click'] = None; from latermq_broker.__main__ import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr == "latermq: this needs click: pip install 'latermq[broker]'\n"


def silent() -> Iterator[bytes]:
    """A client that says nothing."""
    time.sleep(20)
    yield b""


def endless(first: TelemetryCommand) -> Iterator[TelemetryCommand]:
    """A client that says one thing and then listens."""
    yield first
    time.sleep(20)
