"""Brokers that share a replicated log, in processes, and the log that they share, in another."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final, Self

from support.broker_process import BrokerProcess

CONFIG: Final = "[store]\nsegment_bytes = 17825792\n"
TESTS: Final = Path(__file__).resolve().parents[1]
MAIN: Final = (
    f"import sys; sys.path.insert(0, {str(TESTS)!r}); "
    "from support.replica_main import main; sys.exit(main())"
)


class ReplicaProcess(BrokerProcess):
    """A broker that follows or owns what `log_server` has."""

    program: ClassVar = ("-c", MAIN)

    def __init__(
        self,
        data_dir: Path,
        log_server: "LogServerProcess",
        config: str = CONFIG,
        prefix: Sequence[str] = (),
    ) -> None:
        words = "--log-port", str(log_server.port)
        super().__init__(data_dir, *words, config=config, prefix=prefix)


class LogServerProcess:
    """A LogServer."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "support.log_server", "0"]
        self._process = subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)
