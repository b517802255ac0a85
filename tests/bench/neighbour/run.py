"""How long a neighbour's sends take beside what others ask of the same broker, and alone.

    make bench-neighbour                              half an hour: plain and compiled, in turns
    make bench-neighbour OPTIONS="--size 1"           a million that wait, 100,000 letters
    make bench-neighbour OPTIONS="--only scrapes"     these jobs; others: --help

For each window beside a job there is one alone, right before it. The table is in
docs/benchmarks.md. Ends with exit code 1 where a neighbour waits for longer than is promised, or
where a job gets less than its share.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

from bench.cases.broker import cpu_s
from bench.cases.engine import scratch
from bench.children import TESTS, environment, figures_of
from bench.neighbour import tables, users
from bench.neighbour.jobs import CALLS
from bench.suite import machine, shown
from support.broker_process import BrokerProcess
from support.cluster_process import free_ports

BUILDS: Final = ("plain", "compiled")
SITE: Final = TESTS.parent / ".native" / "site"
PAGE: Final = TESTS.parent / "docs" / "benchmarks.md"
TITLE: Final = "## A neighbour of much work"
JOBS: Final = (*CALLS, "backups", "scrapes")
EVERYTHING: Final = "all of these at once"
PER_SECOND: Final = 50
SETTLE_S: Final = 1.0
QUIET_SHARE: Final = 0.1  # of a core
QUIET_WAIT_S: Final = 60.0
P50_TIMES_MAX: Final = 1.5
P99_TIMES_MAX: Final = 2.0
SHARE_MIN: Final = 0.15
HEAD: Final = (
    "beside", "build", "p50 ms alone", "beside", "times", "p99 ms alone", "beside", "times",
    "arrival p99 ms alone", "beside", "the job's share of a core", "",
)  # fmt: skip


class Window(NamedTuple):
    figures: dict[str, float]
    cpu_share: float  # of a core, by the broker


class Jobs:
    """The process that does them, and what it told at its end."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def end(self) -> dict[str, int]:
        """Return how many of each job were done. Raises RuntimeError: it had ended before."""
        if (code := self._process.poll()) is not None:
            raise RuntimeError(f"the jobs ended with {code}")
        self._process.terminate()
        assert self._process.stdout is not None
        done: dict[str, int] = json.loads(self._process.stdout.readline())
        return done


class Case(NamedTuple):
    """One job beside one build: the medians of its windows."""

    job: str
    build: str
    alone: dict[str, float]
    beside: dict[str, float]
    share: float

    def times(self, name: str) -> float:
        return self.beside[name] / self.alone[name]

    @property
    def holds(self) -> bool:
        return (
            self.times("p50 ms") <= P50_TIMES_MAX
            and self.times("p99 ms") <= P99_TIMES_MAX
            and (self.share >= SHARE_MIN or self.job == "backups")  # it mostly waits for itself
        )

    def row(self) -> str:
        figures = [
            self.alone["p50 ms"], self.beside["p50 ms"], self.times("p50 ms"),
            self.alone["p99 ms"], self.beside["p99 ms"], self.times("p99 ms"),
            self.alone["arrival p99 ms"], self.beside["arrival p99 ms"], self.share,
        ]  # fmt: skip
        cells = [self.job, self.build, *map(shown, figures), "✓" if self.holds else "missed"]
        return f"| {' | '.join(cells)} |"


class Broker(NamedTuple):
    """One build, serving."""

    build: str
    process: BrokerProcess
    metrics: str

    def window(self, sends: "subprocess.Popen[str]", seconds: float) -> Window:
        figures_of(sends)
        used_s, began_s = cpu_s(self.process.pid), time.perf_counter()
        time.sleep(seconds)
        figures = figures_of(sends)
        used_s = cpu_s(self.process.pid) - used_s
        return Window(figures, used_s / (time.perf_counter() - began_s))

    def wait_quiet(self) -> None:
        """Wait until what was asked before is over: its caller has gone."""
        until_s = time.monotonic() + QUIET_WAIT_S
        while time.monotonic() < until_s:
            before_s = cpu_s(self.process.pid)
            time.sleep(SETTLE_S)
            if (cpu_s(self.process.pid) - before_s) / SETTLE_S < QUIET_SHARE:
                return
        raise RuntimeError(f"the broker still works {QUIET_WAIT_S:.0f} s after its caller went")

    def pair(self, names: Sequence[str], seconds: float) -> tuple[Window, Window]:
        """Measure alone, then beside these jobs."""
        self.wait_quiet()
        with neighbour(self.process.endpoint) as sends:
            time.sleep(SETTLE_S)
            alone = self.window(sends, seconds)
            with working(self.process.endpoint, self.metrics, names) as jobs:
                time.sleep(SETTLE_S)
                beside = self.window(sends, seconds)
                done = jobs.end()
                if len(names) > 1:
                    print(f"{self.build}: done in {seconds:g} s: {done}", file=sys.stderr)
        return alone, beside


@contextmanager
def neighbour(endpoint: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "bench.neighbour.sends", endpoint, str(PER_SECOND)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def working(endpoint: str, metrics: str, names: Sequence[str]) -> Iterator[Jobs]:
    """Have these jobs done, by a process behind in line for the cores: the broker is measured."""
    command = [
        "nice",
        "-n",
        "19",
        sys.executable,
        "-m",
        "bench.neighbour.jobs",
        endpoint,
        metrics,
        *names,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield Jobs(process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it started, too


def case(job: str, build: str, pairs: Sequence[tuple[Window, Window]]) -> Case:
    def medians(windows: Sequence[Window]) -> dict[str, float]:
        names = windows[0].figures
        return {name: statistics.median(each.figures[name] for each in windows) for name in names}

    alone, beside = ([pair[at] for pair in pairs] for at in (0, 1))
    share = statistics.median(two.cpu_share - one.cpu_share for one, two in pairs)
    return Case(job, build, medians(alone), medians(beside), share)


@contextmanager
def serving(builds: Sequence[str], sizes: tables.Sizes) -> Iterator[list[Broker]]:
    """A broker of each build, each on a directory of its own with the same content."""
    with scratch() as path, ExitStack() as stack:
        prepared = path / "prepared"
        with process(builds[-1], prepared, "127.0.0.1:0", users.CONFIG_OF_PREPARING) as first:
            users.create(first.start().endpoint)
            tables.prepare(first.endpoint, sizes)
            first.terminate()
        brokers = []
        for build in builds:
            data = path / build
            shutil.copytree(prepared, data)
            metrics = f"127.0.0.1:{free_ports(1)[0]}"
            broker = stack.enter_context(process(build, data, metrics))
            brokers.append(Broker(build, broker.start(), metrics))
        yield brokers


def process(build: str, data: Path, metrics: str, config: str = users.CONFIG) -> BrokerProcess:
    search = [str(SITE)] if build == "compiled" else []
    path = os.pathsep.join([*search, str(TESTS)])
    config = f'{config}[metrics]\nlisten = "{metrics}"\n'
    return BrokerProcess(data, config=config, prefix=("env", f"PYTHONPATH={path}"))


def measure(
    brokers: Sequence[Broker], jobs: Sequence[str], pairs: int, seconds: float
) -> Iterator[Case]:
    for job in jobs:
        names = JOBS if job == EVERYTHING else (job,)
        measured: dict[str, list[tuple[Window, Window]]] = {each.build: [] for each in brokers}
        for _, broker in product(range(pairs), brokers):
            measured[broker.build].append(broker.pair(names, seconds))
        for build, windows in measured.items():
            yield case(job, build, windows)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make bench-neighbour")
    parser.add_argument("--size", type=float, default=0.1, help="of what stands in the broker")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="of a window")
    parser.add_argument("--only", default="", help="jobs, between commas")
    parser.add_argument("--builds", default=",".join(BUILDS))
    parser.add_argument("--page", action="store_true", help="write the table into the page")
    asked = parser.parse_args(words)
    jobs = asked.only.split(",") if asked.only else [*JOBS, EVERYTHING]
    builds = asked.builds.split(",")
    if unknown := [*({*jobs} - {*JOBS, EVERYTHING}), *({*builds} - {*BUILDS})]:
        parser.error(f"no such job or build: {', '.join(unknown)}")
    rows = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    print("\n".join(rows), flush=True)
    missed = 0
    with serving(builds, tables.FULL.times(asked.size)) as brokers:
        for each in measure(brokers, jobs, asked.pairs, asked.seconds):
            rows.append(each.row())
            print(rows[-1], flush=True)
            missed += not each.holds
    if asked.page:
        write(rows, asked)
    return 1 if missed else 0


def write(rows: Sequence[str], asked: argparse.Namespace) -> None:
    """Put the table where the last one stood."""
    sizes = tables.FULL.times(asked.size)
    words = (
        f"{PER_SECOND} sends of 1 kB a second by one user, and their arrival at its handler, "
        f"beside what another user has done: `make bench-neighbour` with `--size {asked.size:g}`, "
        f"{asked.pairs} windows of {asked.seconds:g} s each, with {sizes.waiting:,} messages in "
        f"consumers' hands and {sizes.letters:,} dead letters. Promised: "
        f"p50 ≤ {P50_TIMES_MAX:g} times and p99 ≤ {P99_TIMES_MAX:g} times that of alone, and the "
        f"job has ≥ {SHARE_MIN:.0%} of a core. The other user's process runs at the lowest "
        "priority: it shares the cores with the broker, which is what is measured."
    )
    part = "\n".join([TITLE, "", words, "", *machine("neighbour"), "", *rows, ""])
    page = PAGE.read_text(encoding="utf-8")
    before, found, rest = page.partition(f"{TITLE}\n")
    if not found:
        before, rest = page.rstrip("\n") + "\n\n", ""
    after = rest[rest.index("\n## ") + 1 :] if "\n## " in rest else ""
    PAGE.write_text(before + part + ("\n" + after if after else ""), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
