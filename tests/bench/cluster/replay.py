"""How fast a standby with an empty directory has the owner's log.

It reads the log, which it writes into its directory, and then applies it: then it could take over.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from bench.cases.broker import KIB, load
from bench.cases.engine import scratch
from bench.cluster.meters import used_s
from bench.cluster.on_kafka import SOON_S, BrokerOnKafka
from bench.cluster.shards import make_topic
from bench.cluster.tables import table
from bench.suite import shown
from support.kafka.cluster import KafkaCluster

MB: Final = 1_000_000
BATCH: Final = 100  # messages a call
BATCHES_MAX: Final = 400  # a load, after which the position is looked at
BATCH_BYTES: Final = BATCH * 1_200  # in the log, about
READ_S_A_MB: Final = 1.0  # at most, on any machine
HEAD: Final = (
    "", "MB", "read in s", "MB/s", "could take over after s", "MB/s", "CPU s of the standby",
)  # fmt: skip


class Replay(NamedTuple):
    """One filling of an empty directory, from when the standby begins to follow."""

    mb: float
    read_s: float  # until it has all that the owner had
    warm_s: float  # until it could take over
    cpu_s: float

    def cells(self) -> Iterator[str]:
        """Yield what the table says."""
        yield from map(shown, (self.mb, self.read_s, self.mb / self.read_s))
        yield from map(shown, (self.warm_s, self.mb / self.warm_s, self.cpu_s))


def fill(owner: BrokerOnKafka, size_bytes: int) -> None:
    """Let the log grow to this size."""
    while (left := size_bytes - owner.position) > 0:
        batches = max(1, min(BATCHES_MAX, left // BATCH_BYTES))
        load(owner.endpoint, "fill", count=batches * BATCH, body_bytes=KIB)
        print(f"replay: {owner.position / MB:,.0f} MB in the log", flush=True)


def measure_one(standby: BrokerOnKafka, position: int) -> Replay:
    """Measure one standby that has nothing."""
    patience_s = SOON_S + READ_S_A_MB * position / MB
    standby.spawn()
    standby.wait_following()
    began_s, before_s = time.perf_counter(), used_s([standby.pid])
    standby.wait_position(position, patience_s)
    read_s = time.perf_counter() - began_s
    standby.wait_warm(patience_s)
    warm_s = time.perf_counter() - began_s
    return Replay(position / MB, read_s, warm_s, used_s([standby.pid]) - before_s)


def measure(kafka: KafkaCluster, size_mb: float, rounds: int) -> list[Replay]:
    """Measure so many standbys, one after the other."""
    found = []
    with scratch() as path, BrokerOnKafka(path / "owner", kafka, "bench-replay") as owner:
        owner.start()
        make_topic(owner.endpoint)
        fill(owner, round(size_mb * MB))
        position = owner.position
        for number in range(rounds):
            with scratch() as room, BrokerOnKafka(room / "own", kafka, "bench-replay") as standby:
                replay = measure_one(standby, position)
            found.append(replay)
            print(
                f"replay, round {number + 1}: {replay.mb:,.0f} MB read in {replay.read_s:.1f} s, "
                f"warm after {replay.warm_s:.1f} s", flush=True,
            )  # fmt: skip
    return found


def text(found: Sequence[Replay]) -> Iterator[str]:
    """Yield the table, and what it is of."""
    yield (
        "**Replay.** A standby with an empty directory, from when it begins to follow: until it "
        "has read all that the owner had, and until it has applied it, too (1 KiB a message, in "
        "batches of 100). Kafka has the log in memory; the owner idles."
    )
    yield ""
    rows = [[str(number), *replay.cells()] for number, replay in enumerate(found, 1)]
    middle = Replay(*map(statistics.median, zip(*found, strict=True)))
    yield from table(HEAD, [*rows, ["**medians**", *middle.cells()]])
