"""`latermq serve --shards N`: a broker process per shard, and nothing else in this one.

    started ──ready──→ serves ──ended with 0──→ gone: stopped, or replaced by another process
       ↑                  │                 └─ before it ever served: refused, all end,
       │                  ├─with STORE_FAILED─→ left ended             if not with TRY_AGAIN
       └──── backoff ←────┴─ ended otherwise: one line in the log

With `[replication]` a shard stands by until it owns its log; that is as good as to serve.

Shard i has the directory `i` below the data directory, and port n + i. A shard that ends otherwise
than in order is started again, the others serve on; not one whose store failed: its directory may
be the only copy, and a start may cut off its end. A signal drains all. Should this process be
killed, its shards go on: `--replace` has another one take them over.
"""

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from latermq_broker.cluster.mark import require_shard
from latermq_broker.config.addresses import listen_address
from latermq_broker.config.config import Config
from latermq_broker.errors import ConfigError, StoreUnusableError
from latermq_broker.observability import log as logs
from latermq_broker.observability.service_manager import ServiceNotices
from latermq_broker.pump.event_loop import ends_with_terminal, has_terminal
from latermq_broker.store.directory import LOG_NAME, has_file, unusable
from latermq_broker.transport.listener import bound

log = logging.getLogger("latermq.cluster")

CLEAN: Final = 0
STORE_FAILED: Final = 3  # of `latermq serve`: a person is to look at the directory first
TRY_AGAIN: Final = 4  # of `latermq serve`: Kafka does not answer yet, or another owns the log
PORT_MAX: Final = 65_535
ROWS_TRIED_MAX: Final = 50
BACKOFF_S: Final = (0.1, 0.5, 2.0, 5.0, 10.0)  # before a shard is started again
STEADY_S: Final = 60.0  # a shard that lived so long begins with the first of them again
ALIVE_S: Final = 1.0
READY: Final = b"latermq ready on"
STANDING_BY: Final = b"latermq standing by"
STRAYS: Final = re.compile(r"0|[1-9][0-9]*")


@dataclass
class Child:
    """One shard's process, over all its lives."""

    number: int
    address: str
    process: asyncio.subprocess.Process | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)  # or never will be
    serves: bool = False  # or stands by
    left: bool = False  # ended, and not to be started again: its store failed
    hears: bool = False  # its present life takes SIGHUP: one that is opening would end of it
    reread: bool = False  # it is to, once it does
    code: int = CLEAN
    failures: int = 0


def run(
    config: Config, count: int, arguments: Sequence[str], announce: Callable[[str], None], *,
    replace: bool = False,
) -> int:  # fmt: skip
    """Serve `count` shards until a signal, or until others have replaced them all.

    Args:
        arguments: words for each `latermq serve`, but where it is and which shard.
        announce: gets `latermq ready on HOST:PORT …`, when all serve.
        replace: take over from the shards that run.

    Returns:
        The exit code: 0, or the largest of a shard's; TRY_AGAIN if there is no other.

    Raises:
        ConfigError: the configuration says otherwise where the shards are, or a port is taken.
        StoreUnusableError: so is the data directory.
    """
    logs.set_up(config.log)
    if config.cluster.shards:
        raise ConfigError("cluster.shards", "is what --shards makes: give one of them")
    directory = config.server.directory
    check_directories(directory, count)
    addresses = _addresses("server.listen", config.server.listen, count)
    metrics = config.metrics.listen and _addresses("metrics.listen", config.metrics.listen, count)
    shards = _shards(config, count) or addresses
    supervisor = Supervisor(directory, addresses, shards, metrics or (), arguments)
    return asyncio.run(supervisor.run(announce, replace=replace))


def _shards(config: Config, count: int) -> list[str]:
    """List where each shard is, at one machine or another; []: at this one."""
    machines = config.cluster.machines
    if bool(machines) != bool(config.replication.kafka):
        raise ConfigError(
            "cluster.machines",
            "says where the shards are that [replication] keeps: --shards needs both or none",
        )
    rows = [_addresses("cluster.machines", first, count) for first in machines]
    return [";".join(row) for row in zip(*rows, strict=True)]


def check_directories(directory: Path, count: int) -> None:
    """Check that what a data directory holds are these shards, or nothing yet.

    Raises:
        StoreUnusableError: a broker's log, or shards of another number.
    """
    if has_file(directory, LOG_NAME):
        raise StoreUnusableError(
            f"{directory} is of a broker that was alone: move it to a directory named 0, in a new "
            "one that you name here, and it becomes shard 0; see docs/cluster.md"
        )
    try:
        names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    except OSError as error:
        raise unusable(directory, error) from error
    beyond = sorted(int(name) for name in names if STRAYS.fullmatch(name) and int(name) >= count)
    for number in [*range(count), *beyond]:
        require_shard(directory / str(number), number, count)


def _addresses(setting: str, first: str, count: int) -> list[str]:
    """List the addresses of all shards: ports in a row, for port 0 such as are free."""
    host, port = listen_address(setting, first)
    shown = f"[{host}]" if ":" in host else host
    port = port or _free_row(setting, host, count)
    if port + count - 1 > PORT_MAX:
        raise ConfigError(setting, f"{first} leaves no ports for {count} shards")
    return [f"{shown}:{port + number}" for number in range(count)]


def _free_row(setting: str, host: str, count: int) -> int:
    """Find the first of as many free ports in a row. Raises ConfigError."""
    for _ in range(ROWS_TRIED_MAX):
        probes = bound(setting, host, 0)
        port: int = probes[0].getsockname()[1]
        try:
            if port + count - 1 > PORT_MAX:
                continue
            for number in range(1, count):
                probes += bound(setting, host, port + number)
            return port
        except ConfigError:
            continue
        finally:
            for probe in probes:
                probe.close()
    raise ConfigError(setting, f"no {count} free ports in a row were found at {host}")


class Supervisor:
    """The processes of all shards."""

    def __init__(
        self,
        directory: Path,
        addresses: Sequence[str],
        shards: Sequence[str],
        metrics: Sequence[str],
        arguments: Sequence[str],
    ) -> None:
        self._directory = directory
        self._addresses = addresses
        self._shards = shards
        self._metrics = metrics
        self._arguments = arguments
        self._children = [Child(number, address) for number, address in enumerate(addresses)]
        self._stopping = asyncio.Event()
        self._manager = ServiceNotices(os.environ)
        self._ends_with_terminal = ends_with_terminal()

    async def run(self, announce: Callable[[str], None], *, replace: bool) -> int:
        """Keep the shards running; the exit code. See `run`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._on_hang_up)
        lives = []
        for child in self._children:
            lives.append(asyncio.create_task(self._live(child, replace=replace)))
            if replace and not child.number:  # what it is refused, the others would be, too
                await child.ready.wait()
                if not child.serves:
                    break
        await asyncio.gather(*(child.ready.wait() for child in self._children[: len(lives)]))
        if not self._stopping.is_set():
            if all(child.serves or child.left for child in self._children):
                announce(self._announcement())
                self._manager.ready(self._addresses[0])
            else:
                self._stop()
        notices = asyncio.create_task(self._tell_alive())
        await asyncio.gather(*lives)
        notices.cancel()
        codes = [child.code for child in self._children]
        return max((code for code in codes if code != TRY_AGAIN), default=TRY_AGAIN) or max(codes)

    def _announcement(self) -> str:
        first, *others = self._addresses
        more = f" (shard 0 of {len(self._addresses)}, the others {' '.join(others)})"
        what = "ready on" if self._shards is self._addresses else "standing by at"
        return f"latermq {what} {first}{more if others else ''}"

    def _stop(self) -> None:
        """Drain all; asked again, end them as they are."""
        again = self._stopping.is_set()
        self._stopping.set()
        self._manager.stopping()
        for child in self._children:
            if child.process is not None and child.process.returncode is None:
                child.process.send_signal(signal.SIGKILL if again else signal.SIGTERM)

    def _on_hang_up(self) -> None:
        """Have each shard read its settings again; where the terminal is gone, stop."""
        if self._stopping.is_set():
            return
        if self._ends_with_terminal and not has_terminal():
            self._stop()
            return
        self._manager.reloading()
        for child in self._children:
            child.reread = True
            self._pass_on(child)
        self._manager.reloaded()

    @staticmethod
    def _pass_on(child: Child) -> None:
        if child.hears and child.reread and child.process is not None:
            child.reread = False
            if child.process.returncode is None:
                child.process.send_signal(signal.SIGHUP)

    async def _tell_alive(self) -> None:
        """Tell the service manager each second that this process goes round."""
        while True:
            self._manager.alive()
            await asyncio.sleep(ALIVE_S)

    async def _live(self, child: Child, *, replace: bool) -> None:
        """Start a shard again until it ends in order, or all are to stop."""
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            await self._one_life(child, replace=replace)
            early = not child.serves and not (replace and child.number)
            refused = early and child.code != TRY_AGAIN
            if refused and not self._stopping.is_set():
                self._stop()  # `run` may wait for one that is tried again
            if child.code == CLEAN or refused or self._stopping.is_set():
                if child.code == CLEAN and not self._stopping.is_set():
                    log.info("shard ended in order", extra={"shard": child.number})
                child.ready.set()
                return
            if child.code == STORE_FAILED:
                log.error(
                    "shard ended, its store failed: it is not started again",
                    extra={"shard": child.number, "code": child.code},
                )
                child.left = True
                child.ready.set()
                return
            child.failures = 0 if loop.time() - began_s >= STEADY_S else child.failures + 1
            wait_s = BACKOFF_S[min(max(child.failures - 1, 0), len(BACKOFF_S) - 1)]
            log.error(
                "shard ended, it is started again",
                extra={"shard": child.number, "code": child.code, "wait_s": wait_s},
            )
            try:
                await asyncio.wait_for(self._stopping.wait(), wait_s)
            except TimeoutError:
                continue
            child.ready.set()
            return

    async def _one_life(self, child: Child, *, replace: bool) -> None:
        directory = self._directory / str(child.number)
        words = ["--listen", child.address, "--data-dir", str(directory), *self._arguments]
        if replace and not child.serves:
            words.append("--replace")
        mine = {"NOTIFY_SOCKET", "WATCHDOG_USEC"}  # one process speaks for all
        environment = {name: value for name, value in os.environ.items() if name not in mine} | {
            "LATERMQ_CLUSTER_SHARDS": ",".join(self._shards),
            "LATERMQ_CLUSTER_SHARD": str(child.number),
        }
        if self._metrics:
            environment["LATERMQ_METRICS_LISTEN"] = self._metrics[child.number]
        child.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "latermq_broker", "serve", *words,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, env=environment,
            process_group=0,  # Ctrl-C is for this process, which tells them
        )  # fmt: skip
        if self._stopping.is_set():
            child.process.send_signal(signal.SIGTERM)
        assert child.process.stdout is not None
        async for line in child.process.stdout:
            if line.startswith((READY, STANDING_BY)):
                child.serves = child.hears = True
                child.ready.set()
                self._pass_on(child)
                what = "shard serves" if line.startswith(READY) else "shard stands by"
                log.info(what, extra={"shard": child.number, "address": child.address})
        child.hears = False
        child.code = await child.process.wait()
