"""The tests' end of an official client's process: commands in, answers and events out."""

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, Final, Self

from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support.machine import patient

SCRIPT: Final = Path(__file__).with_name("official_process.py")
ANSWER_TIMEOUT_S: Final = patient(60.0)


class OfficialError(Exception):
    """The official client raised; `code` is the broker's, None when it refused by itself."""

    def __init__(self, name: str, code: int | None, message: str, log_dir: Path) -> None:
        super().__init__(f"{name}: {message} (logs: {log_dir})")
        self.name = name
        self.code = code
        self.message = message


class OfficialClient:
    """One process with the official client.

    Args:
        log_dir: the process's home; the client logs to `logs/rocketmq_python` in it, its standard
            error goes to `stderr`. Kept.
        command: what speaks the lines of `official_process`, in whatever language.
        environment: of the process, but HOME.
    """

    def __init__(
        self,
        log_dir: Path,
        command: Sequence[str] = (sys.executable, str(SCRIPT)),
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        log_dir.mkdir(parents=True, exist_ok=True)
        self.log_dir = log_dir
        self.events: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._answers: dict[int, Future[Any]] = {}
        with (log_dir / "stderr").open("ab") as stderr:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**environment, "HOME": str(log_dir)},
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,))
        self._reader.start()

    def __enter__(self) -> Self:
        self.wait_for(lambda: bool(self.events), "the client to start")
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """It does nothing within; what is sent to it waits."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill -9. What it had told by then is there."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._stdin.close()

    def call(self, do: str, **fields: Any) -> Any:
        """Raises OfficialError."""
        return self.begin(do, **fields).result(ANSWER_TIMEOUT_S)

    def begin(self, do: str, **fields: Any) -> "Future[Any]":
        """The same without waiting: its future."""
        answer: Future[Any] = Future()
        with self._changed:
            serial = len(self._answers)
            self._answers[serial] = answer
        self._stdin.write(json.dumps({"id": serial, "do": do, **fields}) + "\n")
        self._stdin.flush()
        return answer

    def consumed(self, consumer: str) -> list[dict[str, Any]]:
        """What this push consumer was handed so far, oldest first."""
        with self._changed:
            return [event["message"] for event in self.events if event.get("consumer") == consumer]

    def wait_consumed(
        self, consumer: str, count: int, timeout_s: float = 30
    ) -> list[dict[str, Any]]:
        """The first messages it was handed, at least `count`."""
        self.wait_for(
            lambda: len(self.consumed(consumer)) >= count,
            f"{count} messages at {consumer}",
            timeout_s,
        )
        return self.consumed(consumer)

    def wait_for(self, holds: Callable[[], bool], what: str, timeout_s: float = 30) -> None:
        until = time.monotonic() + patient(timeout_s)
        with self._changed:
            while not holds():
                left_s = until - time.monotonic()
                if left_s <= 0 or self._process.poll() is not None:
                    raise AssertionError(f"waited in vain for {what} (logs: {self.log_dir})")
                self._changed.wait(min(left_s, 0.5))

    def _read(self, stdout: IO[str]) -> None:
        with stdout:
            for text in stdout:
                line = json.loads(text)
                with self._changed:
                    if "event" in line:
                        self.events.append(line)
                    elif "error" in line:
                        code = line["code"]
                        if isinstance(code, str):  # by its name (Rust)
                            code = definition_pb2.Code.Value(code)
                        error = OfficialError(line["error"], code, line["message"], self.log_dir)
                        self._answers[line["id"]].set_exception(error)
                    else:
                        self._answers[line["id"]].set_result(line["ok"])
                    self._changed.notify_all()


def text(message: dict[str, Any]) -> str:
    """A received message's body."""
    return base64.b64decode(message["body"]).decode()
