"""SIGHUP: a broker that runs takes on what its file says now."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc
import pytest

from latermq_proto.latermq.v1 import broker_pb2
from support.broker_process import BrokerProcess
from support.cluster_process import ClusterProcess
from support.machine import patient

BEFORE: Final = "[store]\nretention_ms = 86400000\nunread_retention_ms = 0\n[log]\nlevel = 'info'\n"
SOON_S: Final = patient(20.0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", config=BEFORE) as broker:
        yield broker


def settings(broker: BrokerProcess, text: str) -> None:
    broker.data_dir.with_name("data.toml").write_text(text, encoding="utf-8")


def retention_ms(broker: BrokerProcess) -> int:
    with grpc.insecure_channel(broker.endpoint) as channel:
        get_broker = channel.unary_unary(
            "/latermq.v1.Brokers/GetBroker",
            request_serializer=broker_pb2.GetBrokerRequest.SerializeToString,
            response_deserializer=broker_pb2.GetBrokerResponse.FromString,
        )
        answer = get_broker(broker_pb2.GetBrokerRequest(), timeout=SOON_S)
        return int(answer.broker.retention.retention_ms)


def test_what_may_change_changes_and_the_rest_waits(broker: BrokerProcess) -> None:
    broker.start()
    settings(broker, "[store]\nretention_ms = 3600000\nunread_retention_ms = 0\nflush = 'sync'\n")
    os.kill(broker.pid, signal.SIGHUP)
    broker.wait_log("settings reloaded store.retention_ms=3600000 needs_restart=store.flush")
    assert retention_ms(broker) == 3_600_000

    settings(broker, "[store]\nretention_ms = 'an hour'\n")
    os.kill(broker.pid, signal.SIGHUP)
    broker.wait_log("settings not reloaded, nothing was changed")
    assert broker.logged("store.retention_ms:") == 1
    assert retention_ms(broker) == 3_600_000

    settings(broker, BEFORE)
    os.kill(broker.pid, signal.SIGHUP)
    broker.wait_log("settings reloaded store.retention_ms=86400000\n")
    os.kill(broker.pid, signal.SIGHUP)
    broker.wait_log("settings reloaded, none changed\n")
    ended = broker.terminate()
    assert ended.code == 0, ended.stderr


def test_the_log_itself_is_another_at_once(broker: BrokerProcess) -> None:
    broker.start()
    settings(broker, BEFORE + "json = true\n")
    os.kill(broker.pid, signal.SIGHUP)
    broker.wait_log('"message": "settings reloaded"')


def test_systemd_hears_of_it(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(SOON_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        broker.start()
        assert systemd.recv(1_000).startswith(b"READY=1")
        before_us = time.monotonic_ns() // 1_000
        os.kill(broker.pid, signal.SIGHUP)
        word, _, since_us = systemd.recv(1_000).rpartition(b"=")
        assert word == b"RELOADING=1\nMONOTONIC_USEC"
        assert before_us <= int(since_us) <= time.monotonic_ns() // 1_000
        assert systemd.recv(1_000) == b"READY=1"


def test_shards_hear_of_it_when_they_can_and_systemd_hears_one_voice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd,
        ClusterProcess(tmp_path / "data", 2, config=BEFORE) as cluster,
    ):
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(SOON_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        cluster.start()
        assert systemd.recv(1_000).decode() == f"READY=1\nSTATUS=serving on {cluster.endpoint}"
        settings(cluster, BEFORE.replace("86400000", "43200000"))
        os.kill(cluster.pid, signal.SIGHUP)
        cluster.wait_log("settings reloaded store.retention_ms=43200000", 2)
        assert systemd.recv(1_000).startswith(b"RELOADING=1")
        assert systemd.recv(1_000) == b"READY=1"
        cluster.kill_shard(1)  # it is told when it serves again: SIGHUP would end it before
        cluster.wait_log("shard ended, it is started again")
        os.kill(cluster.pid, signal.SIGHUP)
        cluster.wait_log("settings reloaded, none changed", 2)
        ended = cluster.terminate()
        assert ended.code == 0, ended.stderr
        assert ended.stderr.count("shard ended, it is started again") == 1
        words = [systemd.recv(1_000) for _ in range(3)]
        assert words[2] == b"STOPPING=1\nSTATUS=draining"


@pytest.mark.parametrize("more", [(), ("--shards", "2")], ids=["alone", "shards"])
def test_one_whose_terminal_is_closed_ends_in_order(tmp_path: Path, more: tuple[str, ...]) -> None:
    """It was killed by it; to go on would keep a port that nobody knows of."""
    ours, its = os.openpty()
    log = tmp_path / "log"
    script = (
        "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "signal.signal(signal.SIGHUP, signal.SIG_DFL); "  # these tests may run under `nohup`
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    words = [
        sys.executable, "-m", "latermq_broker", "serve",
        "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"), *more,
    ]  # fmt: skip
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *words],
            stdin=its,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
    try:
        os.close(its)
        until_s = time.monotonic() + SOON_S
        while "latermq ready on" not in log.read_text("utf-8"):
            assert time.monotonic() < until_s, log.read_text("utf-8")
            time.sleep(0.05)
        process.send_signal(signal.SIGHUP)  # there is a terminal, so this is a wish
        while "settings reloaded" not in log.read_text("utf-8"):
            assert time.monotonic() < until_s, log.read_text("utf-8")
            time.sleep(0.05)
        os.close(ours)
        assert process.wait(SOON_S) == 0
    finally:
        process.kill()
        process.wait()
    assert "closed drained=True" in log.read_text("utf-8")
