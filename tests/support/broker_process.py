"""A real broker in a process of its own: started, killed, asked to stop, started again.

with BrokerProcess(tmp_path / "data") as broker:
    client = latermq.connect(broker.endpoint)
    broker.kill()   # SIGKILL, as at a power button that spares the page cache
    broker.start()  # the same directory, the same port
"""

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final

ROOT: Final = Path(__file__).resolve().parents[2]
READY: Final = "latermq ready on "
READY_S_MAX: Final = 30.0
STOP_S_MAX: Final = 30.0
LOG_LINES_MAX: Final = 2000


class BrokerError(Exception):
    """The broker did not start, or did not stop as it should; its last words are in the text."""


class BrokerProcess:
    """`latermq serve` on 127.0.0.1. Leaving the block ends the process, however it is.

    Args:
        data_dir: where it stores; kept between starts.
        arguments: further flags of `serve`.
        environment: further variables, e.g. LATERMQ_… settings.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.port = 0  # the first start picks one; the next ones keep it
        self.exit_code: int | None = None  # of the last process that ended
        self._arguments = list(arguments)
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[str] | None = None
        self._readers: list[threading.Thread] = []
        self._log: list[str] = []
        self._output: queue.Queue[str | None] = queue.Queue()

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def log(self) -> str:
        """What it wrote on stderr, in all its lives."""
        return "".join(self._log)

    def start(self) -> None:
        """Start it and return when it serves.

        Raises:
            BrokerError: it ended, or said nothing for 30 s.
        """
        assert self._process is None, "it is running"
        self._output = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "latermq_broker", "serve", *self._flags()],
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._read(self._process.stdout, self._output)
        self._read(self._process.stderr, None)
        self._wait_until_ready()

    def stop(self) -> int:
        """Ask it to drain with SIGTERM, wait for its end and return its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it with SIGKILL, wherever it is."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop it in an orderly way and start it on the same directory and port."""
        self.stop()
        self.start()

    def wait(self, timeout_s: float = STOP_S_MAX) -> int:
        """Wait for an end that something else causes, and return its exit code."""
        process = self._running()
        try:
            self.exit_code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerError(f"it did not end within {timeout_s} s:\n{self.log}") from None
        finally:
            self._process = None
            for reader in self._readers:
                reader.join()
            self._readers.clear()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        return self.exit_code

    def __enter__(self) -> "BrokerProcess":
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.kill()

    def _flags(self) -> list[str]:
        listen = f"127.0.0.1:{self.port}"
        return ["--listen", listen, "--data-dir", str(self.data_dir), *self._arguments]

    def _wait_until_ready(self) -> None:
        while True:
            try:
                line = self._output.get(timeout=READY_S_MAX)
            except queue.Empty:
                raise BrokerError(f"not ready within {READY_S_MAX} s:\n{self.log}") from None
            if line is None:
                code = self.wait()
                raise BrokerError(f"it ended with exit code {code}:\n{self.log}")
            if line.startswith(READY):
                self.port = int(line.rsplit(":", 1)[1])
                return

    def _read(self, stream: IO[str], lines: "queue.Queue[str | None] | None") -> None:
        """Empty a pipe in a thread, lest the broker blocks on it."""

        def copy() -> None:
            for line in stream:
                if lines is not None:
                    lines.put(line)
                elif len(self._log) < LOG_LINES_MAX:
                    self._log.append(line)
            if lines is not None:
                lines.put(None)

        reader = threading.Thread(target=copy, name="broker output", daemon=True)
        reader.start()
        self._readers.append(reader)

    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "it is not running"
        return self._process

    def _end(self, how: signal.Signals) -> int:
        self._running().send_signal(how)
        return self.wait()
