"""Two services on one broker, as processes: names that they share, schedules that were renamed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import latermq
from latermq.sync import connect
from support.broker_process import BrokerProcess
from support.machine import patient

SERVICE: Final = """
import os, latermq

app = latermq.App(name=os.environ.get("NAME"))

@app.every("1s", name=os.environ.get("SCHEDULE"))
async def SWEEP() -> None:
    os.write(1, b"swept\\n")

@app.listener("orders-SWEEP", group="work-SWEEP")
async def work(order: str) -> None: ...
"""


class Worker:
    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.process = process
        self._out = out
        self._err = err

    @property
    def log(self) -> str:
        return self._err.read_text()

    @property
    def swept(self) -> bool:
        return "swept" in self._out.read_text()

    def ended(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(patient(60))


def until(condition: Callable[[], Any], what: Callable[[], Any] = lambda: "") -> None:
    end_s = time.monotonic() + patient(90)
    while not condition():
        assert time.monotonic() < end_s, what()
        time.sleep(0.05)


@contextmanager
def working(
    home: Path, module: str, sweep: str, endpoint: str, **environment: str
) -> Iterator[Worker]:
    (home / f"{module}.py").write_text(SERVICE.replace("SWEEP", sweep), encoding="utf-8")
    out, err = home / f"{time.monotonic_ns()}.out", home / f"{time.monotonic_ns()}.err"
    command = [sys.executable, "-m", "latermq_cli", "worker", f"{module}:app"]
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            command, cwd=home, stdout=stdout, stderr=stderr,
            env={**os.environ, "LATERMQ_ENDPOINT": endpoint, **environment},
        )  # fmt: skip
    worker = Worker(process, out, err)
    try:
        until(lambda: "worker ready" in worker.log or process.poll() is not None)
        assert "worker ready" in worker.log, worker.log
        yield worker
    finally:
        process.kill()
        process.wait()


def schedules(endpoint: str) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-m", "latermq_cli", "schedule", "list", "--json"]
    environment = {**os.environ, "LATERMQ_ENDPOINT": endpoint}
    listed = subprocess.run(command, env=environment, capture_output=True, check=True)
    return {each["name"]: each for each in json.loads(listed.stdout)["schedules"]}


@pytest.mark.parametrize("transport", ["lean", "grpcio"])
def test_a_service_is_told_of_another_one_that_takes_its_messages(
    sdk_broker: BrokerProcess, name: str, tmp_path: Path, transport: str
) -> None:
    sweep = name.replace("-", "_")
    with ExitStack() as stack:

        def begun(module: str, **environment: str) -> Worker:
            endpoint = sdk_broker.endpoint
            environment["LATERMQ_TRANSPORT"] = transport
            return stack.enter_context(working(tmp_path, module, sweep, endpoint, **environment))

        first, again = begun("billing"), begun("billing")
        assert "WARNING" not in first.log + again.log
        other = begun("shipping")
        for group, topic in ((sweep, sweep), (f"work-{sweep}", f"orders-{sweep}")):
            said = f"group {group}: messages of topic {topic} are taken by another service, too, "
            assert f"{said}module billing:app (client " in other.log
        assert any(f"@{each.process.pid}@" in other.log for each in (first, again))
        assert ", 2 workers); each message goes to one of the two" in other.log
        for each in (first, again, other):
            each.ended()
        # With a name each has a topic of its own for its ticks; a group that was named is shared.
        named = begun("billing", NAME="billing"), begun("shipping", NAME="shipping")
        assert f"orders-{sweep} are taken by another service, too, billing (" in named[1].log
        assert named[1].log.count("WARNING") == 1
        until(lambda: all(each.swept for each in named))
        second = begun("billing2", NAME="billing")
        assert ", too, shipping (" in second.log
        assert ", too, billing (" not in second.log
        there = schedules(sdk_broker.endpoint)
        assert {f"billing-{sweep}", f"shipping-{sweep}", sweep} <= there.keys()
        for each in (*named, second):
            each.ended()
    with connect(sdk_broker.endpoint) as mq:
        for service in ("billing", "shipping"):
            app = latermq.App(name=service)
            assert f"schedule {service}-{sweep} removed: {service} declares it no more" in (
                app.declare_with(mq, prune=True)
            )


def test_a_schedule_that_was_renamed(sdk_broker: BrokerProcess, name: str, tmp_path: Path) -> None:
    endpoint, sweep = sdk_broker.endpoint, name.replace("-", "_")
    old, new, by_hand, theirs = f"old-{name}", f"new-{name}", f"hand-{name}", f"their-{name}"
    v2, other = latermq.App(endpoint, name=name), latermq.App(endpoint, name=f"{name}-2")
    v2.schedule(new, name, every="1h")
    other.schedule(theirs, name, every="1h")
    command = [sys.executable, "-m", "latermq_cli", "schedule", "create", by_hand]
    command += ["--topic", name, "--every", "1h", "--endpoint", endpoint]
    subprocess.run(command, check=True, capture_output=True)
    with (
        connect(endpoint) as mq,
        working(tmp_path, "v1", sweep, endpoint, NAME=name, SCHEDULE=old) as before,
    ):
        other.declare_with(mq)
        kept = f"schedule {old} kept: a running worker of {name} has it"
        assert kept in v2.declare_with(mq, prune=True)
        with working(tmp_path, "v1", sweep, endpoint, NAME=name, SCHEDULE=new) as after:
            before.ended()
            until(lambda: schedules(endpoint)[old]["undeclared_since_ms"])
            assert not schedules(endpoint)[new]["undeclared_since_ms"]
            done = v2.declare_with(mq, prune=True)
            assert done == [f"schedule {old} removed: {name} declares it no more"]
            there = schedules(endpoint)
            assert old not in there
            assert {new, by_hand, theirs} <= there.keys()
            assert not there[by_hand]["undeclared_since_ms"]
            after.ended()
            until(lambda: schedules(endpoint)[new]["undeclared_since_ms"])
