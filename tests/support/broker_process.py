"""A broker as its users run it: `latermq serve` in a process of its own, on a directory that stays.

It may be started, stopped and killed again and again; from its first start on it keeps its port, so
that clients find it after a restart. Use it as a context manager: nothing is left running.
"""

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, ClassVar, Final, NamedTuple, Self

from support.broker_nursery import Nursery, NurseryChild
from support.machine import patient

READY: Final = re.compile(r"latermq ready on (\S+)")
READY_TIMEOUT_S: Final = patient(30.0)
STOP_TIMEOUT_S: Final = patient(30.0)


class Ended(NamedTuple):
    """How a broker process ended and what it said in this life."""

    code: int  # negative: the signal that ended it
    stdout: str
    stderr: str


class BrokerProcess:
    """At most one process at a time.

    Args:
        data_dir: kept; `data_dir` + ".log" collects the standard error of all lives.
        arguments: further words for `latermq serve`.
        config: a configuration file's text; "" for none.
        nursery: forks the process instead of starting an interpreter for it.
        prefix: words before the interpreter's, such as `env` and what it sets.
        pass_fds: descriptors that each life has, too.
    """

    program: ClassVar = ("-m", "latermq_broker")

    def __init__(
        self,
        data_dir: Path,
        *arguments: str,
        config: str = "",
        listen: str = "127.0.0.1:0",
        nursery: Nursery | None = None,
        prefix: Sequence[str] = (),
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._pass_fds = pass_fds
        self.data_dir = data_dir
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self.ready_s = 0.0  # from the last spawn to its ready line
        self._arguments = list(arguments)
        self._listen = listen
        self._nursery = nursery
        self._prefix = prefix
        self._process: subprocess.Popen[str] | NurseryChild | None = None
        self._reader: threading.Thread | None = None
        self._lines: list[str] = []
        self._said = threading.Event()  # ready, or never will be
        self._spawned_s = 0.0
        self._log_from = 0  # where this life's standard error begins
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        if config:
            path = data_dir.with_name(data_dir.name + ".toml")
            path.write_text(config, encoding="utf-8")
            self._arguments += ["--config", str(path)]

    @property
    def endpoint(self) -> str:
        """`host:port`; the port is known from the first start on."""
        return self._listen

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *more_arguments: str) -> Self:
        """Spawn and wait until it serves. Raises RuntimeError with what it said instead."""
        self.spawn(*more_arguments)
        self.wait_ready()
        return self

    def spawn(self, *more_arguments: str) -> None:
        """Begin a life without waiting for it."""
        assert self._process is None, "one life at a time"
        words = ["serve", "--listen", self._listen, "--data-dir", str(self.data_dir)]
        words += [*self._arguments, *more_arguments]
        self._lines, self._said = [], threading.Event()
        with self.log_path.open("ab") as log:
            self._log_from = log.tell()
            self._spawned_s = time.perf_counter()
            if self._nursery is not None:
                self._process = self._nursery.spawn(words, log.fileno())
            else:
                command = [*self._prefix, sys.executable, *self.program, *words]
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    pass_fds=self._pass_fds,
                )
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout, self._lines, self._said), daemon=True
        )
        self._reader.start()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> str:
        """The endpoint, once it serves. Raises RuntimeError when it ended or took too long."""
        said = self._said.wait(timeout_s)
        if not said or not self.serves:
            ended = self.kill()
            why = f"ended with {ended.code}" if said else f"not ready after {timeout_s} s"
            raise RuntimeError(f"broker {why}\n{ended.stdout}{ended.stderr}")
        return self._listen

    @property
    def serves(self) -> bool:
        """It has printed its ready line in this life."""
        return any(READY.match(line) for line in self._lines)

    def kill(self) -> Ended:
        """kill -9, at once."""
        assert self._process is not None
        self._process.kill()
        return self.wait_end()

    def terminate(self) -> Ended:
        """SIGTERM, and wait until it has drained and gone."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait_end()

    def pause(self) -> None:
        """Stop it, as a machine does that is too busy, or suspended."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def logged(self, text: str) -> int:
        """Count how often it has said this on standard error in this life."""
        return self._log().count(text)

    def log_lines(self) -> list[str]:
        """List the lines of standard error in this life."""
        return self._log().splitlines()

    def wait_log(self, text: str, times: int = 1) -> None:
        """Wait until it has said this so often on standard error in this life."""
        until_s = time.monotonic() + READY_TIMEOUT_S
        while self.logged(text) < times:
            assert time.monotonic() < until_s, f"the log never said {text!r}"
            time.sleep(0.05)

    def replace(self, *more_arguments: str) -> Ended:
        """Have `serve --replace` take over, wait until it serves; how the process before it ended.

        Raises RuntimeError: it does not serve; then it is gone, and the one before it goes on.
        """
        before = (self._process, self._reader, self._lines, self._log_from)
        self._process = None
        try:
            self.spawn("--replace", *more_arguments)
            self.wait_ready()
        except RuntimeError:
            self._process, self._reader, self._lines, self._log_from = before
            raise
        after = (self._process, self._reader, self._lines, self._log_from)
        self._process, self._reader, self._lines, self._log_from = before
        try:
            return self.wait_end()
        finally:
            self._process, self._reader, self._lines, self._log_from = after

    def wait_end(self, timeout_s: float = STOP_TIMEOUT_S) -> Ended:
        """Wait for the process to end by itself; past the timeout it is killed."""
        process, self._process = self._process, None
        assert process is not None
        assert self._reader is not None
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._reader.join()
        assert process.returncode is not None
        return Ended(process.returncode, "".join(self._lines), self._log())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    def _log(self) -> str:
        with self.log_path.open("rb") as log:
            log.seek(self._log_from)
            return log.read().decode(errors="replace")

    def _read(self, stdout: IO[str], lines: list[str], said: threading.Event) -> None:
        with stdout:
            for line in stdout:
                lines.append(line)
                ready = READY.match(line)
                if ready:
                    self._listen = ready[1]
                    self.ready_s = time.perf_counter() - self._spawned_s
                    said.set()
        said.set()
