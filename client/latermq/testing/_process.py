"""A broker in a process of its own: `latermq_broker`."""

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, Self

from latermq.admin import Admin, Method, check_status, connect_async
from latermq.admin import connect as connect_admin
from latermq.client import Client, connect
from latermq.testing._desk import Desk

READY: Final = re.compile(r"latermq ready on (\S+)")
READY_S_MAX: Final = 60.0
STOP_S_MAX: Final = 60.0


class BrokerProcess(Desk):
    """`latermq serve` on a port and a directory of its own; a block, at whose end it is gone.

    Args:
        directory: is made; what the broker stores, and its log.
        arguments: further words for `latermq serve`.
    """

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self.endpoint = "127.0.0.1:0"
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None
        self._admin: Admin | None = None

    @property
    def log(self) -> str:
        """Return what the broker has said so far."""
        return (self.directory / "log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start it, again at the port that it had, and wait until it serves.

        Raises:
            RuntimeError: it does not; with what it said.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable, "-m", "latermq_cli", "serve", "--listen", self.endpoint,
            "--data-dir", str(self.directory / "data"), *self._arguments,
        ]  # fmt: skip
        with (self.directory / "log").open("ab") as log:
            process = self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True
            )
        timer = threading.Timer(READY_S_MAX, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            ready = READY.match(process.stdout.readline())
        finally:
            timer.cancel()
        if ready is None:
            self.stop()
            raise RuntimeError(f"the broker did not start:\n{self.log}")
        self.endpoint = ready[1]

    def stop(self) -> None:
        """Have it end in order, and wait for that."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def kill(self) -> None:
        """End it without a word, as a power cut does; `start` starts it again."""
        if self._process is not None:
            self._process.kill()
        self.stop()

    def connect(self) -> Client:
        return connect(self.endpoint)

    def call(self, method: Method[Any], request: Any) -> Any:
        if self._admin is None:
            self._admin = connect_admin(self.endpoint)
        return self._admin.call(method, request)

    async def stream(self, method: Method[Any], request: Any) -> AsyncGenerator[Any, None]:
        admin = connect_async(self.endpoint)
        try:
            async with aclosing(admin.stream(method, request)) as elements:
                async for element in elements:
                    check_status(element)
                    yield element
        finally:
            await admin.close()

    async def _until(self, ended: Callable[[], bool], task: asyncio.Task[Any]) -> None:
        while not ended():
            await asyncio.wait((task,), timeout=0.002)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._admin is not None:
            self._admin.close()
        self.stop()
