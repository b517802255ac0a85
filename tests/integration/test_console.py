"""The console's pages against a broker: what they show, what their forms do."""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.request import urlopen

import pytest

import latermq
from latermq_console.pages import letter_jobs
from latermq_console.pages.letter_filter import instant_ms
from latermq_console.reading import letters as shelves
from latermq_console.reading.desk import Desk
from latermq_console.reading.jobs import Plan, dry_run
from latermq_console.serving.headers import POLICY
from support import console_story as shop
from support.broker_process import BrokerProcess
from support.cluster_process import Machines
from support.console_rig import visiting
from support.machine import patient


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("console") / "data") as broker:
        broker.start()
        asyncio.run(shop.tell(broker.endpoint))
        yield broker


@pytest.fixture
def endpoint(broker: BrokerProcess) -> str:
    return broker.endpoint


async def die(endpoint: str, name: str, kinds: list[str]) -> list[str]:
    """Make dead letters in a group and topic of a test's own; return the messages' ids."""
    await shop.make_topic(endpoint, name)
    await shop.make_groups(endpoint, name)
    async with latermq.connect(endpoint) as mq:
        ids = await shop.send_orders(mq, kinds, topic=name)
        await shop.work(mq, len(kinds) * shop.ATTEMPTS, topic=name, group=name)
    return ids


async def test_the_overview_says_what_needs_a_person_first(endpoint: str) -> None:
    async with visiting(endpoint) as (_, visitor):
        page = await visitor.until("/", "wait for a decision", "billing", "Disk free")
        assert visitor.status == 200
        assert page.index("wait for a decision") < page.index("Groups, the most behind first")
        assert await visitor.get("/go?q=billing")
        assert visitor.path == "/groups/billing"
        page = await visitor.get("/broker")
        assert "fine" in page
        assert "Flush" in page


async def test_every_answer_has_the_headers(endpoint: str) -> None:
    async with visiting(endpoint) as (_, visitor):
        for path in ("/", "/dead", "/nowhere", "/static/console.css", "/static/nothing"):
            await visitor.get(path)
            assert visitor.headers["content-security-policy"] == POLICY
            assert visitor.headers["x-content-type-options"] == "nosniff"
            assert visitor.headers["cache-control"] == "no-store"
        assert "unsafe" not in POLICY
        page = await visitor.get("/dead/billing")
        assert not re.search(r"<script(?![^>]* src=)|\son\w+=|\sstyle=|javascript:", page)
        (asset,) = re.findall(r"/static/console\.css\?v=\w+", page)
        await visitor.get(asset)
        assert "immutable" in visitor.headers["cache-control"]
        cookie = (await visitor.client.get("/")).headers.get("set-cookie", "")
        assert not cookie, "the session is there already"


async def test_it_answers_to_its_own_names_only(endpoint: str) -> None:
    async with visiting(endpoint) as (_, visitor):
        await visitor.get("/", host="rebound.example:8088")
        assert visitor.status == 421
        await visitor.get("/", host="localhost:8088")
        assert visitor.status == 200


async def test_letters_are_grouped_by_what_they_died_of(endpoint: str) -> None:
    async with visiting(endpoint) as (_, visitor):
        await visitor.until("/dead", "billing", ">15<")
        page = await visitor.until("/dead/billing", "15 letters, 5 kinds of failure")
        kinds = page[page.index('class="kinds"') : page.index("Letters</h2>")]
        assert kinds.index("ValueError") < kinds.index("CardExpiredError")
        assert "not enough values to unpack" in kinds
        signature = re.findall(r"signature=(\w{16})", kinds)[0]
        page = await visitor.get(f"/dead/billing?signature={signature}")
        assert page.count('name="offset"') == 9
        assert "Redrive one first" in page
        assert "CardExpired" not in page[page.index("Letters</h2>") :].split("<tbody>")[1]


@pytest.mark.parametrize(
    ("query", "count"),
    [("class=ValueError", 9), ("q=harbour+bank", 2), ("q=A-1003", 1), ("topic=orders", 15),
     ("topic=elsewhere", 0), ("since=1h", 15), ("until=2020-01-01T00:00", 0),
     ("state=redriven", 0)],
)  # fmt: skip
async def test_letters_are_filtered(endpoint: str, query: str, count: int) -> None:
    async with visiting(endpoint) as (_, visitor):
        page = await visitor.get(f"/dead/billing?{query}")
        assert page.count("/letters/") == count
        assert ("Nothing like that" in page) == (count == 0)


@pytest.mark.parametrize("query", ["signature=xyz", "since=soon", "state=undead"])
async def test_a_filter_that_makes_no_sense_is_explained(endpoint: str, query: str) -> None:
    async with visiting(endpoint) as (_, visitor):
        assert "That does not work" in await visitor.get(f"/dead/billing?{query}")
        assert visitor.status == 400


async def test_a_letter_tells_its_life(endpoint: str) -> None:
    async with visiting(endpoint) as (_, visitor):
        page = await visitor.get("/dead/billing?q=A-1003")
        (link,) = re.findall(r"/dead/billing/letters/\d+", page)
        page = await visitor.get(link)
        for words in (
            "Sent to orders", "Attempt 1", "Attempt 3", "waited 40 ms, as the group's backoff says",
            "Every attempt failed the same way (ValueError)", "Traceback (most recent call last)",
            "console_story.py", '"amount": "49,90"', "8 other letters died of the same",
        ):  # fmt: skip
            assert words in page
        assert "very-secret" not in page
        assert "auth_<wbr>token" in page
        await visitor.get("/dead/billing/letters/4711")
        assert visitor.status == 404
        await visitor.get("/dead/nobody")
        assert visitor.status == 404


async def test_a_canary_then_the_rest(endpoint: str, name: str) -> None:
    ids = await die(endpoint, name, ["comma", "comma", "comma", "slow"])
    async with visiting(endpoint) as (_, visitor), latermq.connect(endpoint) as mq:
        page = await visitor.get(f"/dead/{name}/change?verb=redrive&class=ValueError&first=1")
        assert re.search(r"<b>3</b>\s*letters", page)
        await visitor.post(
            f"/dead/{name}/change", verb="redrive", class_="ValueError", expected="3",
            amount="one", rate="50",
        )  # fmt: skip
        job = visitor.path
        page = await visitor.until(job, 'data-state="done"', 'data-fate="RETRY"')
        assert "2 letters are left of class ValueError" in page
        assert sum(each in page for each in ids) == 1
        await shop.work(mq, 1, topic=name, group=name, charge_one=lambda _: None)
        await visitor.until(job, 'data-fate="DONE"')
        await visitor.post(
            f"/dead/{name}/change", verb="redrive", class_="ValueError", expected="2", rate="50"
        )
        assert visitor.path != job
        page = await visitor.until(visitor.path, 'data-state="done"', "data-changed>2<")
        await shop.work(mq, 2, topic=name, group=name, charge_one=lambda _: None)
        page = await visitor.until(f"/dead/{name}", "1 letter, 1 kind of failure")
        assert "BankTimeoutError" in page
        assert "Redrive in" in await visitor.get("/jobs")


async def test_chosen_letters_are_dropped(endpoint: str, name: str) -> None:
    await die(endpoint, name, ["comma"] * 4)
    async with visiting(endpoint) as (_, visitor):
        page = await visitor.get(f"/dead/{name}")
        offsets = re.findall(r'name="offset" value="(\d+)"', page)[:2]
        query = "&".join(f"offset={each}" for each in offsets)
        page = await visitor.get(f"/dead/{name}/change?{query}&verb=drop")
        assert re.search(r"<b>2</b>\s*letters", page)
        drop: dict[str, str | Sequence[str]] = {"verb": "drop", "offset": offsets, "expected": "2"}
        page = await visitor.post(f"/dead/{name}/change", **drop, back=f"/dead/{name}")
        assert "nothing was dropped: say that you want them gone for good" in page
        assert "4 letters, 1 kind of failure" in page
        await visitor.get(f"/dead/{name}/change?{query}&verb=drop")
        await visitor.post(f"/dead/{name}/change", **drop, sure="yes")
        await visitor.until(visitor.path, 'data-state="done"', "data-changed>2<")
        await visitor.until(f"/dead/{name}", "2 letters, 1 kind of failure")
        page = await visitor.get(f"/dead/{name}?state=dropped")
        assert page.count("/letters/") == 2
        assert 'name="offset"' not in page, "there is nothing to do with them"
        await visitor.get(f"/dead/{name}/change?verb=redrive&state=dropped")
        assert visitor.status == 400


async def test_a_text_is_a_query_too(endpoint: str, name: str) -> None:
    await die(endpoint, name, ["slow", "slow", "slow", "comma"])
    async with visiting(endpoint) as (_, visitor):
        page = await visitor.get(f"/dead/{name}/change?verb=drop&q=did+not+answer")
        assert re.search(r"<b>3</b>\s*letters", page)
        drop = {"verb": "drop", "q": "did not answer", "sure": "yes"}
        await visitor.post(f"/dead/{name}/change", **drop, expected="3", amount="one")
        page = await visitor.until(visitor.path, 'data-state="done"', "data-changed>1<")
        rest = re.search(r'href="([^"]+)">Drop the rest<', page)
        assert rest is not None
        page = await visitor.get(rest[1])
        assert re.search(r"<b>2</b>\s*letters", page)
        assert "gone for good" in page
        await visitor.post(f"/dead/{name}/change", **drop, expected="2", amount="all")
        await visitor.until(visitor.path, 'data-state="done"', "data-changed>2<")
        await visitor.until(f"/dead/{name}", "1 letter, 1 kind of failure")


async def test_the_rest_of_a_text_and_of_a_period_is_what_was_counted(
    endpoint: str, name: str
) -> None:
    """The rest of a text was said to be one letter; a period went on while one was tried."""
    await die(endpoint, name, ["slow", "slow", "slow", "comma"])
    async with visiting(endpoint) as (console, visitor):
        page = await visitor.get(
            f"/dead/{name}/change?verb=redrive&first=1&q=did+not+answer&since=15m"
        )
        assert "of the last 15m" in page
        since = re.search(r'name="since" value="([-\dT:]+)"', page)
        assert since is not None
        began_ms = instant_ms(since[1])
        assert 0 <= time.time() * 1_000 - 900_000 - began_ms < 10_000 + patient(60) * 1_000
        await visitor.post(
            f"/dead/{name}/change", verb="redrive", q="did not answer", since=since[1],
            expected="3", amount="one", rate="50",
        )  # fmt: skip
        page = await visitor.until(visitor.path, 'data-state="done"')
        assert "2 letters are left that say" in page
        assert f'name="since" value="{since[1]}"' in page
        (job,) = console.jobs.of_user("")
        assert job.plan.filter.dead_after_ms == began_ms


async def test_what_a_job_left_is_not_counted_each_second(
    endpoint: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open page had the broker go through all letters again, each time that it was asked for."""
    counts = []

    async def counted(desk: Desk, plan: Plan) -> tuple[int, bool]:
        counts.append(plan.count_max)
        return await dry_run(desk, plan)

    await die(endpoint, name, ["comma", "comma", "comma"])
    monkeypatch.setattr(letter_jobs, "dry_run", counted)
    async with visiting(endpoint) as (_, visitor):
        await visitor.get(f"/dead/{name}/change?verb=redrive&class=ValueError")
        counts.clear()
        await visitor.post(
            f"/dead/{name}/change", verb="redrive", class_="ValueError", expected="3", amount="one"
        )
        await visitor.until(visitor.path, 'data-state="done"')
        for _ in range(5):
            assert "2 letters are left of class ValueError" in await visitor.get(visitor.path)
        assert counts == [0]
        monkeypatch.setattr(letter_jobs, "LEFT_S", 0.0)
        await visitor.get(visitor.path)
        assert counts == [0, 0]


async def test_a_job_is_stopped(endpoint: str, name: str) -> None:
    await die(endpoint, name, ["comma"] * 30)
    async with visiting(endpoint) as (_, visitor):
        await visitor.get(f"/dead/{name}/change?verb=redrive")
        await visitor.post(f"/dead/{name}/change", verb="redrive", expected="30", rate="1")
        job = visitor.path
        await visitor.until(job, 'data-state="running"')
        await visitor.post(f"{job}/stop")
        assert 'data-state="stopped"' in visitor.page
        changed = re.search(r"data-changed>(\d+)<", visitor.page)
        assert changed is not None
        assert int(changed[1]) < 30
        assert "No such job" in await visitor.get("/jobs/another")


async def test_a_form_of_another_session_does_nothing(endpoint: str, name: str) -> None:
    await die(endpoint, name, ["comma"])
    async with visiting(endpoint) as (console, visitor):
        plan = f"/dead/{name}/change"
        await visitor.get(f"{plan}?verb=drop")
        good = visitor.page
        visitor.page = visitor.page.replace('name="csrf" value="', 'name="csrf" value="x')
        await visitor.post(plan, verb="drop", expected="1", sure="yes")
        assert visitor.status == 403
        visitor.page = good
        visitor.client.headers["origin"] = "https://elsewhere.example"
        await visitor.post(plan, verb="drop", expected="1", sure="yes")
        assert visitor.status == 403
        del visitor.client.headers["origin"]
        visitor.client.cookies.clear()
        await visitor.post(plan, verb="drop", expected="1", sure="yes")
        assert visitor.status == 403
        assert console.jobs.of_user("") == []
        assert "1 letter, 1 kind" in await visitor.until(f"/dead/{name}", "1 letter")


async def test_a_page_that_refreshes_itself_gets_the_page_alone(endpoint: str) -> None:
    async with visiting(endpoint) as (_, visitor):
        await visitor.get("/dead/billing")
        page = await visitor.get("/dead/billing", **{"X-Console-Live": "1"})
        assert "<main" in page
        assert '<nav aria-label="Parts' not in page


async def test_thousands_of_letters_are_pages_of_fifty(
    endpoint: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent straight to the dead letters by a producer: thousands of them in a second."""
    monkeypatch.setattr(shelves, "TALLIED_MAX", 500)
    await shop.make_groups(endpoint, name)
    async with latermq.connect(endpoint) as mq:
        for _ in range(30):
            batch = [latermq.Message(b"x", keys=[f"k{number}"]) for number in range(100)]
            await mq.send_batch(f"%DLQ%{name}", batch)
    async with visiting(endpoint) as (_, visitor):
        page = await visitor.until(f"/dead/{name}", "of the newest 500 of 3,000 letters")
        assert page.count('name="offset"') == shelves.PAGE
        assert len(page) < 100_000
        seen = set()
        for _ in range(3):
            seen.update(re.findall(r'name="offset" value="(\d+)"', visitor.page))
            older = re.search(r'rel="next" href="([^"]+)"', visitor.page)
            assert older is not None
            await visitor.get(older[1])
        assert len(seen) == 3 * shelves.PAGE
        page = await visitor.get(f"/dead/{name}?q=nothing-like-it")
        assert "among the 1,000 looked through" in page
        page = await visitor.get(f"/dead/{name}/change?verb=redrive")
        assert "3,000" in page


async def test_a_broker_that_is_gone_is_told_of(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()
        async with visiting(broker.endpoint) as (_, visitor):
            await visitor.get("/")
            assert visitor.status == 200
            broker.kill()
            page = await visitor.until("/dead/billing", "The broker does not answer")
            assert visitor.status == 503
            visitor.client.cookies.clear()
            page = await visitor.until("/", "The broker does not answer")
            assert 'data-live="5"' in page
            broker.start()
            await visitor.until("/", "Nothing needs a person")


def test_the_command_serves_and_ends(endpoint: str) -> None:
    command = [sys.executable, "-m", "latermq_cli", "console", "--json", "--listen", "127.0.0.1:0"]
    console = subprocess.Popen(
        [*command, "--endpoint", endpoint],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert console.stdout is not None
        line = console.stdout.readline()
        url = json.loads(line)["url"]
        assert url.startswith("http://127.0.0.1:")
        with urlopen(url, timeout=patient(30)) as answer:
            assert b"Overview" in answer.read()
    finally:
        console.terminate()
        _, said = console.communicate(timeout=patient(30))
    assert "Traceback" not in said
    refused = subprocess.run(
        [*command[:-1], "0.0.0.0:0", "--endpoint", endpoint],
        capture_output=True, text=True, timeout=patient(60), check=False,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "asks nobody for a name" in refused.stderr
    assert "clear text" in refused.stderr


async def test_the_shards_of_a_cluster_are_on_one_page(tmp_path: Path, endpoint: str) -> None:
    machines = Machines(tmp_path)
    try:
        machines.start()
        first, second = (shard.endpoint for shard in machines.shards)
        async with visiting(first) as (_, visitor):
            assert "one of 2 shards" in await visitor.get("/broker")
            page = await visitor.until("/cluster", "2 of 2 answer", first, second)
            assert page.count("keeps the catalogue") == 1
            assert "silent" not in page
            machines.shards[1].terminate()
            page = await visitor.until("/cluster", "1 of 2 answer", "silent")
            assert f"Shard 1 at {second} does not answer" in page
            machines.shards[1].start()
            await visitor.until("/cluster", "2 of 2 answer")
    finally:
        machines.stop()
    async with visiting(endpoint) as (_, visitor):
        assert "This broker is alone" in await visitor.get("/cluster")


async def test_text_of_strangers_stays_text(endpoint: str, name: str) -> None:
    evil = '"><script>alert(1)</script>'
    await shop.make_topic(endpoint, name)
    await shop.make_groups(endpoint, name)
    async with visiting(endpoint) as (_, visitor), latermq.connect(endpoint) as mq:
        await mq.send(name, f"\u202e{evil}".encode(), keys=[evil], properties={"p": evil})
        async with mq.simple_consumer(name, group=name) as consumer:
            [delivery] = await consumer.receive()
            await delivery.dead_letter(evil, ValueError(evil))
        pages = [f"/dead/{name}", f"/dead/{name}/letters/0", f"/messages/{delivery.message_id}",
                 f"/dead/{name}?q={evil}", f"/messages?q={evil}", f"/go?q={evil}"]  # fmt: skip
        for path in pages:
            raw = (await visitor.client.get(path)).text
            assert "&lt;script&gt;alert(1)" in raw, path
            assert "<script>alert" not in raw, path
        body = await visitor.get(f"/messages/{delivery.message_id}")
        assert r"\u202e" in body, "what turns text around is shown, not obeyed"
