"""A worker as its users run it: `latermq worker`, in a process of its own, asked to end."""

import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import pytest

import latermq
from latermq_proto.latermq.v1 import dead_letter_pb2
from support import guide
from support.broker_process import BrokerProcess
from support.guide import commands, examples
from support.machine import patient
from support.wire_client import WireClient

GUIDE: Final = guide.GUIDE / "worker.md"
SHOP: Final = """
import asyncio, sys, time
from dataclasses import dataclass
from datetime import timedelta
import latermq

app = latermq.App()

@dataclass
class Order:
    id: int
    ms: int = 0

def say(what, order):
    sys.stdout.write(f"{what} {order.id}\\n")  # in one piece, whatever kills us
    sys.stdout.flush()

@app.listener("TOPIC", group="TOPIC", concurrency=4LIMIT)
async def bill(order: Order, delivery: latermq.Delivery) -> None:
    say(f"began-{delivery.attempt}", order)
    await asyncio.sleep(order.ms / 1_000)
    say("done", order)
"""
UNDER_LOAD: Final = 600
AFTER: Final = 30
THREADS: Final = """
import os, time, latermq
app = latermq.App()

@app.listener("TOPIC", group="TOPIC")
def bill(text: str) -> None:
    os.write(1, f"began {text}\\n".encode())  # whole lines, whatever the other thread does
    time.sleep(SLEEP)
    os.write(1, f"done {text}\\n".encode())
"""
TO_THREAD: Final = """
import asyncio, os, time, latermq
app = latermq.App()

@app.listener("TOPIC", group="TOPIC")
async def bill(text: str) -> None:
    os.write(1, f"began {text}\\n".encode())
    await asyncio.to_thread(time.sleep, SLEEP)
"""


class WorkerProcess:
    """A running `latermq worker`; what it said is in files, whole lines of it in lists."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.process = process
        self._out = out
        self._err = err

    @property
    def said(self) -> list[str]:
        return self._out.read_text().splitlines()

    @property
    def log(self) -> str:
        return self._err.read_text()

    def ended(self) -> int:
        return self.process.wait(patient(60))


@contextmanager
def working(
    directory: Path, source: str, name: str, endpoint: str, *options: str, limit: str = ""
) -> Iterator[WorkerProcess]:
    directory.mkdir(exist_ok=True)
    text = source.replace("TOPIC", name).replace("LIMIT", limit)
    (directory / "shop.py").write_text(text, encoding="utf-8")
    out, err = directory / "out", directory / "err"
    command = [sys.executable, "-m", "latermq_cli", "worker", "shop:app", *options]
    with out.open("ab") as stdout, err.open("ab") as stderr:
        process = subprocess.Popen(
            command, cwd=directory, stdout=stdout, stderr=stderr,
            env={**os.environ, "LATERMQ_ENDPOINT": endpoint},
        )  # fmt: skip
    try:
        yield WorkerProcess(process, out, err)
    finally:
        process.kill()
        process.wait()


def probed(worker: WorkerProcess, path: str) -> tuple[int, str]:
    """Ask its health port, as a probe of Kubernetes does."""
    found = re.search(r"health: http://127\.0\.0\.1:(\d+)/", worker.log)
    assert found is not None, worker.log
    asked = HTTPConnection("127.0.0.1", int(found[1]), timeout=patient(10))
    asked.request("GET", f"/{path}")
    answer = asked.getresponse()
    return answer.status, answer.read().decode().strip()


async def until(condition: Callable[[], Any], what: Callable[[], Any] = lambda: "") -> None:
    try:
        async with asyncio.timeout(patient(60)):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(what()) from None


def order(number: int, ms: int = 0) -> bytes:
    return json.dumps({"id": number, "ms": ms}).encode()


async def test_the_guide_s_example_works(
    sdk_broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    source = next(each.text for each in examples(GUIDE) if each.language == "python")
    assert source.count('"orders", group="billing"') == 1
    source = source.replace('"orders", group="billing"', f'"{name}", group="{name}"')
    assert commands(GUIDE) == [["worker", "shop:app"]]
    with working(tmp_path / "a", source, name, sdk_broker.endpoint) as worker:
        environment = {**os.environ, "LATERMQ_ENDPOINT": sdk_broker.endpoint}
        placed = subprocess.run([sys.executable, tmp_path / "a" / "shop.py"], env=environment)
        assert placed.returncode == 0
        await until(lambda: worker.said, lambda: worker.log)
        assert worker.said == ["order 17 of ann is paid"]


async def test_asked_to_end_it_finishes_what_is_in_hand(
    sdk_broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    """Under load, again and again: nothing is lost, no attempt is burnt, nothing is done twice."""
    ends = int(os.environ.get("ENDS", "4"))
    count = 30 * ends
    async with latermq.connect(sdk_broker.endpoint) as mq:
        for number in range(count):
            await mq.send(name, order(number, ms=20))
    said: list[str] = []
    spans: list[float] = []

    def reached(before: list[str], worker: WorkerProcess, wanted: int) -> bool:
        return sum(line.startswith("done") for line in [*before, *worker.said]) >= wanted

    for end in range(ends + 1):
        with working(tmp_path / f"{end}", SHOP, name, sdk_broker.endpoint) as worker:
            wanted = (end + 1) * count // (ends + 1) if end < ends else count
            await until(partial(reached, said, worker, wanted), partial(getattr, worker, "log"))
            asked_s = perf_counter()
            worker.process.send_signal(signal.SIGTERM)
            assert worker.ended() == 0, worker.log
            assert "all that was in hand is finished" in worker.log
            said += worker.said
            spans.append(perf_counter() - asked_s)
    done_ids = sorted(int(line.split()[1]) for line in said if line.startswith("done"))
    assert done_ids == list(range(count))
    assert not [line for line in said if line.startswith("began-2")]
    print(
        f"{ends} ends under load, {count} messages: nothing lost, none twice, no attempt burnt; "
        f"median {statistics.median(spans):.2f} s to drain and end, at most {max(spans):.2f} s"
    )


async def test_after_the_grace_the_rest_goes_back_uncounted(
    sdk_broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    async with latermq.connect(sdk_broker.endpoint) as mq:
        await mq.send(name, order(1, ms=600_000))
        with working(tmp_path / "a", SHOP, name, sdk_broker.endpoint, "--grace", "200ms") as worker:
            await until(lambda: worker.said, lambda: worker.log)
            worker.process.send_signal(signal.SIGTERM)
            assert worker.ended() == 1
            assert "not finished within the grace, given back: 1" in worker.log
        with working(tmp_path / "b", SHOP, name, sdk_broker.endpoint) as worker:
            await until(lambda: worker.said, lambda: worker.log)
            assert worker.said == ["began-1 1"]  # the first attempt, still


@pytest.mark.parametrize("source", [THREADS, TO_THREAD])
async def test_threads_of_its_calls_do_not_keep_it(
    source: str, sdk_broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    """Neither those of listeners nor, as `asyncio.run` would have it, those of `to_thread`."""
    async with latermq.connect(sdk_broker.endpoint) as mq:
        await mq.send(name, b"1")
    source, options = source.replace("SLEEP", "600"), ("--grace", "200ms")
    with working(tmp_path / "a", source, name, sdk_broker.endpoint, *options) as worker:
        await until(lambda: worker.said, lambda: worker.log)
        worker.process.send_signal(signal.SIGTERM)
        assert worker.ended() == 1
        assert "not finished within the grace, given back: 1" in worker.log


async def test_a_second_signal_ends_it_at_once(
    sdk_broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    async with latermq.connect(sdk_broker.endpoint) as mq:
        await mq.send(name, order(1, ms=600_000))
        with working(tmp_path / "a", SHOP, name, sdk_broker.endpoint) as worker:
            await until(lambda: worker.said, lambda: worker.log)
            worker.process.send_signal(signal.SIGINT)
            await until(lambda: "SIGINT: ending" in worker.log)
            worker.process.send_signal(signal.SIGINT)
            assert worker.ended() == -signal.SIGINT


async def test_a_broker_that_is_away_is_two_lines_and_no_loss(name: str, tmp_path: Path) -> None:
    """The worker is there first; the broker comes, is killed, and comes again."""
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()  # for its port
        broker.kill()
        health = tmp_path / "healthy"
        options = ("--health-file", str(health), "--health", "127.0.0.1:0")
        declares = {"limit": ", max_attempts=7"}  # first it looks what the broker has
        with (
            working(tmp_path / "a", SHOP, name, broker.endpoint, *options) as worker,
            working(tmp_path / "b", SHOP, f"{name}-b", broker.endpoint, **declares) as declaring,
        ):
            await until(lambda: "no broker answers" in worker.log, lambda: worker.log)
            await until(lambda: "no broker answers" in declaring.log, lambda: declaring.log)
            assert not health.exists()
            assert probed(worker, "healthz") == (200, "ok")
            assert probed(worker, "readyz") == (503, "no broker answers")
            broker.start()
            await until(lambda: "worker ready" in worker.log, lambda: worker.log)
            await until(lambda: "worker ready" in declaring.log, lambda: declaring.log)
            assert declaring.log.count("no broker answers") == 1
            assert declaring.log.count("answers again after") == 1
            await until(health.exists)
            assert probed(worker, "readyz") == (200, "ok")
            async with latermq.connect(broker.endpoint) as mq:
                await mq.send(name, order(1))
                await until(lambda: "done 1" in worker.said, lambda: worker.log)
                broker.kill()
                await until(lambda: worker.log.count("no broker answers") == 2)
                await until(lambda: not health.exists())
                assert probed(worker, "readyz") == (503, "no broker answers")
                broker.start()
                await mq.send(name, order(2))
                await until(lambda: "done 2" in worker.said, lambda: worker.log)
                await until(lambda: worker.log.count("answers again after") == 2)
            worker.process.send_signal(signal.SIGTERM)
            assert worker.ended() == 0
            assert not health.exists()
        lines = [line.split(" ", 2)[2] for line in worker.log.splitlines()]
        assert [line.split()[0] for line in lines].count("WARNING") == 2, worker.log
        assert len(lines) == 8, worker.log  # health port, two outages, ready, asked to end, ended
        (shown,) = [each.text for each in examples(GUIDE) if not each.language]
        port = broker.endpoint.partition(":")[2]
        for line in shown.replace("8081", port).splitlines():
            wanted = re.sub(r"[0-9]+\\\.[0-9]", "[0-9]+.[0-9]", re.escape(line))
            assert any(re.fullmatch(wanted, each) for each in lines), (line, worker.log)


@pytest.mark.parametrize(
    ("how", "limit"),
    [
        ("killed with -9", ""),
        ("killed with -9, its window full", ", cached_count_max=100"),  # it receives nothing then
        ("stopped", ""),  # as a machine that stands still: its connections stay
    ],
)
async def test_a_broker_away_under_load_costs_two_lines_and_no_message(
    how: str, limit: str, name: str, tmp_path: Path
) -> None:
    """For AWAY seconds, or until the worker says that it is away."""
    stopped = how == "stopped"
    away_s = float(os.environ.get("AWAY", "0"))
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()
        async with latermq.connect(broker.endpoint) as mq:
            for number in range(UNDER_LOAD):
                await mq.send(name, order(number, ms=20))
        with working(tmp_path / "a", SHOP, name, broker.endpoint, limit=limit) as worker:

            def done() -> list[int]:
                lines = [line for line in worker.said if line.startswith("done")]
                return [int(line.split()[1]) for line in lines]

            await until(lambda: len(done()) >= UNDER_LOAD // 4, lambda: worker.log)
            os.kill(broker.pid, signal.SIGSTOP) if stopped else broker.kill()
            killed_s = perf_counter()
            away = "trying again until one does"
            await until(lambda: away in worker.log)
            await asyncio.sleep(killed_s + away_s - perf_counter())
            meanwhile = len(done())
            os.kill(broker.pid, signal.SIGCONT) if stopped else broker.start()
            gone_s = perf_counter() - killed_s
            async with latermq.connect(broker.endpoint) as mq:
                for number in range(UNDER_LOAD, UNDER_LOAD + AFTER):
                    await mq.send(name, order(number))
            everything = set(range(UNDER_LOAD + AFTER))
            await until(lambda: set(done()) == everything, lambda: worker.log)
            worker.process.send_signal(signal.SIGTERM)
            assert worker.ended() == 0, worker.log
            lines = [line.split(" ", 2)[2] for line in worker.log.splitlines()]
            assert len(lines) == 5, worker.log  # ready, away, back, asked to end, ended
            assert [line.split()[0] for line in lines].count("WARNING") == 1
            assert away in lines[1]
            assert "answers again after" in lines[2]
            burnt = sum(not line.startswith(("began-1", "done")) for line in worker.said)
            print(
                f"a broker {how} under load, away for {gone_s:.1f} s: of "
                f"{len(everything)} messages none lost, {len(done()) - len(everything)} done "
                f"again, {burnt} attempts more; {meanwhile} done before it was back; {lines}"
            )


async def test_what_does_not_fit_is_dead_at_once_and_says_why(
    sdk_broker: BrokerProcess, operator: WireClient, name: str, tmp_path: Path
) -> None:
    request = dead_letter_pb2.ListDeadLettersRequest(group=name)

    def letters() -> Any:
        return operator.call(operator.dead_letters.ListDeadLetters, request).letters

    async with latermq.connect(sdk_broker.endpoint) as mq:
        with working(tmp_path / "a", SHOP, name, sdk_broker.endpoint) as worker:
            await mq.send(name, b'{"id": "seven"}')
            await until(letters, lambda: worker.log)
    (letter,) = letters()
    assert (letter.attempt_count, letter.failure_class) == (1, "PayloadError")
    assert "Expected `int`, got `str`" in letter.failure_text


async def test_a_call_that_takes_too_long_has_failed(
    sdk_broker: BrokerProcess, operator: WireClient, name: str, tmp_path: Path
) -> None:
    operator.create_group(name, 2, [50])
    request = dead_letter_pb2.ListDeadLettersRequest(group=name)

    def letters() -> Any:
        return operator.call(operator.dead_letters.ListDeadLetters, request).letters

    limit = ", timeout=timedelta(milliseconds=100)"
    async with latermq.connect(sdk_broker.endpoint) as mq:
        with working(tmp_path / "a", SHOP, name, sdk_broker.endpoint, limit=limit) as worker:
            await mq.send(name, order(1, ms=600_000))
            await until(letters, lambda: worker.log)
            assert worker.said == ["began-1 1", "began-2 1"]
    (letter,) = letters()
    assert letter.failure_text == "not done after 0.1 s, its time limit"


async def test_a_worker_may_have_its_group_be_as_the_code_says(
    sdk_broker: BrokerProcess, operator: WireClient, name: str, tmp_path: Path
) -> None:
    operator.create_group(name, 2, [50])
    said = "max_attempts: 2 at the broker, 7 in the code"
    rounds: list[tuple[list[str], list[str]]] = [
        ([], [f"WARNING latermq.worker: group {name}: {said}; the broker's word holds"]),
        (["--declare"], [f"INFO latermq.worker: group {name} altered: {said}"]),
        ([], []),
    ]
    for number, (options, lines) in enumerate(rounds):
        with working(
            tmp_path / f"{number}", SHOP, name, sdk_broker.endpoint, *options,
            limit=", max_attempts=7",
        ) as worker:  # fmt: skip
            await until(lambda: "worker ready" in worker.log, lambda: worker.log)
            before, _, _ = worker.log.partition("worker ready")
            assert before.count("\n") == len(lines)
            assert all(line in before for line in lines)
            worker.process.send_signal(signal.SIGTERM)
            assert worker.ended() == 0


async def test_functions_that_block_run_in_threads(
    sdk_broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    async with latermq.connect(sdk_broker.endpoint) as mq:
        source, options = THREADS.replace("SLEEP", "0.2"), ("--concurrency", "2", "--json")
        with working(tmp_path / "a", source, name, sdk_broker.endpoint, *options) as worker:
            for number in range(6):
                await mq.send(name, f"{number}".encode())
            await until(lambda: len(worker.said) > 3, lambda: worker.log)
            worker.process.send_signal(signal.SIGTERM)
            assert worker.ended() == 0, worker.log
    words = [line.split() for line in worker.said]
    assert {text for what, text in words if what == "began"} == {
        text for what, text in words if what == "done"
    }
    assert [json.loads(line)["level"] for line in worker.log.splitlines()] == ["INFO"] * 3


def test_what_it_listens_to_can_be_shown(tmp_path: Path) -> None:
    """No broker is asked."""
    source = """
import latermq
from datetime import timedelta
app = latermq.App()

@app.listener("orders", group="billing", tags="paid", concurrency=3, rate="10/s",
              timeout=timedelta(seconds=30), dead_letter_on=(KeyError, ValueError))
async def bill(order: str) -> None: ...

@app.listener("rows", group="warehouse", batch=50, retry_on=OSError)
def store(rows: list[bytes]) -> None: ...

@app.listener("prices", group="cache", broadcast=True)
async def learn(price: str) -> None: ...
"""
    (tmp_path / "shop.py").write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "latermq_cli", "worker", "shop:app", "--show"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    holds = "holds 1000 messages and 100 MiB a queue"
    assert shown.stdout.splitlines() == [
        "orders for billing: bill, tags paid, concurrency 3, timeout 30s, a call each 100ms, "
        f"KeyError, ValueError dead letters, {holds}",
        "rows for warehouse: store, tags *, concurrency 20, batches of 50 within 200ms, "
        f"in threads, only OSError tried again, {holds}",
        f"prices for cache: learn, tags *, concurrency 20, broadcast, {holds}",
    ]
    assert not shown.stderr


async def test_a_topic_that_is_not_there_ends_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start("--no-auto-create")
        with working(tmp_path / "a", SHOP, "nowhere", broker.endpoint) as worker:
            assert worker.ended() == 1
            assert "topic not found: nowhere" in worker.log
            assert "Traceback" not in worker.log


@pytest.mark.parametrize(
    ("application", "message"),
    [
        ("shop", "'shop' is not MODULE:APP"),
        ("nowhere:app", "no module nowhere"),
        ("hungry:app", "module hungry imports absent, which is not installed"),
        ("json:app", "module json has no app"),
        ("json:dumps", "json:dumps is a function, not a latermq.App"),
    ],
)
def test_what_is_no_application_is_said_in_a_line(
    application: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "hungry.py").write_text("import absent")
    command = [sys.executable, "-m", "latermq_cli", "worker", application]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"latermq: {message}")
    assert ended.stderr.count("\n") == 1
