"""What a replicated log costs a send: Kafka beside flush `sync` and `sync-strict`.

Kafka runs all the time, also while the others are measured: it idles then. It is the tests' own, a
JVM with a small heap and the simple compiler, so its CPU is a hint.
"""

import itertools
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple, TypeAlias

from bench.backup import sending
from bench.cases.broker import SHORT_POLLS
from bench.cases.engine import scratch
from bench.children import figures_of
from bench.cluster.meters import used_s
from bench.cluster.on_kafka import BrokerOnKafka
from bench.cluster.shards import CALLS, make_topic, send_lone
from bench.cluster.tables import Bound, Sends, bounds, factors, medians, send_cells, spread, table
from bench.suite import shown
from support.broker_process import BrokerProcess
from support.kafka.cluster import KafkaCluster

CPU_TIMES_MAX: Final = 1.25
PER_SECOND: Final = 300
SETTLE_S: Final = 2.0  # of steady sends, before those that count
STEADY_TIMES: Final = 2  # as long: fewer sends, and what is done each few seconds is among it
SYNC, STRICT, KAFKA, STANDBY = "sync", "sync-strict", "Kafka", "Kafka, and a standby here"
BOTH = "Kafka, and flush `sync`"
VARIANTS: Final = (SYNC, STRICT, KAFKA, BOTH, STANDBY)
FLUSHES: Final = (SYNC, STRICT)
PROMISED: Final = {KAFKA: CPU_TIMES_MAX}
AT_ONCE: Final = f"{CALLS} calls at a time"
STEADY: Final = f"{PER_SECOND} a second"
HEAD: Final = (
    "sends/s", "p50 ms", "p99 ms", "CPU µs a send", f"of `{SYNC}`'s", "promised",
    "Kafka's CPU µs", "standby's CPU µs", "of the owner's",
)  # fmt: skip
NUMBERS: Final = itertools.count(1)  # of logs: each has a name that no other had

Found: TypeAlias = Mapping[str, Mapping[str, Sequence[Sends]]]  # by load, by variant, by round


class Party(NamedTuple):
    """Who takes part in a send."""

    owner: BrokerProcess
    standby: BrokerOnKafka | None
    kafka: KafkaCluster

    def used_s(self) -> tuple[float, float]:
        """Return what the owner and Kafka have used of CPU."""
        return used_s([self.owner.pid]), used_s(node.pid for node in self.kafka.nodes)

    def standby_used_s(self) -> float:
        """Return what the standby has used when it has read all that the owner wrote."""
        if self.standby is None:
            return 0.0
        assert isinstance(self.owner, BrokerOnKafka)
        self.standby.wait_position(self.owner.position)
        return used_s([self.standby.pid])


@contextmanager
def serving(variant: str, kafka: KafkaCluster) -> Iterator[Party]:
    """Run a broker with a directory of its own, and a standby if the variant has one."""
    with ExitStack() as stack:
        path = stack.enter_context(scratch())
        if variant in FLUSHES:
            data, words = path / "data", ("--flush", variant)
            alone = stack.enter_context(BrokerProcess(data, *words, config=SHORT_POLLS))
            alone.start()
            make_topic(alone.endpoint)
            yield Party(alone, None, kafka)
            return
        name = f"bench-{next(NUMBERS)}"
        flush = ["--flush", SYNC] if variant == BOTH else []
        owner = stack.enter_context(BrokerOnKafka(path / "owner", kafka, name, *flush))
        owner.start()
        make_topic(owner.endpoint)
        standby = None
        if variant == STANDBY:
            standby = stack.enter_context(BrokerOnKafka(path / "standby", kafka, name))
            standby.spawn()
            standby.wait_warm()
        yield Party(owner, standby, kafka)


def measure_at_once(party: Party, seconds: float) -> Sends:
    """Measure as many sends as there may be, so many calls at a time."""
    os.sync()  # what was written before is not to be in the way
    standby_s, before = party.standby_used_s(), party.used_s()
    figures = send_lone([party.owner.endpoint], seconds)
    return taken(figures["per_second"], figures, party, before, standby_s)


def measure_steady(party: Party, seconds: float) -> Sends:
    """Measure sends at a pace that leaves the broker calm."""
    os.sync()
    with sending(party.owner.endpoint, PER_SECOND) as sends:
        time.sleep(SETTLE_S)
        standby_s = party.standby_used_s()
        figures_of(sends)  # those until now do not count
        before, began_s = party.used_s(), time.perf_counter()
        time.sleep(seconds * STEADY_TIMES)
        figures = figures_of(sends)
        per_second = figures["sent"] / (time.perf_counter() - began_s)
        return taken(per_second, figures, party, before, standby_s)


def taken(
    per_second: float,
    figures: Mapping[str, float],
    party: Party,
    before: tuple[float, float],
    standby_s: float,
) -> Sends:
    """Return what sends took, of processes that had used so much of CPU before."""
    owner_s, kafka_s = (now - then for now, then in zip(party.used_s(), before, strict=True))
    standby_s = party.standby_used_s() - standby_s
    us = (each / figures["sent"] * 1e6 for each in (owner_s, kafka_s, standby_s))
    return Sends(per_second, figures["p50 ms"], figures["p99 ms"], *us)


LOADS: Final = {AT_ONCE: measure_at_once, STEADY: measure_steady}


def measure(kafka: KafkaCluster, rounds: int, seconds: float) -> Found:
    """Measure all variants in turns; before, Kafka is warmed up."""
    with serving(KAFKA, kafka) as party:
        measure_at_once(party, seconds)
    print("replicas: Kafka is warm", flush=True)
    found: dict[str, dict[str, list[Sends]]] = {what: defaultdict(list) for what in LOADS}
    for number in range(rounds):
        for variant in VARIANTS:
            with serving(variant, kafka) as party:
                for what, measure_load in LOADS.items():
                    sends = measure_load(party, seconds)
                    found[what][variant].append(sends)
                    print(
                        f"replicas, round {number + 1}: {variant}, {what}: "
                        f"{sends.per_second:,.0f} sends/s, {sends.cpu_us:.0f} us of CPU a send "
                        f"(Kafka {sends.kafka_us:.0f}, standby {sends.standby_us:.0f}), "
                        f"p99 {sends.p99_ms:.1f} ms", flush=True,
                    )  # fmt: skip
    return found


def promises(found: Found) -> dict[str, dict[str, Bound]]:
    """Return what is promised, by load."""
    return {what: bounds(of, SYNC, PROMISED, what) for what, of in found.items()}


def text(found: Found, nodes: int) -> Iterator[str]:
    """Yield a table for each load, and what they are of."""
    yield (
        "**Replicas.** One message a call, 1 KiB; a broker with flush `sync` or `sync-strict` "
        f"beside one whose log Kafka keeps ({nodes} {'node' if nodes == 1 else 'nodes'}, here), "
        "all on the same cores. CPU of the broker; Kafka's, a JVM as the tests start it, beside it."
    )
    for what, kept in promises(found).items():
        yield ""
        yield from table((what, *HEAD), [row(name, found[what], kept) for name in found[what]])


def row(name: str, of: Mapping[str, Sequence[Sends]], kept: Mapping[str, Bound]) -> list[str]:
    """Return the cells of a variant."""
    sends = medians(of[name])
    with_kafka = name not in FLUSHES
    share = [each.standby_us / each.cpu_us for each in of[name]]
    return [
        *send_cells(f"`{name}`" if name in FLUSHES else name, sends),
        *(kept[name].cells() if name in kept else (spread(factors(of[name], of[SYNC])), "")),
        shown(sends.kafka_us) if with_kafka else "",
        shown(sends.standby_us) if sends.standby_us else "",
        spread(share) if sends.standby_us else "",
    ]
