"""What shards and replicas cost: `make bench-cluster` prints a section of docs/benchmarks.md.

    make bench-cluster NATIVE=1                         twelve minutes
    make bench-cluster NODES=3 SIZE=1000                three nodes of Kafka; a log of 1,000 MB
    make bench-cluster PARTS="shards growth"            what needs no Kafka

Whoever is compared takes turns, so many rounds; factors are of each round, and the medians stand.
Ends with exit code 1 where a promised bound is not kept, with 2 where there is no Kafka to be had.
"""

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final

from bench.cases.engine import scratch
from bench.cluster import growth, instructions, replay, replication, shards
from bench.cluster.instructions import TOOLS
from bench.cluster.tables import Bound
from bench.suite import machine
from latermq_text.version import is_compiled, own_version
from support.kafka.cluster import KafkaCluster, UnavailableError, fetch

SHARDS, REPLICATION, REPLAY, GROWTH = "shards", "replication", "replay", "growth"
PARTS: Final = (SHARDS, REPLICATION, REPLAY, GROWTH)
ON_KAFKA: Final = {REPLICATION, REPLAY}
TITLE: Final = "## Shards and replicas"

Section = list[str]


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and leave nothing running
    options = options_of()
    parts = options.parts or list(PARTS)
    began_s = time.perf_counter()
    if ON_KAFKA.intersection(parts):
        try:
            fetch()  # now: what follows takes minutes
        except UnavailableError as reason:
            print(f"no Kafka: {reason}", file=sys.stderr)
            return 2
    conditions = [*machine(f"{options.rounds} rounds"), f"- {build()}"]
    sections: list[Section] = []
    kept: list[Bound] = []
    if SHARDS in parts:
        sections.append([*shards.text(shards.measure(options.rounds, options.seconds))])
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if missing:
            print(f"instructions are not counted: no {', '.join(missing)}", file=sys.stderr)
        else:
            counted = instructions.measure()
            sections.append([*instructions.text(counted)])
            kept += instructions.promises(counted).values()
    if ON_KAFKA.intersection(parts):
        more, bounds = on_kafka(parts, options)
        sections += more
        kept += bounds
    if GROWTH in parts:
        sections.append([*growth.text(growth.measure(options.idle), options.idle)])
    print(*page(conditions, sections), sep="\n")
    for bound in kept:
        print(bound.line())
    print(f"took {(time.perf_counter() - began_s) / 60:.0f} min")
    return 0 if all(bound.kept for bound in kept) else 1


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-cluster")
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="of Kafka")
    parser.add_argument("--size", type=float, default=300, help="MB of the log that is replayed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of a load that counts")
    parser.add_argument("--idle", type=float, default=20, help="seconds")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    options = parser.parse_args()
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"no such part: {part}")
    return options


def on_kafka(
    parts: Iterable[str], options: argparse.Namespace
) -> tuple[list[Section], list[Bound]]:
    """Measure the parts that need a Kafka."""
    sections: list[Section] = []
    kept: list[Bound] = []
    with scratch() as path, KafkaCluster(path / "kafka", options.nodes) as kafka:
        kafka.start()
        print(f"Kafka serves, {options.nodes} nodes", flush=True)
        if REPLICATION in parts:
            found = replication.measure(kafka, options.rounds, options.seconds)
            sections.append([*replication.text(found, options.nodes)])
            for of_load in replication.promises(found).values():
                kept += of_load.values()
        if REPLAY in parts:
            sections.append([*replay.text(replay.measure(kafka, options.size, options.rounds))])
    return sections, kept


def build() -> str:
    """Say what was measured."""
    return f"LaterMQ {own_version()}, {'compiled' if is_compiled() else 'plain Python'}"


def page(conditions: Iterable[str], sections: Iterable[Section]) -> Iterator[str]:
    """Yield the section of the page, ready to be put there."""
    yield from ("", TITLE, "", "`make bench-cluster`; its docstrings have the rest.", "")
    yield from conditions
    for section in sections:
        yield ""
        yield from section
    yield ""


if __name__ == "__main__":
    sys.exit(main())
