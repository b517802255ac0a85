"""What shards cost a send: 1, 2 and 4 shards, each beside as many brokers that know of no other.

The load is one, and its calls take turns among those who serve, as a client's do: 64 at a time in
all. So each of four has 16 of them, fewer come with one reading of a socket, and two cores have
five processes: that costs more a send, and it costs unrelated brokers as much. What a broker does
for being one of several is counted in `instructions`, and promised there.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

from bench.cases.broker import KIB, SHORT_POLLS, TOPIC, load
from bench.cases.engine import scratch
from bench.cluster.meters import used_s
from bench.cluster.tables import Sends, factors, medians, send_cells, spread, table
from support.broker_process import BrokerProcess
from support.cluster_process import ClusterProcess
from support.wire_client import WireClient

CALLS: Final = 64  # at a time
ONE: Final = "1 broker"
HEAD: Final = (
    "", "messages/s", "p50 ms", "p99 ms", "CPU µs a message", f"of {ONE}'s", "of as many brokers'",
)  # fmt: skip


class Variant(NamedTuple):
    """Who serves."""

    processes: int
    are_shards: bool


VARIANTS: Final = {
    ONE: Variant(1, are_shards=False),
    "1 shard": Variant(1, are_shards=True),
    "2 brokers": Variant(2, are_shards=False),
    "2 shards": Variant(2, are_shards=True),
    "4 brokers": Variant(4, are_shards=False),
    "4 shards": Variant(4, are_shards=True),
}
BESIDE: Final = {"1 shard": ONE, "2 shards": "2 brokers", "4 shards": "4 brokers"}


class Served(NamedTuple):
    """Where sends go, and who answers them."""

    endpoints: list[str]
    pids: list[int]


@contextmanager
def serving(variant: Variant) -> Iterator[Served]:
    """Run so many processes with directories of their own, and the topic made."""
    words = ("--flush", "async")
    with scratch() as path, ExitStack() as stack:
        if variant.are_shards:
            cluster = ClusterProcess(path / "data", variant.processes, *words, config=SHORT_POLLS)
            stack.enter_context(cluster).start()
            make_topic(cluster.endpoint)
            yield Served(cluster.endpoints, list(cluster.pids().values()))
            return
        brokers = [
            stack.enter_context(BrokerProcess(path / f"{number}", *words, config=SHORT_POLLS))
            for number in range(variant.processes)
        ]
        for broker in brokers:
            broker.start()
            make_topic(broker.endpoint)
        yield Served([broker.endpoint for broker in brokers], [broker.pid for broker in brokers])


def make_topic(endpoint: str) -> None:
    """Make the topic of all loads."""
    with WireClient(endpoint) as wire:
        wire.create_topic(TOPIC)


def send_lone(endpoints: Sequence[str], seconds: float) -> dict[str, float]:
    """Send one message a call, 1 KiB, for so long."""
    return load(
        endpoints[0], "spread", endpoints=list(endpoints),
        concurrency=CALLS, batch=1, seconds=seconds, body_bytes=KIB,
    )  # fmt: skip


def measure_one(variant: Variant, seconds: float) -> Sends:
    """Measure one variant, by processes of its own."""
    with serving(variant) as served:
        assert len(served.pids) == variant.processes, "one is missing"
        before_s = used_s(served.pids)
        figures = send_lone(served.endpoints, seconds)
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


def text(found: Mapping[str, Sequence[Sends]]) -> Iterator[str]:
    """Yield the table, and what it is of."""
    rows = [
        [
            *send_cells(name, medians(rounds)),
            spread(factors(rounds, found[ONE])),
            spread(factors(rounds, found[BESIDE[name]])) if name in BESIDE else "",
        ]
        for name, rounds in found.items()
    ]
    yield (
        f"**Shards.** One message a call, 1 KiB, flush async, {CALLS} calls at a time that take "
        "turns among those who serve; one process sends, on the same cores. CPU is that of all "
        "who serve. Brokers know of no other, shards are one cluster."
    )
    yield ""
    yield from table(HEAD, rows)
