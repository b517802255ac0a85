"""Runs the cases, compares them with the last run, and writes docs/benchmarks.md, or its like for
the compiled broker."""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from bench.cases import broker, engine, idle, leases, lone, sdk, store, timers
from bench.measured import HIGHER, Result
from latermq_text.version import is_compiled

MODULES: Final = (broker, lone, idle, engine, leases, store, timers, sdk)
ROOT: Final = Path(__file__).resolve().parents[2]
COMPILED: Final = is_compiled()
PAGE: Final = ROOT / "docs" / ("benchmarks-compiled.md" if COMPILED else "benchmarks.md")
HISTORY: Final = ROOT / "docs" / "benchmarks-history.md"
LAST: Final = ROOT / ".cache" / PAGE.with_suffix(".jsonl").name
KEPT: Final = "<!-- From here on `make bench` keeps what stands here. -->"
CALM_LOAD: Final = 0.5  # a load average above it: somebody else is at work
WORTH_TELLING: Final = 0.1  # a change against the last run

OF_THIS: Final = (
    "The compiled broker; [benchmarks.md](benchmarks.md) has the same in plain Python."
    if COMPILED
    else "The broker in plain Python; `make bench NATIVE=1` writes `benchmarks-compiled.md`."
)
SHORT: Final = {  # a case and a figure of it ("": its value), and the head of its column
    ("send_async", ""): "sends/s",
    ("send_async", "broker CPU us"): "CPU µs",
    ("send_batch_async", ""): "in batches/s",
    ("receive_ack", ""): "received and acked/s",
    ("receive_ack", "broker CPU us"): "CPU µs",
    ("wake", ""): "wake p99 ms",
    ("late", ""): "late p99 ms",
    ("ready_killed", ""): "ready after kill s",
    ("lone: send, with a key and properties", ""): "lone send, k instr.",
    ("lone: send, and the receive that waits for it", ""): "lone send to reply, k instr.",
    ("lone: acknowledge", ""): "lone ack, k instr.",
}
HISTORY_HEAD: Final = f"""\
# Benchmarks, run by run

One line for each whole run of `make bench`, the newest last; machines differ and are rarely calm,
so compare what stands near each other. Instructions do not depend on the load.

| date | commit | build | run | machine | load | {" | ".join(SHORT.values())} |
|{"---|" * (6 + len(SHORT))}
"""
INTRODUCTION: Final = f"""\
# Benchmarks

{OF_THIS}

Written by `make bench` (minutes; `make bench BENCH=full`, most of an hour: more and longer runs,
a million messages where this has 100,000, and ten million that wait). Each figure is the
median of several runs; the load comes from a second process on the same machine, over one gRPC
connection on the loopback, and shares the cores with the broker. CPU figures are for one message;
they move less than rates do when somebody else is at work.
"""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="run.py", description=__doc__)
    parser.add_argument("--full", action="store_true", help="more and longer runs")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with TEXT in their name")
    parser.add_argument("--no-page", action="store_true", help="leave the page alone")
    options = parser.parse_args(words)
    mode = "full" if options.full else "quick"
    load = os.getloadavg()[0]
    calm = load <= CALM_LOAD
    conditions = list(machine(mode))
    last = last_run(mode)
    results = []
    for result in every_case(options.full, options.only):
        results.append(result)
        line = result.as_json(mode)
        if result.case in last:
            line["last"] = last[result.case]["value"]
        print(json.dumps(line), flush=True)
    if not results:
        print(f"no case has {options.only!r} in its name", file=sys.stderr)
        return 2
    remember(mode, {**last, **{one.case: one.as_json(mode) for one in results}})
    lines = [INTRODUCTION, *conditions, "", *table(results, last), *beside(results)]
    lines += [f"\n{one.text}" for one in results if one.text]
    page = "\n".join([*lines, ""])
    print("\n" + page)
    if not options.no_page and not options.only:
        PAGE.write_text(page + kept(), encoding="utf-8")
        add_to_history(results, mode, load)
    broken = [one for one in results if one.holds is False]
    for one in broken:
        print(f"not kept: {one.what}: {shown(one.value)} {one.unit}, promised {one.bound}")
    return 1 if broken and calm else 0  # what a busy machine breaks is no news


def every_case(full: bool, only: str) -> Iterator[Result]:
    """In the order of the table; with `only`, unwanted groups of cases are not even run."""
    for module in MODULES:
        for names, run in module.groups(full):
            if any(only in name for name in names):
                yield from (result for result in run() if only in result.case)


def add_to_history(results: Iterable[Result], mode: str, load: float) -> None:
    """Append a line to the page that is kept over the runs."""
    figures: dict[tuple[str, str], float] = {}
    for result in results:
        figures[result.case, ""] = result.value
        figures.update({(result.case, name): value for name, value in result.details.items()})
    cells = [
        f"{datetime.now(UTC):%Y-%m-%d %H:%M}", commit(), "compiled" if COMPILED else "plain", mode,
        f"{processor()}, {os.cpu_count()} cores", f"{load:.1f}",
        *(shown(figures[key]) if key in figures else "" for key in SHORT),
    ]  # fmt: skip
    page = HISTORY.read_text(encoding="utf-8") if HISTORY.exists() else HISTORY_HEAD
    HISTORY.write_text(f"{page}| {' | '.join(cells)} |\n", encoding="utf-8")


def kept() -> str:
    """Return the page's sections that other measurements wrote."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    _, mark, sections = text.partition(f"{KEPT}\n")
    return mark and f"\n{mark}{sections}"


def machine(mode: str) -> Iterator[str]:
    """Where and when, as list items."""
    load = os.getloadavg()[0]
    now = datetime.now(UTC)
    yield f"- {now:%Y-%m-%d %H:%M} UTC, commit {commit()}, {mode} run"
    kernel = f"{platform.system()} {platform.release()}"
    yield f"- {processor()}, {os.cpu_count()} cores, {memory_gib():.0f} GiB; {kernel}"
    packages = ", ".join(f"{name} {version(name)}" for name in ("grpcio", "protobuf", "uvloop"))
    yield f"- Python {platform.python_version()}, {packages}"
    if load > CALM_LOAD:
        yield f"- **noisy: the machine was not calm** (load average {load:.1f} at the beginning)"
    else:
        yield f"- calm (load average {load:.1f} at the beginning)"


def commit() -> str:
    """Short, with a plus sign when files differ from it."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=10"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return ended.stdout.strip() or "unknown"


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)


def last_run(mode: str) -> dict[str, dict[str, Any]]:
    """The last results of this mode, by case."""
    if not LAST.exists():
        return {}
    lines = [json.loads(line) for line in LAST.read_text(encoding="utf-8").splitlines()]
    return {line["case"]: line for line in lines if line["mode"] == mode}


def remember(mode: str, lines: dict[str, dict[str, Any]]) -> None:
    other = "full" if mode == "quick" else "quick"
    kept = [*last_run(other).values(), *lines.values()]
    LAST.parent.mkdir(exist_ok=True)
    LAST.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")


def table(results: Iterable[Result], last: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield "| case | median | runs | also | promised | against the last run |"
    yield "|---|---|---|---|---|---|"
    for one in results:
        spread = f"{shown(min(one.runs))} … {shown(max(one.runs))}" if len(one.runs) > 1 else "one"
        also = ", ".join(f"{name} {shown(value)}" for name, value in one.details.items())
        kept = {None: "", True: " ✓", False: " ✗"}[one.holds]
        change = compared(one, last[one.case]["value"]) if one.case in last else ""
        cells = (one.what, f"{shown(one.value)} {one.unit}", spread, also, one.bound + kept, change)
        yield f"| {' | '.join(cells)} |"


def beside(results: Iterable[Result]) -> Iterator[str]:
    """Ours and what the throw-away prototype took, of which the design was made."""
    shown_ones = [one for one in results if one.prototype]
    if not shown_ones:
        return
    yield "\n## Beside the prototype\n"
    yield "The store was designed with a throw-away prototype, measured alone on the same kind of"
    yield "machine; its figures have a spread of 30 to 50 %.\n"
    yield "| case | ours | prototype | where ours is slower |"
    yield "|---|---|---|---|"
    for one in shown_ones:
        yield f"| {one.what} | {shown(one.value)} {one.unit} | {one.prototype} | {one.why} |"


def compared(result: Result, before: float) -> str:
    if not before:
        return ""
    change = result.value / before - 1
    if abs(change) < WORTH_TELLING:
        return "same"
    word = "better" if (change > 0) == (result.better == HIGHER) else "worse"
    return f"{change:+.0%} {word}"


def shown(value: float) -> str:
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value == int(value) else f"{value:.3g}"
