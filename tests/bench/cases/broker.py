"""A broker process, and loads on it from a process of their own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.cases.engine import fill, scratch
from bench.children import environment
from bench.measured import HIGHER, LOWER, Group, Result, medians, repeated
from support.broker_process import BrokerProcess
from support.wire_client import WireClient

TOPIC: Final = "bench"
KIB: Final = 1 << 10
SHORT_POLLS: Final = "[server]\npolling_ms_min = 100\n"
LOAD_TIMEOUT_S: Final = 300
CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")


def load(endpoint: str, name: str, **fields: Any) -> dict[str, float]:
    """Run one load to its end and return what it measured."""
    spec = {"load": name, "endpoint": endpoint, "topic": TOPIC, **fields}
    command = [sys.executable, "-m", "bench.load_process", json.dumps(spec)]
    ended = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        timeout=LOAD_TIMEOUT_S,
        check=True,
        env=environment(),
    )
    figures: dict[str, float] = json.loads(ended.stdout)
    return figures


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no VmRSS")


def cpu_s(pid: int) -> float:
    """CPU time that a process has used, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


@contextmanager
def running(flush: str = "async") -> Iterator[BrokerProcess]:
    """A broker with a directory of its own, and the topic made."""
    with scratch() as path, BrokerProcess(path / "data", "--flush", flush, config=SHORT_POLLS) as b:
        b.start()
        with WireClient(b.endpoint) as wire:
            wire.create_topic(TOPIC)
        yield b


def ready(runs: int) -> Iterator[Result]:
    """From the start of the process to its ready line, on a new directory; then memory at rest."""
    seconds, memory = [], []
    for _ in range(runs):
        with scratch() as path, BrokerProcess(path / "data") as broker:
            broker.start()
            seconds.append(broker.ready_s)
            time.sleep(1)
            memory.append(rss_mib(broker.pid))
    yield Result(
        case="ready_empty", what="ready after start, new directory", unit="s", better=LOWER,
        runs=tuple(seconds), bound="< 1", holds=sorted(seconds)[runs // 2] < 1,
    )  # fmt: skip
    yield Result(
        case="rss_empty", what="memory at rest, new directory", unit="MiB", better=LOWER,
        runs=tuple(memory), bound="< 100", holds=sorted(memory)[runs // 2] < 100,
    )  # fmt: skip


def ready_filled(runs: int, count: int) -> Iterator[Result]:
    """The same with `count` messages of 100 bytes, after a clean stop and after a kill."""
    shown = f"{count // 1_000_000} M" if count >= 1_000_000 else f"{count:,}"
    with scratch() as path:
        fill(path / "data", count, 100, clean=True)
        clean, killed, memory = [], [], []
        with BrokerProcess(path / "data") as broker:
            for _ in range(runs):
                broker.start()
                clean.append(broker.ready_s)
                time.sleep(1)
                memory.append(rss_mib(broker.pid))
                broker.kill()
                broker.start()
                killed.append(broker.ready_s)
                broker.terminate()
    yield Result(
        case="ready_filled", what=f"ready after a clean stop, {shown} messages", unit="s",
        better=LOWER, runs=tuple(clean), bound="< 1", holds=sorted(clean)[runs // 2] < 1,
    )  # fmt: skip
    yield Result(
        case="ready_killed", what=f"ready after kill -9, {shown} messages", unit="s",
        better=LOWER, runs=tuple(killed),
    )  # fmt: skip
    yield Result(
        case="rss_filled", what=f"memory at rest, {shown} messages", unit="MiB",
        better=LOWER, runs=tuple(memory),
    )  # fmt: skip


def sends(runs: int, seconds: float, flush: str) -> Iterator[Result]:
    """Unary and batched sends of 1 KiB; the broker's CPU beside the rate."""
    for case, what, concurrency, batch in (
        ("send", "sends, one message a call, 64 calls at a time", 64, 1),
        ("send_batch", "sends, 100 messages a call, 8 calls at a time", 8, 100),
    ):
        with running(flush) as broker:

            def measure(
                broker: BrokerProcess = broker, concurrency: int = concurrency, batch: int = batch
            ) -> dict[str, float]:
                before = cpu_s(broker.pid)
                figures = load(
                    broker.endpoint, "send",
                    concurrency=concurrency, batch=batch, seconds=seconds, body_bytes=KIB,
                )  # fmt: skip
                used = cpu_s(broker.pid) - before
                # The load warms up for a fifth of its time; the broker's CPU is for both.
                sent = figures["per_second"] * seconds * 1.2
                return {**figures, "broker CPU us": used / sent * 1e6}

            values = repeated(runs, measure)
        rate = values.pop("per_second")
        yield Result(
            case=f"{case}_{flush}", what=f"{what}, 1 KiB, flush {flush}", unit="messages/s",
            better=HIGHER, runs=rate, details=medians(values),
        )  # fmt: skip


def receives(runs: int, count: int) -> Iterator[Result]:
    def measure() -> dict[str, float]:
        with running() as broker:
            load(broker.endpoint, "fill", count=count, body_bytes=KIB)
            before = cpu_s(broker.pid)
            figures = load(
                broker.endpoint, "receive_ack", count=count, concurrency=8, group="bench"
            )
            used = cpu_s(broker.pid) - before
            return {**figures, "broker CPU us": used / count * 1e6}

    values = repeated(runs, measure)
    yield Result(
        case="receive_ack", what="receive and acknowledge, 32 a call, 8 consumers, 1 KiB",
        unit="messages/s", better=HIGHER, runs=values.pop("per_second"), details=medians(values),
    )  # fmt: skip


def latency(runs: int, count: int) -> Iterator[Result]:
    """Both at a pace that leaves the broker calm: 100 messages a second, receives waiting."""
    with running() as broker:
        woken = repeated(
            runs, lambda: load(broker.endpoint, "wake", count=count, pause_ms=10, group="wake")
        )
    p99 = woken.pop("p99 ms")
    yield Result(
        case="wake", what="from a send to a waiting receive, 100 a second: p99", unit="ms",
        better=LOWER, runs=p99, details=medians(woken), bound="< 10",
        holds=sorted(p99)[runs // 2] < 10,
    )  # fmt: skip
    with running() as broker:
        late = repeated(
            runs,
            lambda: load(
                broker.endpoint, "delayed", count=count, pause_ms=10, delay_ms=1_000, group="late"
            ),
        )
    p99, early = late.pop("p99 ms"), late.pop("early")
    yield Result(
        case="late", what="from the due time to a waiting receive, 100 a second: p99", unit="ms",
        better=LOWER, runs=p99, details={**medians(late), "early": max(early)},
        bound="< 10, none early", holds=sorted(p99)[runs // 2] < 10 and not max(early),
    )  # fmt: skip


def groups(full: bool) -> Iterator[Group]:
    """The cases of this module."""
    runs = 5 if full else 3
    seconds = 10.0 if full else 2.0
    filled = 1_000_000 if full else 100_000
    yield ("ready_empty", "rss_empty"), partial(ready, runs)
    yield ("ready_filled", "ready_killed", "rss_filled"), partial(ready_filled, runs, filled)
    for flush in ("async", "sync"):
        names = (f"send_{flush}", f"send_batch_{flush}")
        yield names, partial(sends, runs, seconds, flush)
    yield ("receive_ack",), partial(receives, runs, 100_000 if full else 20_000)
    yield ("wake", "late"), partial(latency, runs, 1_000 if full else 200)
