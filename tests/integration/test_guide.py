"""The guide's pages as their readers have them: files of a project, pytest, and a command line."""

import ast
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

import latermq
from latermq.admin import AsyncAdmin
from latermq.testing import BrokerProcess, HeldBroker
from latermq_proto.latermq.v1 import group_pb2
from support.guide import GUIDE, PAGES, commands, examples, modules
from support.machine import patient

ELSEWHERE: Final = {"README.md", "first-worker.md", "kafka.md"}  # have tests of their own
PROJECTS: Final = [page for page in PAGES if page.name not in ELSEWHERE and modules(page)]
NOT_OURS: Final = {"celery_shop.py"}  # tests/integration/test_celery_example.py
CONFTEST: Final = """
import sys
from pathlib import Path

pytest_plugins = ["latermq.testing.plugin"]  # for an environment older than its entry point

def pytest_terminal_summary(terminalreporter):
    loaded = {getattr(each, "__file__", None) for each in list(sys.modules.values())}
    names = [each.name for each in Path(__file__).parent.glob("*.py") if str(each) in loaded]
    terminalreporter.write_line("loaded: " + " ".join(sorted(names)))
"""
# What a page does not test itself, because its reader needs no proof of it.
MORE: Final = {
    "batches.md": """
import os, signal, threading, time
import latermq.sync
from in_threads import main, rows

def test_it_stores_until_it_is_asked_to_end(latermq_broker):
    def place():
        with latermq.sync.connect() as mq:
            for body in (b"17", b" ", b"18"):
                mq.send("orders", body)
            while len(rows) < 2 or not latermq_broker.dead("warehouse"):
                time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    placing = threading.Thread(target=place)
    placing.start()
    main()
    placing.join()
    assert sorted(rows) == [b"17", b"18"]
    (letter,) = latermq_broker.dead("warehouse")
    assert letter.text == "an order of nothing"
""",
    "idempotency.md": """
from sent_once import place_once, tell_once
from shop import Order, app

async def test_the_second_is_told_of_the_first(latermq_time):
    async with latermq_time.connect() as mq:
        with latermq_time.using(app):
            first, second = [await place_once(Order(17)) for _ in range(2)]
            await place_once(Order(18))
        await tell_once(mq, Order(17), b"placed")
        assert (await tell_once(mq, Order(17), b"placed")).duplicate
    assert (first.duplicate, second.duplicate) == (False, True)
    assert first.message_id == second.message_id
    assert [each.body for each in latermq_time.sent("orders")] == [b'{"id":17}', b'{"id":18}']
    assert len(latermq_time.sent("audit")) == 1
    await app.close()
""",
    "retries.md": """
import pytest
from charge import answers, charge
from ledger import app
from latermq.admin import AsyncAdmin
from latermq_proto.latermq.v1.group_pb2 import CreateGroupRequest, GetGroupRequest, Group
from look import allow
from latermq_proto.latermq.v1.topic_pb2 import GetTopicRequest, FIFO

async def test_a_second_try_at_once(latermq_time):
    answers[:] = [ConnectionError("busy")] * 2
    assert await latermq_time.until(charge("ann")) == "paid"
    for error in (ConnectionError, ValueError):
        answers[:] = [error("no")] * 3
        with pytest.raises(error):
            await latermq_time.until(charge("ann"))
        assert len(answers) == (0 if error is ConnectionError else 2)

async def test_what_an_app_needs_is_declared(latermq_time):
    with latermq_time.using(app):
        await app.declare()
        await app.close()
    group = latermq_time.call(AsyncAdmin.groups.GetGroup, GetGroupRequest(name="ledger")).group
    assert (group.fifo, group.max_attempts) == (True, 10)
    topic = latermq_time.call(AsyncAdmin.topics.GetTopic, GetTopicRequest(name="moves")).topic
    assert (topic.type, topic.queue_count) == (FIFO, 4)

async def test_what_no_app_declares_is_altered_by_hand(latermq_time):
    made = CreateGroupRequest(group=Group(name="shipping", max_attempts=4))
    latermq_time.call(AsyncAdmin.groups.CreateGroup, made)
    async with latermq_time.connect() as mq:
        assert [await allow(mq, "shipping", each) for each in (5, 6)] == [4, 5]
""",
}


class CardRefused(Exception):
    """Trying again would not help."""


@pytest.mark.parametrize("page", PROJECTS, ids=lambda page: page.name)
def test_a_page_s_files_do_what_their_tests_say(page: Path, tmp_path: Path) -> None:
    files = modules(page) | {"conftest.py": CONFTEST}
    if page.name in MORE:
        files["test_more.py"] = MORE[page.name]
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nfilterwarnings = error\nasyncio_mode = auto\n"
        "asyncio_default_fixture_loop_scope = function\n", encoding="utf-8",
    )  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path, capture_output=True, text=True, timeout=patient(100), check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    tests = re.compile(r"^(?:async )?def test_", re.MULTILINE)
    count = sum(len(tests.findall(text)) for text in files.values())
    assert f"{count} passed" in ended.stdout
    assert f"loaded: {' '.join(sorted(set(files) - NOT_OURS))}\n" in ended.stdout


def said(words: list[str]) -> str:
    """Run `latermq …` on the broker that LATERMQ_ENDPOINT names; return what it says."""
    ended = subprocess.run(
        [sys.executable, "-m", "latermq_cli", *words],
        capture_output=True, text=True, timeout=patient(60), check=False,
    )  # fmt: skip
    assert ended.returncode == 0, f"latermq {' '.join(words)}\n{ended.stderr}"
    return ended.stdout


async def test_what_waits_is_moved_by_the_page_s_commands(latermq_broker: BrokerProcess) -> None:
    ids: dict[str, str] = {}
    async with latermq_broker.connect() as mq:
        for words in commands(GUIDE / "delays.md"):
            verb = words[1]
            receipt = await mq.send("deadlines", b"17", delay=timedelta(hours=1))
            ids[verb] = receipt.message_id
            words = [receipt.message_id if word == "ID" else word for word in words]
            answer = said([*words, *(["--yes"] if verb == "cancel" else [])])
            assert verb != "list" or receipt.message_id[-8:] in answer
    waits = {each.message_id: each.due_at for each in latermq_broker.pending("deadlines")}
    assert list(ids) == ["list", "expedite", "postpone", "cancel"]
    assert set(waits) == {ids["list"], ids["postpone"]}
    assert waits[ids["postpone"]] > datetime.now(UTC) + timedelta(minutes=90)


async def test_a_letter_is_redriven_by_the_page_s_words(latermq_broker: BrokerProcess) -> None:
    async with latermq_broker.connect() as mq:
        consumer = mq.simple_consumer("orders", group="billing")
        for error in (CardRefused("stolen"), LookupError("no card")):
            await mq.send("orders", b"17")
            [delivery] = await consumer.receive()
            await delivery.dead_letter(str(error), error)
    shown = {words[1]: said(words) for words in commands(GUIDE / "retries.md")}
    assert list(shown) == ["list", "show", "redrive"]
    assert "CardRefused: stolen" in shown["list"]
    assert "CardRefused: stolen" in shown["show"]
    assert "1 dead letter redriven" in shown["redrive"]
    assert [letter.kind for letter in latermq_broker.dead("billing")] == ["LookupError"]


def test_a_schedule_is_led_by_the_page_s_commands(latermq_broker: BrokerProcess) -> None:
    shown: dict[str, list[str]] = {}
    for words in commands(GUIDE / "schedules.md"):
        shown.setdefault(words[1], []).append(said(words))
    verbs = ["list", "create", "show", "pause", "resume", "run-now", "remove", "prune"]
    assert sorted(shown) == sorted(verbs)
    assert "0 7 * * 1-5" in shown["show"][0]
    assert "0 7 * * 1-5" in shown["list"][0]
    assert "paused" in shown["pause"][0]
    assert "paused" not in shown["resume"][0]
    assert "nothing to prune" in shown["prune"][0]
    assert [each.body for each in latermq_broker.sent("reports")] == [b'{"kind": "all"}']
    assert "no schedules" in said(["schedule", "list"])


async def test_a_worker_warns_as_the_page_says(
    latermq_time: HeldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    [block] = [each for each in examples(GUIDE / "retries.md") if each.language == ""]
    app = latermq.App()

    @app.listener("orders", group="billing", retry="1s 5s 30s")
    async def bill(order: bytes) -> None: ...

    wanted = group_pb2.Group(name="billing")
    wanted.backoff.ladder.delays_ms.extend([1_000, 5_000])
    latermq_time.call(AsyncAdmin.groups.CreateGroup, group_pb2.CreateGroupRequest(group=wanted))
    async with latermq_time.working(app):
        lines = [f"{each.levelname} {each.name}: {each.message}" for each in caplog.records]
    assert block.text.splitlines() == [line for line in lines if line.startswith("WARNING")]


async def test_a_listener_is_paused_by_the_page_s_lines(
    latermq_time: HeldBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    [block] = [each for each in examples(GUIDE / "worker.md") if "consumer.pause" in each.text]
    lines = compile(block.text, "worker.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    app = latermq.App()

    @app.listener("orders", group="billing")
    async def bill(order: bytes) -> None: ...

    async with latermq_time.working(app):
        await eval(lines, {"bill": bill})
        (row,) = app.stats
        assert not row.paused
    assert capsys.readouterr().out == f"0 0 0 {row.cached_count_max} False 0.0\n"
