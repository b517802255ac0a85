"""Shards as their users run them: `latermq serve --shards N`, with the processes that it starts."""

import os
import random
import re
import signal
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from support.broker_process import READY_TIMEOUT_S, BrokerProcess, Ended
from support.machine import patient

# Below those that the system gives to outgoing connections, which could take one before it is
# listened on, or while a process that was killed comes back to it.
PORTS: Final = range(20_000, 32_000)
SHARD_OF: Final = re.compile(rb"--data-dir\0[^\0]*/([0-9]+)\0")


class ClusterProcess(BrokerProcess):
    """A supervisor and its shards; `endpoint` is shard 0's. What it is given, `BrokerProcess` says.

    Args:
        shards: how many.
    """

    def __init__(self, data_dir: Path, shards: int, *arguments: str, **more: Any) -> None:
        super().__init__(data_dir, "--shards", str(shards), *arguments, **more)
        self.shards: Final = shards

    @property
    def endpoints(self) -> list[str]:
        """`host:port` of each shard, by number."""
        host, _, port = self.endpoint.rpartition(":")
        return [f"{host}:{int(port) + number}" for number in range(self.shards)]

    def pids(self) -> dict[int, int]:
        """The process of each shard that has one now."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        found = {}
        for pid in map(int, children):
            match = SHARD_OF.search(Path(f"/proc/{pid}/cmdline").read_bytes())
            if match is not None:
                found[int(match[1])] = pid
        return found

    def kill_shard(self, number: int) -> None:
        """Kill -9 one shard."""
        os.kill(self.pids()[number], signal.SIGKILL)

    def kill(self) -> Ended:
        """End all at once: the supervisor kills its shards when it is told to stop twice."""
        assert self._process is not None
        for _ in range(2):
            self._process.send_signal(signal.SIGTERM)
            time.sleep(0.05)  # two that come together are one
        return self.wait_end()

    def crash(self) -> Ended:
        """Kill -9 all at once, as when a machine dies; the supervisor first, who starts others."""
        assert self._process is not None
        pids = self.pids().values()
        self._process.kill()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return self.wait_end()

    def wait_log(self, text: str, count: int = 1) -> None:
        """Until its log says this so often, in all its lives together."""
        until_s = time.monotonic() + patient(READY_TIMEOUT_S)
        while self.log_path.read_text(encoding="utf-8").count(text) < count:
            assert time.monotonic() < until_s, self.log_path.read_text(encoding="utf-8")
            time.sleep(0.02)


def free_ports(count: int) -> list[int]:
    """Find ports that nobody listens on; whoever wants them takes them soon."""
    with ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            port, probe = random.choice(PORTS), stack.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
        return found


class Machines:
    """Two shards, each with a configuration file of its own, as on two machines.

    Args:
        more: text for both files.
        cluster: text for their section `[cluster]`.
    """

    def __init__(self, path: Path, more: str = "", *, cluster: str = "") -> None:
        ports = free_ports(4)
        addresses = [f"127.0.0.1:{port}" for port in ports]
        self.metrics = addresses[2:]
        listed = f'shards = ["{addresses[0]}", "{addresses[1]}"]'
        self.shards = [
            BrokerProcess(
                path / str(number),
                listen=addresses[number],
                config=f"[cluster]\n{listed}\nshard = {number}\n{cluster}"
                f'[metrics]\nlisten = "{self.metrics[number]}"\n{more}',
            )
            for number in range(2)
        ]

    def start(self) -> None:
        for shard in self.shards:
            shard.spawn()
        for shard in self.shards:
            shard.wait_ready()

    def stop(self) -> None:
        for shard in self.shards:
            if shard.running:
                shard.kill()
