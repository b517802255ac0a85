"""What shards cost that nobody uses: memory, CPU, a start, and the bytes of a route."""

import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from bench.cases.broker import TOPIC, rss_mib
from bench.cases.engine import scratch
from bench.cluster.meters import proportional_mib, used_s
from bench.cluster.tables import table
from bench.suite import shown
from support.cluster_process import ClusterProcess
from support.machine import patient
from support.wire_client import WireClient, require_ok

COUNTS: Final = (1, 4, 16, 64)
SETTLE_S: Final = 6.0  # in which shard 0 tells all of what has changed, after a start
READY_S: Final = patient(300)
# Segments are preallocated: 64 shards would take 20 GB of disk with the default.
CONFIG: Final = "[store]\nsegment_bytes = 17825792\n"
HEAD: Final = (
    "shards", "s to ready", "MiB", "a shard", "MiB, RSS added up", "% of a core, idle", "a shard",
    "bytes of a route",
)  # fmt: skip


class Growth(NamedTuple):
    """A number of shards; what the supervisor takes is in it."""

    shards: int
    ready_s: float
    mib: float  # pages that several have counted once
    rss_mib: float
    core_percent: float
    route_bytes: int

    def cells(self) -> list[str]:
        """Return what the table says."""
        mib, percent = self.mib / self.shards, self.core_percent / self.shards
        figures = (
            self.shards, self.ready_s, self.mib, mib, self.rss_mib, self.core_percent, percent,
            self.route_bytes,
        )  # fmt: skip
        return [shown(figure) for figure in figures]


def measure_one(count: int, idle_s: float) -> Growth:
    """Measure so many shards."""
    with scratch() as path, ClusterProcess(path / "data", count, config=CONFIG) as cluster:
        cluster.spawn()
        cluster.wait_ready(READY_S)
        with WireClient(cluster.endpoint) as wire:
            wire.create_topic(TOPIC)
            route = wire.route(TOPIC)
            require_ok(route)
        time.sleep(SETTLE_S)
        shards = cluster.pids()
        assert len(shards) == count, "a shard is missing"
        pids = [cluster.pid, *shards.values()]
        before_s, began_s = used_s(pids), time.perf_counter()
        time.sleep(idle_s)
        percent = (used_s(pids) - before_s) / (time.perf_counter() - began_s) * 100
        mib, rss = sum(map(proportional_mib, pids)), sum(map(rss_mib, pids))
        return Growth(count, cluster.ready_s, mib, rss, percent, route.ByteSize())


def measure(idle_s: float, counts: Sequence[int] = COUNTS) -> list[Growth]:
    """Measure each number once."""
    found = []
    for count in counts:
        growth = measure_one(count, idle_s)
        found.append(growth)
        print(
            f"growth: {count} shards ready after {growth.ready_s:.1f} s, {growth.mib:,.0f} MiB, "
            f"{growth.core_percent:.2f} % of a core", flush=True,
        )  # fmt: skip
    return found


def text(found: Sequence[Growth], idle_s: float) -> Iterator[str]:
    """Yield the table, and what it is of."""
    yield (
        "**How the cost grows.** Shards that nobody calls, and their supervisor; memory counts "
        f"pages that several have once (PSS), idle CPU is over {idle_s:g} s. The route is of a "
        "topic that spreads over all. One run each."
    )
    yield ""
    yield from table(HEAD, [each.cells() for each in found])
