"""Brokers forked from a process that has imported everything already: a start in milliseconds.

What runs is `latermq serve` with its own process id, files and threads; only the interpreter's
start is spared, so that hundreds of brokers can be killed in a minute. One at a time per nursery.

    test ──arguments, stdout, stderr──► nursery ──fork──► broker
         ◄──pid────────────────────────        ◄──wait──
         ◄──exit code──────────────────
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Self, TextIO

from latermq_broker.store.files import RealFiles

MESSAGE_BYTES_MAX: Final = 1 << 16


class NurseryChild:
    """A broker process that is not our child: as much of `Popen` as `BrokerProcess` needs."""

    def __init__(self, pid: int, stdout: TextIO, channel: socket.socket) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._channel = channel

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal. Raises TimeoutExpired."""
        if self.returncode is None:
            self._channel.settimeout(timeout)
            try:
                said = self._channel.recv(MESSAGE_BYTES_MAX)
            except (TimeoutError, BlockingIOError) as error:
                raise subprocess.TimeoutExpired("broker", timeout or 0) from error
            self.returncode = int(json.loads(said))
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and the nursery took note
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """Use it as a context manager: its process ends with it.

    Args:
        sync_s: what each sync of a file takes longer, as on a slow disk.
    """

    def __init__(self, *, sync_s: float = 0.0) -> None:
        self._sync_s = sync_s

    def __enter__(self) -> Self:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "support.broker_nursery"]
            command += [str(theirs.fileno()), str(self._sync_s)]
            path = os.pathsep.join(one for one in sys.path if one)
            self._process = subprocess.Popen(
                command, pass_fds=(theirs.fileno(),), env={**os.environ, "PYTHONPATH": path}
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        self._process.wait()

    def spawn(self, arguments: Sequence[str], stderr: int) -> NurseryChild:
        """`latermq` with these arguments."""
        reader, writer = os.pipe()
        request = json.dumps(list(arguments)).encode()
        socket.send_fds(self._channel, [request], [writer, stderr])
        os.close(writer)
        self._channel.settimeout(30)
        pid = int(json.loads(self._channel.recv(MESSAGE_BYTES_MAX)))
        return NurseryChild(pid, os.fdopen(reader, "r", encoding="utf-8"), self._channel)


def _slow_down(sync_s: float) -> None:
    datasync = RealFiles.datasync

    def slow(files: RealFiles, fd: int) -> None:
        time.sleep(sync_s)
        datasync(files, fd)

    RealFiles.datasync = slow  # type: ignore[method-assign, assignment]


def _serve(channel: socket.socket) -> None:
    from latermq_broker import runtime  # noqa: F401  what every broker needs, imported once
    from latermq_broker.config import toml_file
    from latermq_cli.__main__ import main
    from support.small_bounds import SMALL_RUNS, with_small_runs

    build = toml_file._build
    toml_file._build = lambda chosen: with_small_runs(build(chosen))
    assert toml_file.load(None, {}, {}).store.bounds == SMALL_RUNS

    while True:
        request, fds, _, _ = socket.recv_fds(channel, MESSAGE_BYTES_MAX, 2)
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            channel.close()
            for number, fd in enumerate(fds, 1):
                os.dup2(fd, number)
                os.close(fd)
            sys.argv = ["latermq", *json.loads(request)]
            main()  # ends the process
        for fd in fds:
            os.close(fd)
        channel.send(json.dumps(pid).encode())
        _, status = os.waitpid(pid, 0)
        channel.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())


if __name__ == "__main__":
    if float(sys.argv[2]):
        _slow_down(float(sys.argv[2]))
    _serve(socket.socket(fileno=int(sys.argv[1])))
