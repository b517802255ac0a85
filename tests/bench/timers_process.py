"""Run as a module: one step of the timer cases in a process of its own; prints one JSON object.

    python -m bench.timers_process '{"step": "fill", "directory": "…", "count": 1000000}'

Alone, because its memory is measured. The engine is driven as the pump drives it; the clock is the
real one.
"""

import asyncio
import gc
import json
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.cases.engine import outgoing
from bench.measured import percentile
from latermq_broker.clock import SystemClock
from latermq_broker.config.config import Config
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.figures import LATENESS_MS, Histogram
from latermq_broker.pump.disk_work import THREADS_MAX, DiskWork
from latermq_broker.pump.pump import Pump
from latermq_broker.store.files import RealFiles
from latermq_broker.store.store import Store

DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
BATCH: Final = 100
CHECKPOINT_EVERY: Final = 500_000
KINDS: Final = 10_000  # different messages, sent again and again
BODY_BYTES: Final = 100


def rss_mib() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this process has no VmRSS")


def opened(directory: Path, clock: SystemClock) -> Engine:
    config = Config()
    now_ms = clock.now_ms()
    core = Engine.open(Store.open(directory, config.store, RealFiles(), now_ms), config, now_ms)
    clock.not_before(core.store.log.last_store_ms)
    return core


def fill(spec: dict[str, Any]) -> dict[str, float]:
    """`count` messages due between one hour and 25 from now; a checkpoint for each half million."""
    clock = SystemClock()
    core = opened(Path(spec["directory"]), clock)
    chance = random.Random(7)
    first_ms = clock.now_ms() + HOUR_MS
    messages = [outgoing(BODY_BYTES, first_ms + chance.randrange(DAY_MS)) for _ in range(KINDS)]
    batches = [messages[at : at + BATCH] for at in range(0, KINDS, BATCH)]
    gc.collect()
    gc.freeze()
    before, largest, cpu_s = rss_mib(), 0.0, 0.0
    count = spec["count"]
    began_s = time.perf_counter()
    for index in range(count // BATCH):
        cpu = time.process_time()
        core.send(batches[index % len(batches)], clock.now_ms())
        core.write()
        cpu_s += time.process_time() - cpu
        if (index + 1) * BATCH % CHECKPOINT_EVERY == 0:
            checkpoint(core, clock)
            largest = max(largest, rss_mib())
    took_s = time.perf_counter() - began_s
    largest = max(largest, rss_mib())
    core.close(clock.now_ms())
    return {
        "per_second": count / took_s,  # checkpoints and merges included
        "CPU us": cpu_s / count * 1e6,
        "RSS MiB": largest - before,
    }


def checkpoint(core: Engine, clock: SystemClock) -> None:
    """What the broker does beside its loop, here one after the other."""
    core.store.log.synced(core.store.log.sync())
    core.checkpoints.take(clock.now_ms())
    if arguments := core.checkpoints.merge_arguments():
        module = "latermq_broker.schedule.run_merge"
        subprocess.run([sys.executable, "-m", module, *arguments], check=True)
        core.checkpoints.adopt_merge(arguments)


def reopen(spec: dict[str, Any]) -> dict[str, float]:
    clock = SystemClock()
    gc.collect()
    before, began_s = rss_mib(), time.perf_counter()
    core = opened(Path(spec["directory"]), clock)
    took_s = time.perf_counter() - began_s
    assert len(core._state.timer) >= spec["count"]
    figures = {"s": took_s, "RSS MiB": rss_mib() - before}
    core.close(clock.now_ms())
    return figures


class Lateness(Histogram):
    """Each value, measured when it is told and not when the tick began."""

    def __init__(self, clock: SystemClock, core: Engine) -> None:
        super().__init__(LATENESS_MS)
        self.values: list[float] = []
        self.early = 0
        self._clock = clock
        self._tick_ms = 0
        self._tick_of_core = core.tick
        core.tick = self._tick  # type: ignore[method-assign]

    def _tick(self, now_ms: int, *, chores: bool = True) -> int | None:
        self._tick_ms = now_ms
        return self._tick_of_core(now_ms, chores=chores)

    def observe(self, value: float) -> None:
        assert self._tick_ms, "it is told outside a tick"
        self.early += value < 0
        self.values.append(value + time.time() * 1_000 - self._tick_ms)


def lateness(spec: dict[str, Any]) -> dict[str, float]:
    """`rate` messages due in each of `seconds` seconds, evenly, beside all that waits already."""
    clock = SystemClock()
    core = opened(Path(spec["directory"]), clock)
    seen = Lateness(clock, core)
    core.figures.lateness_ms = seen
    count = spec["rate"] * spec["seconds"]

    async def run() -> None:
        failures: list[BaseException] = []
        with ThreadPoolExecutor(THREADS_MAX) as threads:
            config = Config()
            disk = DiskWork(core, clock, config.store, threads)
            pump = Pump(core, clock, config, disk, failures.append)
            pump.start()
            begin_ms = clock.now_ms() + 2_000 + count // 20
            message = outgoing(BODY_BYTES)
            due = [begin_ms + index * 1_000 // spec["rate"] for index in range(count)]
            for at in range(0, count, BATCH):
                batch = [message._replace(deliver_at_ms=one) for one in due[at : at + BATCH]]
                core.send(batch, clock.now_ms())
                await pump.written()
            assert clock.now_ms() < begin_ms, "too slow to begin in time"
            while len(seen.values) < count and not failures:
                await asyncio.sleep(0.1)
            await pump.stop()
        assert not failures, failures

    uvloop.run(run())
    core.close(clock.now_ms())
    ordered = sorted(seen.values)
    return {
        "p99 ms": percentile(ordered, 0.99),
        "p50 ms": percentile(ordered, 0.5),
        "max ms": ordered[-1],
        "early": float(seen.early),
    }


STEPS: Final = {"fill": fill, "reopen": reopen, "lateness": lateness}


def main() -> None:
    spec = json.loads(sys.argv[1])
    print(json.dumps(STEPS[spec["step"]](spec)))


if __name__ == "__main__":
    main()
