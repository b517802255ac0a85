"""Much that waits: what a delayed message costs in memory and time, and how late it comes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.cases.broker import load, running
from bench.cases.engine import scratch
from bench.children import environment
from bench.measured import HIGHER, LOWER, Group, Result, medians, repeated
from latermq_text.version import is_compiled

STEP_TIMEOUT_S: Final = 1_800
RATES: Final = (1_000, 5_000, 10_000, 20_000)  # due in a second
RATE_PROMISED: Final = 10_000
LATE_MS_PROMISED: Final = 50
RSS_MIB_PROMISED: Final = 300
INSERTS_PROMISED: Final = 100_000
INSERT_WHY: Final = "the prototype only put entries into its timer; here each is a whole message"
LATE_WHY: Final = (
    "a tick fires 100, some 1 ms, then calls have their turn: bursts take longer, sends do not"
)


def step(name: str, directory: Path, **fields: Any) -> dict[str, float]:
    spec = {"step": name, "directory": str(directory), **fields}
    ended = subprocess.run(
        [sys.executable, "-m", "bench.timers_process", json.dumps(spec)],
        stdout=subprocess.PIPE, text=True, check=True, timeout=STEP_TIMEOUT_S,
        env=environment(),
    )  # fmt: skip
    figures: dict[str, float] = json.loads(ended.stdout)
    return figures


def waiting(count: int, runs: int, seconds: int) -> Iterator[Result]:
    """Fill a directory with `count` delayed messages; reopen it; have others come due beside."""
    shown = f"{count // 1_000_000} M" if count >= 1_000_000 else f"{count:,}"
    with scratch() as path:
        data = path / "data"
        filled = step("fill", data, count=count)
        again = repeated(runs, partial(step, "reopen", data, count=count))
        late = {
            rate: repeated(runs, partial(step, "lateness", data, rate=rate, seconds=seconds))
            for rate in (
                [] if is_compiled() else RATES
            )  # it puts a method of its own into the core
        }
    per_second = 1e6 / filled["CPU us"]
    yield Result(
        case=f"timers_insert_{count}", what=f"timers: delayed sends, {shown}, 100 a call",
        unit="messages/s of CPU", better=HIGHER, runs=(per_second,),
        details={"with checkpoints and merges": filled["per_second"], "CPU us": filled["CPU us"]},
        bound=f"≥ {INSERTS_PROMISED:,}", holds=per_second >= INSERTS_PROMISED,
        prototype="290,000", why=INSERT_WHY,
    )  # fmt: skip
    yield Result(
        case=f"timers_rss_{count}", what=f"timers: memory while {shown} wait", unit="MiB",
        better=LOWER, runs=(filled["RSS MiB"],), bound=f"< {RSS_MIB_PROMISED}",
        holds=filled["RSS MiB"] < RSS_MIB_PROMISED, prototype="21 (10 M over 24 h)",
        why="the whole engine is in it: catalogue, log, buffers of a checkpoint",
    )  # fmt: skip
    yield Result(
        case=f"timers_reopen_{count}", what=f"timers: reopen with {shown}", unit="s", better=LOWER,
        runs=again["s"], details={"RSS MiB": medians(again)["RSS MiB"]}, bound="< 1",
        holds=sorted(again["s"])[runs // 2] < 1, prototype="0.0001 … 0.0009",
        why="the prototype opened the timer alone; here a checkpoint, queue files and the log too, "
        "and every run is verified",
    )  # fmt: skip
    for rate, values in late.items():
        p99, early = values.pop("p99 ms"), values.pop("early")
        promised = rate <= RATE_PROMISED
        yield Result(
            case=f"timers_late_{rate}_{count}",
            what=f"timers: lateness at {rate:,} due in a second beside {shown}: p99", unit="ms",
            better=LOWER, runs=p99, details={**medians(values), "early": max(early)},
            bound=f"< {LATE_MS_PROMISED}, none early" if promised else "none early",
            holds=not max(early) and (not promised or sorted(p99)[runs // 2] < LATE_MS_PROMISED),
            prototype="p50 0.3 … 0.8, p99 0.6 … 12" if rate == RATE_PROMISED else "", why=LATE_WHY,
        )  # fmt: skip


def ran_and_waited_s(pid: int) -> tuple[float, float]:
    """CPU time of a process's main thread, and how long it was ready and had no core."""
    words = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
    return int(words[0]) / 1e9, int(words[1]) / 1e9


def burst(count: int) -> Iterator[Result]:
    """`count` messages of one instant come due while others are sent: how both fare."""
    with running() as broker:
        calm = load(broker.endpoint, "burst", count=0, lead_ms=0, pause_ms=5)
        before = ran_and_waited_s(broker.pid)
        figures: dict[str, Any] = load(
            broker.endpoint, "burst", count=count, lead_ms=3_000 + count // 8, pause_ms=5
        )
        ran, waited = (
            now - then for now, then in zip(ran_and_waited_s(broker.pid), before, strict=True)
        )
    rows = figures.pop("timeline")
    lines = [
        f"{count:,} messages of one instant, one send each 5 ms beside them "
        f"(calm: p50 {calm['p50 ms']:.3g} ms, p99 {calm['p99 ms']:.3g} ms, "
        f"max {calm['max ms']:.3g} ms):",
        "",
        "| seconds after | came due | sends: p50 ms | p99 ms | max ms |",
        "|---|---|---|---|---|",
        *(
            f"| {row['at_s']:.3g} | {row['due']:,.0f} | {row['p50 ms']:.3g} | {row['p99 ms']:.3g} "
            f"| {row['max ms']:.3g} |"
            for row in rows
        ),
    ]
    yield Result(
        case=f"timers_burst_{count}", what=f"timers: {count:,} of one instant come due",
        unit="messages/s", better=HIGHER, runs=(figures["per_second"],),
        details={"sends p50 ms": figures["p50 ms"], "sends p99 ms": figures["p99 ms"],
                 "sends max ms": figures["max ms"], "calm p99 ms": calm["p99 ms"],
                 "waited for a core, % of CPU used": waited / ran * 100},
        text="\n".join(lines),
    )  # fmt: skip


def groups(full: bool) -> Iterator[Group]:
    """The cases of this module."""
    for count in (1_000_000, 10_000_000) if full else (100_000,):
        names = [f"timers_{name}_{count}" for name in ("insert", "rss", "reopen")]
        names += [f"timers_late_{rate}_{count}" for rate in RATES]
        yield tuple(names), partial(waiting, count, 3 if full else 1, 10 if full else 3)
    count = 500_000 if full else 50_000
    yield (f"timers_burst_{count}",), partial(burst, count)
