"""What systemd is told, and the unit that is shipped."""

import asyncio
import configparser
import os
import re
import shlex
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Final

import pytest

from latermq_broker.clock import monotonic_us
from latermq_broker.config.config import ServerConfig
from latermq_broker.handover.replacing import LISTEN
from latermq_broker.observability.service_manager import ServiceNotices
from latermq_broker.runtime import CLEAN, FAILED, REFUSED, STORE_FAILED, TRY_AGAIN
from latermq_broker.transport.listener import BACKLOG
from latermq_cli.root import latermq

ROOT: Final = Path(__file__).resolve().parents[3]
UNIT: Final = ROOT / "broker/latermq_broker/config/operating/latermq.service"


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(10)
        yield listener


def test_it_hears_of_a_life(systemd: socket.socket) -> None:
    manager = ServiceNotices({"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": "60000000"})
    manager.ready("127.0.0.1:8081")
    manager.alive()
    manager.stopping()
    heard = [systemd.recv(1_000).decode() for _ in range(3)]
    assert heard == [
        "READY=1\nSTATUS=serving on 127.0.0.1:8081", "WATCHDOG=1", "STOPPING=1\nSTATUS=draining",
    ]  # fmt: skip


async def test_a_standby_is_ready_when_it_could_serve(systemd: socket.socket) -> None:
    """Or a unit of Type=notify would be killed for want of a word, or by its watchdog."""
    manager = ServiceNotices({"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": "60000000"})
    ready = chain([False], repeat(True))
    saying = asyncio.create_task(manager.standing_by(lambda: next(ready)))
    heard = [(await asyncio.to_thread(systemd.recv, 1_000)).decode() for _ in range(3)]
    saying.cancel()
    assert heard == ["WATCHDOG=1", "READY=1\nSTATUS=standing by", "WATCHDOG=1"]


def test_it_hears_of_a_reload(systemd: socket.socket) -> None:
    """By the clock that systemd compares with its own; one that is not ready reloads unheard."""
    manager = ServiceNotices({"NOTIFY_SOCKET": systemd.getsockname()})
    manager.reloading()
    manager.reloaded()
    manager.ready("127.0.0.1:8081")
    before_us = monotonic_us()
    manager.reloading()
    manager.reloaded()
    heard = [systemd.recv(1_000).decode() for _ in range(3)]
    word, _, since_us = heard[1].rpartition("=")
    assert word == "RELOADING=1\nMONOTONIC_USEC"
    assert before_us <= int(since_us) <= monotonic_us()
    assert heard[2] == "READY=1"
    manager.stopping()
    manager.reloading()
    manager.reloaded()
    assert systemd.recv(1_000).startswith(b"STOPPING")
    systemd.setblocking(False)
    with pytest.raises(BlockingIOError):
        systemd.recv(1_000)


def test_without_a_watchdog_it_is_not_told_each_second(systemd: socket.socket) -> None:
    manager = ServiceNotices({"NOTIFY_SOCKET": systemd.getsockname()})
    manager.alive()
    manager.stopping()
    assert systemd.recv(1_000).startswith(b"STOPPING")


def test_nobody_asked() -> None:
    for environment in ({}, {"WATCHDOG_USEC": "1"}, {"NOTIFY_SOCKET": ""}):
        manager = ServiceNotices(environment)
        manager.ready("x")
        manager.alive()


def test_one_that_is_busy_is_told_later(
    systemd: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    """Its queue is short; who never spoke again was killed by the watchdog."""
    sent = 0
    with suppress(BlockingIOError):
        while True:  # each by a socket of its own: one of them may be full before the queue is
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
                other.setblocking(False)
                other.sendto(b"X=1", systemd.getsockname())
                sent += 1
    manager = ServiceNotices({"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": "60000000"})
    manager.ready("127.0.0.1:8081")
    manager.alive()
    for _ in range(sent):
        assert systemd.recv(1_000) == b"X=1"
    manager.alive()
    manager.alive()
    assert systemd.recv(1_000).decode().split("\n") == [
        "READY=1", "STATUS=serving on 127.0.0.1:8081", "WATCHDOG=1",
    ]  # fmt: skip
    assert systemd.recv(1_000) == b"WATCHDOG=1"
    assert len(caplog.records) == 1


def test_what_was_not_heard_is_told_in_its_order(
    systemd: socket.socket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Keep the last of READY and RELOADING last, or it is taken for reloading for ever."""
    manager = ServiceNotices({"NOTIFY_SOCKET": systemd.getsockname()})
    (tmp_path / "notify").rename(tmp_path / "busy")
    manager.ready("127.0.0.1:8081")
    manager.reloading()
    manager.reloaded()
    (tmp_path / "busy").rename(tmp_path / "notify")
    manager.alive()
    words = systemd.recv(1_000).decode().split("\n")
    assert words[-2:] == ["READY=1", "WATCHDOG=1"]
    assert words.index("RELOADING=1") < words.index("READY=1")
    assert len(caplog.records) == 1


def test_one_that_is_gone_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = ServiceNotices({"NOTIFY_SOCKET": str(tmp_path / "gone"), "WATCHDOG_USEC": "1"})
    manager.ready("x")
    manager.alive()
    assert len(caplog.records) == 1


def test_the_unit_starts_what_there_is() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT, encoding="utf-8")
    service = unit["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert program.endswith("/bin/latermq")
    context = latermq.make_context("latermq", words, resilient_parsing=False)
    serve = latermq.get_command(context, words[0])
    assert serve is not None
    options = {option for parameter in serve.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options
    assert service["Type"] == "notify"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["StateDirectory"] in service["ExecStart"]
    prevented = service["RestartPreventExitStatus"].split()
    assert prevented == [str(REFUSED), str(STORE_FAILED)]
    assert str(TRY_AGAIN) not in prevented, "an owner that was replaced never stands by"
    assert service["Restart"] == "on-failure"


def test_the_socket_is_one_that_a_broker_serves_at() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT.with_suffix(".socket"), encoding="utf-8")
    section = unit["Socket"]
    assert section["FileDescriptorName"] == LISTEN
    assert section["ListenStream"] == ServerConfig().listen
    assert section["Backlog"] == str(BACKLOG)
    assert not {"Accept", "ReusePort", "Service"} & set(section)


def test_no_connection_starts_a_broker_that_a_person_must_look_at() -> None:
    """systemd starts who is wanted: a log that may be the only copy, again and again."""
    service = UNIT.read_text("utf-8")
    after = re.search(r"^ExecStopPost=-\+/bin/sh -c '(.*)'$", service, re.MULTILINE)
    assert after is not None
    script = after[1].replace("systemctl", "echo").replace("$$", "$")
    for code, stops in ((CLEAN, False), (FAILED, False), (REFUSED, True), (STORE_FAILED, True)):
        environment = {"EXIT_STATUS": str(code), "PATH": os.environ["PATH"]}
        said = subprocess.check_output(["/bin/sh", "-c", script], env=environment, text=True)
        assert said == ("--no-block stop latermq.socket\n" if stops else "")


def test_the_unit_lets_the_scrub_step_back() -> None:
    """Who is forbidden it is killed: no old file of the log was ever checked under systemd."""
    filters = re.findall(r"^SystemCallFilter=(.*)$", UNIT.read_text("utf-8"), re.MULTILINE)
    assert filters.index("setpriority") > filters.index("~@privileged @resources")
