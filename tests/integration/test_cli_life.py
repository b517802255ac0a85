"""`latermq …` as a user types it, against a broker in a process of its own."""

import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from support.broker_process import BrokerProcess
from support.machine import patient

LATERMQ: Final = [sys.executable, "-m", "latermq_broker"]
TIMEOUT_S: Final = patient(60.0)
HELP_S_MAX: Final = patient(2.0)  # 0.1 s on an idle machine


class Shell:
    """Runs `latermq` words with LATERMQ_ENDPOINT set."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.env = {**os.environ, "LATERMQ_ENDPOINT": broker.endpoint, "TZ": "UTC"}
        self.env.pop("COLUMNS", None)

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*LATERMQ, *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env=self.env,
        )

    def ok(self, *words: str, stdin: str = "") -> str:
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *words: str) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.ok(*words, "--json"))
        return value

    def at_terminal(self, *words: str, **env: str) -> str:
        """What a terminal shows; stdin, stdout and stderr are one."""
        leader, follower = pty.openpty()
        with subprocess.Popen(
            [*LATERMQ, *words],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env={**self.env, "TERM": "xterm", **env},
        ) as process:
            os.close(follower)
            shown = bytearray()
            while True:
                try:
                    part = os.read(leader, 4096)
                except OSError:  # Linux: the last writer has gone
                    break
                if not part:
                    break
                shown += part
            process.wait(TIMEOUT_S)
        os.close(leader)
        return shown.decode()


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with BrokerProcess(tmp_path_factory.mktemp("cli") / "data") as broker:
        yield Shell(broker.start())


def test_the_life_of_a_message(shell: Shell) -> None:
    shell.ok("topic", "create", "orders")
    shell.ok("group", "create", "billing", "--max-attempts", "2", "--backoff", "200ms")
    sent = shell.ok("send", "orders", "-", "--tag", "created", "--delay", "4m", stdin="pay up")
    message_id = sent.split()[1]
    (waiting,) = shell.json("pending", "list", "--topic", "orders")["messages"]
    assert (waiting["message_id"], waiting["kind"]) == (message_id, "delayed")
    shell.ok("pending", "expedite", waiting["pending_id"])

    for attempt in (1, 2):
        received = shell.json("receive", "orders", "--group", "billing", "--wait", "20s")
        assert (received["message_id"], received["attempt"]) == (message_id, attempt)
        handle = received["receipt_handle"]
        error = "CardError: card 4711 expired"
        shell.ok("nack", "orders", handle, "--group", "billing", "--error", error)

    assert "CardError: card 4711 expired" in shell.ok("dead", "list", "billing")
    story = shell.ok("dead", "show", "billing", message_id)
    assert story.count("failed: CardError: card 4711 expired") == 2
    assert "waited 200 ms" in story
    letter = shell.json("dead", "show", "billing", message_id)
    first, second = letter["attempts"]
    assert second["started_at_ms"] - first["ended_at_ms"] >= 200

    redriven = shell.ok("dead", "redrive", "billing", "--id", message_id)
    assert redriven == "1 dead letter redriven to billing\n"
    again = shell.json("receive", "orders", "--group", "billing", "--ack")
    assert (again["message_id"], again["attempt"]) == (message_id, 1)
    assert shell.json("pending", "count")["total"] == 0


def test_the_log_can_be_read_beside_the_broker(shell: Shell) -> None:
    shell.ok("send", "seen", "x", "--count", "5")
    directory = str(shell.broker.data_dir)
    assert shell.ok("log", "verify", directory).endswith("verdict      sound\n")
    lines = shell.ok("log", "dump", directory, "--type", "message").splitlines()
    assert sum("topic=seen" in line for line in lines) == 5


def test_failures_are_one_line_and_a_code(shell: Shell) -> None:
    cases = (
        (("topic", "show", "nothing"), 3, "topic not found"),
        (("topic", "create", "x", "--type", "lite", "--queues", "2"), 2, "one queue"),
        (("receive", "x", "--group", "bad name"), 2, "other characters"),
        (("topic", "list", "--endpoint", "127.0.0.1:1"), 1, "no broker answers at 127.0.0.1:1"),
        (("bench", "send", "--endpoint", "127.0.0.1:1"), 1, "no broker answers"),
        (("bench", "receive", "--topic", "nothing"), 3, "topic not found: nothing"),
    )
    for words, code, text in cases:
        done = shell.run(*words)
        assert (done.returncode, done.stdout) == (code, ""), done
        (line,) = done.stderr.splitlines()
        assert line.startswith("latermq: ")
        assert text in line


def test_what_is_no_broker_is_said_so(shell: Shell, tmp_path: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        port = server.stdout.readline().split("port ")[1].split()[0]
        done = shell.run("topic", "list", "--endpoint", f"127.0.0.1:{port}")
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
    finally:
        server.kill()
        server.communicate()


def test_colour_only_at_a_terminal_that_wants_it(shell: Shell) -> None:
    shell.ok("topic", "create", "coloured")
    assert "\x1b[1mTOPIC" in shell.at_terminal("topic", "list")
    assert "\x1b[" not in shell.at_terminal("topic", "list", NO_COLOR="1")
    assert "\x1b[" not in shell.ok("topic", "list")


def test_a_reader_who_has_seen_enough_is_no_error(shell: Shell) -> None:
    shell.ok("send", "long", "x", "--count", "3000")
    command = " ".join([*LATERMQ, "log", "dump", str(shell.broker.data_dir)])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -n 1"],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=shell.env,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_ctrl_c_ends_a_wait(shell: Shell) -> None:
    words = ["receive", "quiet", "--group", "waiting", "--wait", "20s"]
    process = subprocess.Popen(
        [*LATERMQ, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=shell.env
    )
    deadline = time.monotonic() + TIMEOUT_S
    while '"receives_parked": 1' not in shell.ok("broker", "show", "--json"):
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=patient(10))
    assert process.returncode == 130
    assert said.strip() == "latermq: interrupted"


def test_top_gives_the_terminal_back_when_it_is_told_to_end(shell: Shell) -> None:
    """SIGTERM left it without a cursor, and without an echo of what is typed."""
    leader, follower = pty.openpty()
    before = termios.tcgetattr(follower)
    with subprocess.Popen(
        [*LATERMQ, "top"], stdin=follower, stdout=follower, stderr=follower,
        env={**shell.env, "TERM": "xterm"},
    ) as process:  # fmt: skip
        shown = b""
        while b"quit" not in shown:
            shown += os.read(leader, 4096)
        assert not termios.tcgetattr(follower)[3] & termios.ECHO
        process.send_signal(signal.SIGTERM)
        while b"\x1b[?1049l" not in shown:
            shown += os.read(leader, 4096)
        assert process.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    assert b"\x1b[?25h" in shown
    assert termios.tcgetattr(follower) == before
    os.close(follower)
    os.close(leader)


def test_top_gives_the_terminal_back_while_it_is_stopped(shell: Shell) -> None:
    """Ctrl-Z left the shell on a screen without a cursor, and typing unseen."""
    leader, follower = pty.openpty()
    before = termios.tcgetattr(follower)
    with subprocess.Popen(
        [*LATERMQ, "top", "--every", "600"], stdin=follower, stdout=follower, stderr=follower,
        env={**shell.env, "TERM": "xterm"}, process_group=0,
    ) as process:  # fmt: skip
        for stops in (True, True, False):
            shown = b""
            while b"quit" not in shown:  # but for the first time at once, not after 600 s
                shown += os.read(leader, 4096)
            if not stops:
                break
            assert b"\x1b[?1049h" in shown
            assert not termios.tcgetattr(follower)[3] & termios.ECHO
            process.send_signal(signal.SIGTSTP)
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            while b"\x1b[?1049l" not in shown:
                shown += os.read(leader, 4096)
            assert termios.tcgetattr(follower) == before
            process.send_signal(signal.SIGCONT)
        os.write(leader, b"q")
        assert process.wait(TIMEOUT_S) == 0
    assert termios.tcgetattr(follower) == before
    os.close(follower)
    os.close(leader)


def test_help_is_quick(shell: Shell) -> None:
    began = time.monotonic()
    assert "Commands:" in shell.ok("--help")
    assert time.monotonic() - began < HELP_S_MAX


def test_bench_sends_receives_and_goes_round(shell: Shell) -> None:
    sent = shell.json("bench", "send", "--topic", "load", "--count", "200", "--size", "2k")
    assert (sent["messages"], sent["calls"], sent["errors"]) == (200, 200, {})
    assert 0 < sent["latency_ms"]["p50"] <= sent["latency_ms"]["p99"] <= sent["latency_ms"]["max"]
    received = shell.json("bench", "receive", "--topic", "load", "--count", "200")
    assert (received["messages"], received["errors"]) == (200, {})
    around = shell.json(
        "bench", "roundtrip", "--topic", "round", "--rate", "100", "--duration", "1s"
    )
    assert (around["missing"], around["doubled"], around["errors"]) == (0, 0, {})
    assert around["messages"] == 100
    text = shell.ok("bench", "send", "--topic", "load", "--count", "10", "--batch", "5")
    assert "messages    10 in" in text
    assert "latency ms  p50" in text


def test_many_dead_letters_go_in_one_job(shell: Shell) -> None:
    count = 1_500
    shell.ok("group", "create", "many", "--max-attempts", "1")
    shell.ok("send", "crowd", "x", "--count", str(count))
    # Nobody answers: each lease runs out and takes the only attempt with it.
    shell.ok("receive", "crowd", "--group", "many", "--max", str(count), "--invisible", "1ms")
    deadline = time.monotonic() + TIMEOUT_S
    while shell.json("group", "show", "many")["dead_letter_count"] < count:
        assert time.monotonic() < deadline
    (kind,) = shell.json("dead", "list", "many", "--by", "signature")["signatures"]
    assert kind["count"] == count
    shown = shell.at_terminal("dead", "redrive", "many", "--all", "--max", "1200")
    assert "1,200 dead letters redriven to many" in shown
    assert shell.ok("dead", "drop", "many", "--all", "--yes") == "300 dead letters dropped\n"
    assert shell.json("group", "show", "many")["dead_letter_count"] == 0
