"""Brokers that share a replicated log, in processes, and the engine that they share, in another."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar, Final, Self

from support.broker_process import READY_TIMEOUT_S, BrokerProcess

CONFIG: Final = "[store]\nsegment_bytes = 17825792\n"
TESTS: Final = Path(__file__).resolve().parents[1]
MAIN: Final = (
    f"import sys; sys.path.insert(0, {str(TESTS)!r}); "
    "from support.replica_main import main; sys.exit(main())"
)


class ReplicaProcess(BrokerProcess):
    """A broker that follows or owns the log of `engine`."""

    program: ClassVar = ("-c", MAIN)

    def __init__(self, data_dir: Path, engine: "EngineProcess", config: str = CONFIG) -> None:
        super().__init__(data_dir, "--engine", str(engine.port), config=config)

    def pause(self) -> None:
        """Stop it, as a machine does that is too busy, or suspended."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def wait_log(self, text: str) -> None:
        """Until its log says this."""
        until_s = time.monotonic() + READY_TIMEOUT_S
        while text not in self.log_path.read_text(encoding="utf-8"):
            assert time.monotonic() < until_s, f"the log never said {text!r}"
            time.sleep(0.05)


class EngineProcess:
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
