"""`make bench-worker`: send and consume a pydantic payload, with LaterMQ and with its peers.

For each system, three times, in turns: its broker and its worker start, and a few messages warm
both. The worker is stopped (SIGSTOP), a process sends all messages one after the other, and the
worker goes on until it has done the last; before that, systems with coroutines send 8 and 100 at a
time to a worker that runs. Of each phase: messages a second by the clock, and
microseconds of CPU a message, of all that is at work: sender, worker with its children, broker.
"""

import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[3]
TESTS: Final = ROOT / "tests"
ENVIRONMENTS: Final = ROOT / ".cache" / "bench-worker"  # one each: arq wants an older redis-py
PYDANTIC: Final = "pydantic==2.14.3"
PACKAGES: Final = {  # of LaterMQ: the wheel of `make native`
    "Celery": ["celery[redis]==5.7.0", "packaging==26.3"],
    "dramatiq": ["dramatiq[redis]==2.2.1"],
    "arq": ["arq==0.28.0"],
}
PAGE: Final = ROOT / "docs" / "benchmarks.md"
SECTION: Final = "## A worker beside its peers"
WARM: Final = 20
US: Final = 1_000_000
TOGETHER: Final = (8, 100)  # sends that wait at the same time
AT_ONCE: Final = ("LaterMQ", "arq")  # have them; the others' are no coroutines
PASSES: Final = 3
WAIT_S: Final = 120
TICKS: Final = os.sysconf("SC_CLK_TCK")
REDIS: Final = ("redis-server", "--save", "", "--appendonly", "yes", "--appendfsync", "everysec")
WORKERS: Final = {
    "LaterMQ": ("latermq", "worker", "bench.worker.with_latermq:app"),
    "Celery": ("celery", "-A", "bench.worker.with_celery", "worker", "--loglevel=WARNING"),
    "dramatiq": ("dramatiq", "bench.worker.with_dramatiq"),
    "arq": ("arq", "bench.worker.with_arq.WorkerSettings"),
}


class Phase(NamedTuple):
    """What all messages took, of sending or of working on them."""

    rate: float  # messages a second
    us: float  # of CPU a message: sender or worker
    broker_us: float

    @property
    def cells(self) -> list[str]:
        both = self.us + self.broker_us
        return [f"{self.rate:,.0f}", f"{both:,.0f} = {self.us:,.0f} + {self.broker_us:,.0f}"]


class Measured(NamedTuple):
    """One pass of one system."""

    sent: dict[int, Phase]  # by how many at a time
    worked: Phase


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def processes(session: int) -> dict[int, int]:
    """Map the processes of a session to what they and children that they waited for used of CPU."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session:
            found[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    return found


def cpu_s(session: int) -> float:
    return sum(processes(session).values()) / TICKS


def tell(session: int, number: int) -> None:
    for each in processes(session):
        with suppress(ProcessLookupError):
            os.kill(each, number)


def bin_of(name: str) -> Path:
    return ENVIRONMENTS / name.lower() / "bin"


def installed(name: str) -> None:
    """Make a system's environment, or renew it."""
    ours = [f"{wheel}[broker,worker]" for wheel in (ROOT / ".native" / "dist").glob("*.whl")]
    environment = bin_of(name).parent
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", bin_of(name) / "python", "install", "--quiet",
         "--disable-pip-version-check", "--upgrade", "--force-reinstall", PYDANTIC,
         *PACKAGES.get(name, ours)], check=True,
    )  # fmt: skip


@contextmanager
def running(name: str, *command: str, log: Path, **variables: str) -> Iterator[int]:
    """Run a command in a session of its own, ended at the end; yield the session."""
    path = f"{bin_of(name)}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(TESTS), **variables}
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, cwd=log.parent, env=environment, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process.pid
    finally:
        tell(process.pid, signal.SIGCONT)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        tell(process.pid, signal.SIGKILL)


def until(what: str, size: int, done: Path, log: Path) -> None:
    """Wait until so many are done."""
    end = time.monotonic() + WAIT_S
    while done.stat().st_size < size:
        if time.monotonic() > end:
            raise SystemExit(f"{what}: {done.stat().st_size} of {size}\n{log.read_text()[-3000:]}")
        time.sleep(0.002)


def until_listening(port: int) -> None:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise SystemExit("the broker does not listen")


def measure(name: str, count: int) -> Measured:
    with tempfile.TemporaryDirectory(prefix="bench-worker-") as text:
        folder, port = Path(text), free_port()
        done = folder / "done"
        done.touch()
        variables = {"BENCH_PORT": str(port), "BENCH_DONE": str(done)}
        ours = ("latermq", "serve", "--listen", f"127.0.0.1:{port}", "--data-dir", "data")
        broker = ours if name == "LaterMQ" else (*REDIS, "--port", str(port), "--dir", text)
        module = f"bench.worker.with_{name.lower()}"
        sender: list[str | Path] = [bin_of(name) / "python", "-m", module]
        with running(name, *broker, log=folder / "broker.log") as served:
            until_listening(port)
            log = folder / "worker.log"
            with running(name, *WORKERS[name], log=log, **variables) as worker:

                def send(*words: int) -> Any:
                    sent = subprocess.run(
                        [*sender, *map(str, words)], capture_output=True, text=True, check=False,
                        env={**os.environ, "PYTHONPATH": str(TESTS), **variables}, cwd=folder,
                    )  # fmt: skip
                    if sent.returncode:
                        raise SystemExit(f"{name}: {sent.stderr[-3000:]}")
                    return json.loads(sent.stdout)

                def measured_send(*how: int) -> Phase:
                    before = cpu_s(served)
                    told = send(count, *how)
                    of_broker = (cpu_s(served) - before) / (count + WARM)
                    return Phase(count / told["wall_s"], told["cpu_s"] / count * US, of_broker * US)

                send(WARM)
                total = 2 * WARM
                until(name, total, done, log)
                sent: dict[int, Phase] = {}
                for at_once in TOGETHER if name in AT_ONCE else ():
                    sent[at_once] = measured_send(at_once)
                    total += count + WARM
                    until(name, total, done, log)
                tell(worker, signal.SIGSTOP)
                sent[1] = measured_send()
                total += count + WARM
                before, of_broker = cpu_s(worker), cpu_s(served)
                began = time.perf_counter()
                tell(worker, signal.SIGCONT)
                until(name, total, done, log)
                rate = (count + WARM) / (time.perf_counter() - began)
                cpu, of_broker = cpu_s(worker) - before, cpu_s(served) - of_broker
    us = US / (count + WARM)  # what the sender warmed up with waited for the worker, too
    return Measured(sent, Phase(rate, cpu * us, of_broker * us))


def medians(passes: list[Measured]) -> Measured:
    def median(phases: list[Phase]) -> Phase:
        return Phase(*map(statistics.median, zip(*phases, strict=True)))

    sent = {at_once: median([one.sent[at_once] for one in passes]) for at_once in passes[0].sent}
    return Measured(sent, median([one.worked for one in passes]))


def machine(count: int) -> str:
    """Say where and when, and what was measured."""
    said = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    model = said.partition("model name")[2].partition(":")[2].partition("\n")[0].strip()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    version = subprocess.run(
        [bin_of("LaterMQ") / "latermq", "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commit} ({version}), {os.cpu_count()} cores of "
        f"{model or platform.machine()}, Python {platform.python_version()}, load "
        f"{os.getloadavg()[0]:.1f} at the end; {count:,} messages, median of {PASSES} passes."
    )


def rows(found: dict[str, Measured]) -> Iterator[str]:
    yield (
        "| | sent/s | CPU us: sender + broker | worked/s | CPU us: worker + broker "
        "| sent, then worked/s | CPU us of both |"
    )
    yield "|---|---|---|---|---|---|---|"
    parts = {}
    for name, one in found.items():
        lone, work = one.sent[1], one.worked
        parts[name] = lone.us + lone.broker_us, work.us + work.broker_us
        both = [f"{1 / (1 / lone.rate + 1 / work.rate):,.0f}", f"{sum(parts[name]):,.0f}"]
        yield f"| {' | '.join([name, *lone.cells, *work.cells, *both])} |"
        for at_once in TOGETHER:
            if at_once in one.sent:
                cells = [f"… {at_once} sends at a time", *one.sent[at_once].cells, "", "", "", ""]
                yield f"| {' | '.join(cells)} |"
    yield ""
    ours = parts.pop("LaterMQ")
    yield "What LaterMQ takes of CPU, as a share of what they take: " + "; ".join(
        f"{name}: to send {ours[0] / send:.2f}, to work {ours[1] / work:.2f}, "
        f"both {sum(ours) / (send + work):.2f}"
        for name, (send, work) in parts.items()
    )


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 3_000
    passes: dict[str, list[Measured]] = {name: [] for name in WORKERS}
    for name in WORKERS:
        installed(name)
    for _ in range(PASSES):
        for name, measured in passes.items():
            measured.append(measure(name, count))
            print(name, measured[-1], flush=True)
    found = {name: medians(measured) for name, measured in passes.items()}
    print(machine(count), *rows(found), sep="\n")


if __name__ == "__main__":
    main()
