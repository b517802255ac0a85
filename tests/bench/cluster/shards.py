"""What shards cost a send: a broker that is alone beside 1, 2 and 4 shards.

The load is one, and its calls take turns among the shards, as a client's do: 64 at a time in all.
So each of four shards has 16 of them, and fewer come with one reading of a socket; the last row has
64 at each, which tells that from what a shard costs.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from bench.cases_broker import KIB, SHORT_POLLS, TOPIC, load
from bench.cases_engine import scratch
from bench.cluster.meters import used_s
from bench.cluster.tables import Bound, Sends, bounds, factors, medians, send_cells, spread, table
from support.broker_process import BrokerProcess
from support.cluster_process import ClusterProcess
from support.wire_client import WireClient

CALLS: Final = 64  # at a time
CPU_TIMES_MAX: Final = 1.05
ONE: Final = "1 shard"
MANY_CALLS: Final = f"4 shards, {CALLS} calls at each"
HEAD: Final = (
    "", "messages/s", "p50 ms", "p99 ms", "CPU µs a message", f"of {ONE}'s", "promised",
)  # fmt: skip


class Variant(NamedTuple):
    """What is asked, and by how many calls at a time."""

    shards: int  # 0: a broker that is alone
    calls: int = CALLS


VARIANTS: Final = {
    "a broker that is alone": Variant(0),
    ONE: Variant(1),
    "2 shards": Variant(2),
    "4 shards": Variant(4),
    MANY_CALLS: Variant(4, 4 * CALLS),
}
PROMISED: Final = {"2 shards": CPU_TIMES_MAX, "4 shards": CPU_TIMES_MAX}


class Served(NamedTuple):
    """Where sends go, and who answers them."""

    endpoints: list[str]
    pids: list[int]


@contextmanager
def serving(shards: int) -> Iterator[Served]:
    """Run so many shards with a directory of their own, and the topic made."""
    with scratch() as path:
        words, data = ("--flush", "async"), path / "data"
        if not shards:
            with BrokerProcess(data, *words, config=SHORT_POLLS) as alone:
                alone.start()
                make_topic(alone.endpoint)
                yield Served([alone.endpoint], [alone.pid])
            return
        with ClusterProcess(data, shards, *words, config=SHORT_POLLS) as cluster:
            cluster.start()
            make_topic(cluster.endpoint)
            yield Served(cluster.endpoints, list(cluster.pids().values()))


def make_topic(endpoint: str) -> None:
    """Make the topic of all loads."""
    with WireClient(endpoint) as wire:
        wire.create_topic(TOPIC)


def send_lone(endpoints: Sequence[str], calls: int, seconds: float) -> dict[str, float]:
    """Send one message a call, 1 KiB, for so long."""
    return load(
        endpoints[0], "spread", endpoints=list(endpoints),
        concurrency=calls, batch=1, seconds=seconds, body_bytes=KIB,
    )  # fmt: skip


def measure_one(variant: Variant, seconds: float) -> Sends:
    """Measure one variant, by processes of its own."""
    with serving(variant.shards) as served:
        assert len(served.pids) == max(variant.shards, 1), "a shard is missing"
        before_s = used_s(served.pids)
        figures = send_lone(served.endpoints, variant.calls, seconds)
        used = used_s(served.pids) - before_s
    return Sends(
        figures["per_second"], figures["p50 ms"], figures["p99 ms"], used / figures["sent"] * 1e6
    )


def measure(rounds: int, seconds: float) -> dict[str, list[Sends]]:
    """Measure all variants in turns, so many rounds of them."""
    found: dict[str, list[Sends]] = defaultdict(list)
    for number in range(rounds):
        for name, variant in VARIANTS.items():
            sends = measure_one(variant, seconds)
            found[name].append(sends)
            print(
                f"shards, round {number + 1}: {name}: {sends.per_second:,.0f} messages/s, "
                f"{sends.cpu_us:.1f} us of CPU a message, p99 {sends.p99_ms:.1f} ms", flush=True,
            )  # fmt: skip
    return dict(found)


def promises(found: Mapping[str, Sequence[Sends]]) -> dict[str, Bound]:
    """Return what is promised of some variants."""
    return bounds(found, ONE, PROMISED, "shards")


def text(found: Mapping[str, Sequence[Sends]]) -> Iterator[str]:
    """Yield the table, and what it is of."""
    kept = promises(found)
    rows = [
        [
            *send_cells(name, medians(rounds)),
            *(kept[name].cells() if name in kept else (spread(factors(rounds, found[ONE])), "")),
        ]
        for name, rounds in found.items()
    ]
    yield (
        f"**Shards.** One message a call, 1 KiB, flush async, {CALLS} calls at a time that take "
        "turns among the shards; one process sends, on the same cores. CPU is that of all shards."
    )
    yield ""
    yield from table(HEAD, rows)
