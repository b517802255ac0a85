"""The store alone: what the prototype that it was designed with was measured by."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import uvloop

from bench.cases.engine import KIB, NOW_MS, engine, outgoing, timed
from bench.measured import HIGHER, LOWER, Group, Result, medians, percentile, repeated
from latermq_broker.clock import SystemClock
from latermq_broker.config.config import Config, Flush, StoreConfig
from latermq_broker.engine.state.model import ReceiveRequest
from latermq_broker.pump.disk_work import THREADS_MAX, DiskWork
from latermq_broker.pump.pump import Pump
from latermq_broker.store.records.record import RecordType

APPENDS: Final = (  # body, what the prototype took: one write for 100 records, fallocate'd
    (100, "100 B", 0.96), (KIB, "1 KiB", 0.95), (16 * KIB, "16 KiB", 6.2),
)  # fmt: skip
WAITERS: Final = (
    (1, "2,000 … 3,500, p50 0.2 ms"),
    (16, "33,000 … 35,000, p50 0.4 ms"),
    (256, "83,000 … 107,000, p50 1.6 … 2.5 ms"),
)
APPEND_WHY: Final = (
    "ours keeps each record readable before it is written, and asks at each one whether there is "
    "room, whether a group is open and whether time has passed"
)
COMMIT_WHY: Final = (
    "measured through the whole pump: turns of the loop, a waiter of its own for each record, "
    "housekeeping beside it; and the disk's sync is not the same on every machine"
)


def append(count: int, size: int) -> dict[str, float]:
    """Records with `size` bytes, a write for each 100."""
    payload = [bytes(size)]
    with engine() as core:
        log = core.store.log

        def work() -> None:
            for _ in range(count // 100):
                for _ in range(100):
                    log.append(RecordType.MESSAGE, payload, NOW_MS)
                log.write()

        figures = timed(count, work)
    return {"us": 1e6 / figures["per_second"], "CPU us": figures["CPU us"]}


def group_commit(waiters: int, seconds: float) -> dict[str, float]:
    """`waiters` tasks, each appends 1 KiB and waits until it is on disk, again and again."""
    taken: list[float] = []

    async def run() -> None:
        with engine(config) as core, ThreadPoolExecutor(THREADS_MAX) as threads:
            failures: list[BaseException] = []
            clock = SystemClock()
            disk = DiskWork(core, clock, config.store, threads)
            pump = Pump(core, clock, config, disk, failures.append)
            pump.start()
            payload = [bytes(KIB)]
            end = time.perf_counter() + seconds

            async def one() -> None:
                while (began := time.perf_counter()) < end:
                    core.store.log.append(RecordType.MESSAGE, payload, clock.now_ms())
                    await pump.synced()
                    taken.append(time.perf_counter() - began)

            await asyncio.gather(*(one() for _ in range(waiters)))
            await pump.stop()
            assert not failures, failures

    config = Config(store=StoreConfig(flush=Flush.SYNC))
    uvloop.run(run())
    taken.sort()
    return {
        "per_second": len(taken) / seconds,
        "p50 ms": percentile(taken, 0.5) * 1_000,
        "p99 ms": percentile(taken, 0.99) * 1_000,
    }


def message_bytes(size: int) -> dict[str, float]:
    """What a message of one group costs the log beside its body, 32 at a time."""
    request = ReceiveRequest(
        group="bench", topic="bench", client_id="bench", count_max=32, invisible_ms=60_000
    )
    with engine() as core:
        core.send([outgoing(size)], NOW_MS)
        for one in core.receive(request, NOW_MS):
            core.ack("bench", [one.handle], NOW_MS)  # topic, group and client are recorded once
        begin = core.store.log.end
        core.send([outgoing(size)] * 32, NOW_MS)
        sent = core.store.log.end
        got = core.receive(request, NOW_MS)
        leased = core.store.log.end
        core.ack("bench", [one.handle for one in got], NOW_MS)
        acked = core.store.log.end
        assert len(got) == 32
    return {
        "bytes": (acked - begin) / 32 - size,
        "record and properties": (sent - begin) / 32 - size,
        "lease": (leased - sent) / 32,
        "ack": (acked - leased) / 32,
    }


def groups(full: bool) -> Iterator[Group]:
    """The cases of this module."""
    count, runs, seconds = (100_000, 5, 5.0) if full else (20_000, 3, 1.0)
    for size, shown, prototype in APPENDS:
        case = f"append_{size}"
        yield (case,), partial(
            _one, case, f"log append, {shown}, 100 a write", "us", LOWER, runs,
            partial(append, count if size < 4 * KIB else count // 4, size),
            f"{prototype} us", APPEND_WHY,
        )  # fmt: skip
    for waiters, prototype_rate in WAITERS:
        case = f"commit_{waiters}"
        what = f"group commit, 1 KiB, waiters: {waiters}"
        yield (case,), partial(
            _one, case, what, "records/s", HIGHER, runs, partial(group_commit, waiters, seconds),
            prototype_rate, COMMIT_WHY,
        )  # fmt: skip
    what = "log of one message beside its 1 KiB body: sent, leased and acknowledged 32 at a time"
    yield ("log_per_message",), partial(
        _one, "log_per_message", what, "bytes", LOWER, 1, partial(message_bytes, KIB),
        "88 + properties, 2.5 of a lease, 16 of an ack", "",
    )  # fmt: skip


def _one(
    case: str,
    what: str,
    unit: str,
    better: str,
    runs: int,
    measure: Callable[[], Mapping[str, float]],
    prototype: str,
    why: str,
) -> Iterator[Result]:
    values = repeated(runs, measure)
    first = next(iter(values))
    yield Result(
        case=case, what=f"store: {what}", unit=unit, better=better, runs=values.pop(first),
        details=medians(values), prototype=prototype, why=why,
    )  # fmt: skip
