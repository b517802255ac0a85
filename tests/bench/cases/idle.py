"""Many clients that are only there: what they take, and what a send feels of them."""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from bench.cases.broker import TOPIC, cpu_s, load, rss_mib, running
from bench.children import environment
from bench.measured import LOWER, Group, Result
from latermq_proto.latermq.v1 import broker_pb2
from support.wire_client import WireClient

HEARTBEAT_S: Final = 10.0  # official clients' period
KIB_PROMISED: Final = 32
P99_MS_PROMISED: Final = 20
FILES_SPARE: Final = 500
GET_BROKER: Final = broker_pb2.GetBrokerRequest()


@contextmanager
def idlers(endpoint: str, count: int) -> Iterator[dict[str, float]]:
    """Open when entered; what became of them is in the dictionary afterwards."""
    spec = {"endpoint": endpoint, "topic": TOPIC, "count": count, "heartbeat_s": HEARTBEAT_S}
    figures: dict[str, float] = {}
    with subprocess.Popen(
        [sys.executable, "-m", "bench.idle_process", json.dumps(spec)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment(),
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            figures |= json.loads(process.stdout.readline())
            yield figures
            process.stdin.close()
            figures |= json.loads(process.stdout.readline())
        finally:
            process.kill()


def idle(wanted: int, seconds: float) -> Iterator[Result]:
    """Heartbeats and a telemetry stream from each; one send each 10 ms beside them, and before."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard - FILES_SPARE)
    with running() as broker, WireClient(broker.endpoint) as wire:
        calm = load(broker.endpoint, "pace", pause_ms=10, seconds=seconds)
        before = rss_mib(broker.pid)
        with idlers(broker.endpoint, count) as figures:
            memory = rss_mib(broker.pid) - before
            cpu = cpu_s(broker.pid)
            sends = load(broker.endpoint, "pace", pause_ms=10, seconds=seconds)
            used = cpu_s(broker.pid) - cpu
            after = rss_mib(broker.pid) - before
            seen = wire.call(wire.brokers.GetBroker, GET_BROKER).broker.transport
    lost = int(figures["lost"]) + int(figures["heartbeats unanswered"])
    faults = {each.reason: each.count for each in seen.others if each.kind == "fault"}
    assert seen.connections_open >= count, seen
    kib = memory * 1_024 / count
    yield Result(
        case=f"idle_memory_{wanted}", what=f"{count:,} idle clients, telemetry open: memory each",
        unit="KiB", better=LOWER, runs=(kib,), bound=f"< {KIB_PROMISED}", holds=kib < KIB_PROMISED,
        details={
            "MiB after the heartbeats": after,
            "opened per second": figures["opened per second"],
            "faults": float(sum(faults.values())),
        },
    )  # fmt: skip
    yield Result(
        case=f"idle_send_{wanted}",
        what=f"sends beside {count:,} idle clients, a heartbeat each {HEARTBEAT_S:.0f} s: p99",
        unit="ms", better=LOWER, runs=(sends["p99 ms"],),
        bound=f"< {P99_MS_PROMISED}, no heartbeat lost",
        holds=sends["p99 ms"] < P99_MS_PROMISED and not lost,
        details={
            "p50 ms": sends["p50 ms"],
            "alone p50 ms": calm["p50 ms"],
            "alone p99 ms": calm["p99 ms"],
            "heartbeats": figures["heartbeats"],
            "heartbeat p99 ms": figures["heartbeat p99 ms"],
            "lost": float(lost),
            "broker CPU %": used / seconds * 100,
        },
    )  # fmt: skip


def groups(full: bool) -> Iterator[Group]:
    """The cases of this module."""
    count = 10_000 if full else 1_000
    names = (f"idle_memory_{count}", f"idle_send_{count}")
    yield names, partial(idle, count, 30.0 if full else 12.0)
