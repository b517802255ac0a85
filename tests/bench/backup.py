"""What a backup does to sends: how long they take beside one, and alone.

    make bench-backup GB=10                         an hour, 34 GB of disk
    make bench-backup GB=2 PAIRS=2                  a quick look
    make bench-backup OPTIONS="--through-broker"    what else `latermq backup` is told

Sends go on at a steady pace, whether or not earlier ones are answered: what stalls counts. For each
window with a backup there is one as long without, by turns before and behind it. A full backup goes
to a fresh directory, an incremental one to the same when the log has grown by a twentieth. The log
is not in memory when a window begins, as if it had been written days ago. Ends with exit code 1
where full backups lengthen the 99th percentile by more than is promised.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from bench.cases.broker import KIB, TOPIC, cpu_s, load
from bench.cases.engine import scratch
from bench.children import environment, figures_of
from bench.suite import machine, shown
from latermq_text.version import own_version
from support.broker_process import BrokerProcess
from support.wire_client import WireClient

GB: Final = 1_000_000_000
MB: Final = 1_000_000
P99_TIMES_MAX: Final = 1.2
PAIRS: Final = 5
GROWTH: Final = 0.05  # of the log, from a full backup to the incremental one
PER_SECOND: Final = 500
CONNECTIONS: Final = 4
FILL_BATCH: Final = 100
FILL_BODY_BYTES: Final = 32 * KIB
SETTLE_S: Final = 5.0
SPACE_TIMES: Final = 3  # of the log: itself, a copy, and what both grow by
SPACE_SPARE_BYTES: Final = 4 * GB
# How full this machine's disk is besides is no part of what is measured.
CONFIG: Final = "[store]\ndisk_low_percent = 1\ndisk_full_percent = 1\n"
HEAD: Final = (
    "backup", "first", "MB", "MB/s", "p50 ms alone", "beside", "p99 ms alone", "beside", "times",
    "max ms alone", "beside", "broker's CPU % alone", "beside",
)  # fmt: skip


class Window(NamedTuple):
    """A stretch of time."""

    seconds: float
    copied_bytes: int
    cpu_percent: float  # of a core, by the broker
    sends: dict[str, float]


class Pair(NamedTuple):
    """A window with a backup, and one without."""

    alone: Window
    beside: Window
    first: str

    @property
    def p99_times(self) -> float:
        return self.beside.sends["p99 ms"] / self.alone.sends["p99 ms"]

    def figures(self) -> Iterator[float]:
        """Yield what the table says, from the megabytes on."""
        yield self.beside.copied_bytes / MB
        yield self.beside.copied_bytes / MB / self.beside.seconds
        both = (self.alone, self.beside)
        yield from (each.sends["p50 ms"] for each in both)
        yield from (each.sends["p99 ms"] for each in both)
        yield self.p99_times
        yield from (each.sends["max ms"] for each in both)
        yield from (each.cpu_percent for each in both)


class Bench:
    """A broker to which sends go all the time, and a place for its backups.

    Args:
        options: of `latermq backup`.
    """

    def __init__(
        self, broker: BrokerProcess, sends: "subprocess.Popen[str]", options: Sequence[str]
    ) -> None:
        self.place = broker.data_dir.with_name("backup")
        self._broker = broker
        self._sends = sends
        self._options = options

    def pair(self, alone_s: float) -> Pair:
        """Measure one backup.

        Args:
            alone_s: the window without is first, and so long; 0: it is second, and as long as the
                other was.
        """
        if alone_s:
            return Pair(self._window(alone_s), self._window(), "alone")
        beside = self._window()
        return Pair(self._window(beside.seconds), beside, "beside")

    def _window(self, alone_s: float = 0) -> Window:
        """Measure so long without a backup; 0: as long as one takes."""
        self._settle()
        figures_of(self._sends)
        used_s, began_s = cpu_s(self._broker.pid), time.perf_counter()
        copied_bytes = 0
        if alone_s:
            time.sleep(alone_s)
        else:
            copied_bytes = self._back_up()
        seconds = time.perf_counter() - began_s
        used_s = cpu_s(self._broker.pid) - used_s
        return Window(seconds, copied_bytes, used_s / seconds * 100, figures_of(self._sends))

    def _settle(self) -> None:
        """Have the disk end what was begun, and the memory forget the log."""
        os.sync()
        for segment in (self._broker.data_dir / "log").glob("*.seg"):
            with segment.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        time.sleep(SETTLE_S)

    def _back_up(self) -> int:
        """Run the command; return how many bytes it copied."""
        words = ["backup", "take", str(self.place), "--endpoint", self._broker.endpoint, "--json"]
        command = [sys.executable, "-m", "latermq_cli", *words, *self._options]
        ended = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        copied: int = json.loads(ended.stdout)["copied_bytes"]
        return copied


@contextmanager
def sending(endpoint: str, per_second: int = PER_SECOND) -> Iterator["subprocess.Popen[str]"]:
    """Have messages sent at a steady pace by a process of its own."""
    spec = {
        "load": "steady", "endpoint": endpoint, "topic": TOPIC, "body_bytes": KIB,
        "per_second": per_second, "connections": CONNECTIONS,
    }  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "bench.load_process", json.dumps(spec)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(),
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def fill(endpoint: str, count_bytes: float) -> None:
    """Let the log grow by so many bytes."""
    batches = max(1, round(count_bytes / FILL_BATCH / FILL_BODY_BYTES))
    load(endpoint, "fill", count=batches * FILL_BATCH, body_bytes=FILL_BODY_BYTES)


def measure(
    broker: BrokerProcess, gb: float, pairs: int, options: Sequence[str]
) -> tuple[list[Pair], ...]:
    """Return the pairs of full backups, and those of incremental ones."""
    full: list[Pair] = []
    incremental: list[Pair] = []
    with sending(broker.endpoint) as sends:
        bench = Bench(broker, sends, options)
        for number in range(pairs):
            alone_first = number % 2
            full.append(bench.pair(alone_first and full[-1].beside.seconds))
            told("full", full[-1])
            fill(broker.endpoint, gb * GROWTH * GB)
            incremental.append(bench.pair(alone_first and incremental[-1].beside.seconds))
            told("incremental", incremental[-1])
            shutil.rmtree(bench.place)
    return full, incremental


def told(kind: str, pair: Pair) -> None:
    """Print a pair while the next is measured."""
    late_ms = max(each.sends["load late ms"] for each in (pair.alone, pair.beside))
    p99s_ms = " and ".join(f"{each.sends['p99 ms']:.2f}" for each in (pair.alone, pair.beside))
    print(
        f"{kind} backup: {pair.beside.seconds:.1f} s, p99 {p99s_ms} ms, {pair.p99_times:.2f} "
        f"times; the load itself was late by {late_ms:.1f} ms (p99)", flush=True,
    )  # fmt: skip


def table(kind: str, pairs: Iterable[Pair]) -> Iterator[str]:
    """Yield a row for each pair, and the medians."""
    rows = [(pair.first, tuple(pair.figures())) for pair in pairs]
    medians = tuple(
        statistics.median(column) for column in zip(*(row for _, row in rows), strict=True)
    )
    for first, row in (*rows, ("**medians**", medians)):
        yield f"| {' | '.join((kind, first, *map(shown, row)))} |"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gb", type=float, default=10)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("options", nargs="*")
    arguments = parser.parse_args()
    with scratch() as path, BrokerProcess(path / "data", config=CONFIG) as broker:
        free, needed = shutil.disk_usage(path).free, SPACE_TIMES * arguments.gb * GB
        needed += SPACE_SPARE_BYTES
        print(f"{path}: {needed / GB:.1f} GB are needed, {free / GB:.1f} are free", flush=True)
        if free < needed:
            print("TMPDIR may name a directory on another disk", file=sys.stderr)
            return 2
        conditions = list(machine(f"{arguments.gb:g} GB"))
        broker.start()
        with WireClient(broker.endpoint) as wire:
            wire.create_topic(TOPIC)
        began_s, left = time.perf_counter(), arguments.gb
        while left > 0:
            fill(broker.endpoint, min(left, 1) * GB)
            left -= 1
            print(f"{arguments.gb - max(left, 0):g} GB in the log", flush=True)
        print(f"filled in {time.perf_counter() - began_s:.0f} s", flush=True)
        full, incremental = measure(broker, arguments.gb, arguments.pairs, arguments.options)
    print("", *conditions, f"- {own_version()}, {PER_SECOND} sends a second", "", sep="\n")
    print(f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|", sep="\n")
    print(*table("full", full), *table("incremental", incremental), sep="\n")
    times = statistics.median(pair.p99_times for pair in full)
    kept = times <= P99_TIMES_MAX
    print(f"\np99 beside a full backup: {times:.2f} times, promised {P99_TIMES_MAX}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
