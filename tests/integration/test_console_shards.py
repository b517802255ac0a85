"""The console before a cluster: lists are of all shards, and verbs reach the shard they are of."""

import asyncio
import re
from collections.abc import Iterator
from datetime import timedelta

import pytest

import latermq
from latermq import admin
from latermq_console.drawing import words
from latermq_console.reading import history, shards, watch
from latermq_proto.latermq.v1 import broker_pb2
from support import console_story as shop
from support.cluster_process import Machines
from support.console_rig import Visitor, visiting
from support.machine import patient
from support.prometheus_api import PrometheusApi

DEAD = 12
DELAYED = 12
SHARDS = ("0", "1")


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    machines = Machines(tmp_path_factory.mktemp("console-shards"))
    try:
        machines.start()
        asyncio.run(tell(machines.shards[0].endpoint))
        yield machines
    finally:
        machines.stop()


async def tell(endpoint: str) -> None:
    """Let letters die and messages wait in both shards: producers spread what they send."""
    await shop.make_topic(endpoint, shop.TOPIC)
    await shop.make_groups(endpoint, shop.GROUP)
    async with latermq.connect(endpoint) as mq:
        await shop.send_orders(mq, ["comma"] * DEAD)
        await shop.work(mq, DEAD * shop.ATTEMPTS)
        for number in range(DELAYED):
            await mq.send("reminders", b"x", keys=[f"r-{number}"], delay=timedelta(hours=1))


@pytest.fixture
def endpoint(machines: Machines) -> str:
    return machines.shards[0].endpoint


def shards_in(page: str) -> list[str]:
    return re.findall(r'data-label="Shard">(\d)<', page)


async def letters(visitor: Visitor) -> dict[str, int]:
    """Return how many letters each shard has, by the page."""
    page = await visitor.get("/dead")
    rows = re.findall(r'data-key="billing@(\d)".*?data-label="Letters">(\d+)<', page, re.DOTALL)
    return {shard: int(count) for shard, count in rows}


async def test_letters_are_of_all_shards(endpoint: str) -> None:
    async with visiting(endpoint) as (_, visitor):
        counts = await letters(visitor)
        assert counts.keys() == {*SHARDS}
        assert sum(counts.values()) == DEAD
        assert shards_in(await visitor.get("/dead/billing?class=ValueError")) == list(SHARDS)
        for shard, count in counts.items():
            page = await visitor.until(f"/dead/billing@{shard}", f"{count} letter")
            (link, *_) = re.findall(rf"/dead/billing@{shard}/letters/\d+", page)
            page = await visitor.get(link)
            assert "Attempt 3" in page
            assert f'action="/dead/billing@{shard}/change"' in page
        await visitor.get("/dead/billing@7")
        assert "there is no shard 7" in visitor.page
        await visitor.get("/dead/nobody")
        assert visitor.status == 404


async def test_letters_are_redriven_in_their_shard(endpoint: str) -> None:
    async with visiting(endpoint) as (_, visitor):
        before = await letters(visitor)
        page = await visitor.get("/dead/billing@1/change?verb=redrive&class=ValueError&first=1")
        assert re.search(rf"<b>{before['1']}</b>\s*letters? of", page)
        await visitor.post(
            "/dead/billing@1/change", verb="redrive", class_="ValueError",
            expected=str(before["1"]), amount="one",
        )  # fmt: skip
        job = visitor.path
        page = await visitor.until(job, 'data-state="done"', 'data-fate="RETRY"')
        left = before["1"] - 1
        assert f"{left} letter" in page
        assert 'action="/dead/billing@1/change"' in page
        while await letters(visitor) != {"0": before["0"], "1": left}:
            await asyncio.sleep(0.05)


async def test_what_waits_is_of_all_shards(endpoint: str) -> None:
    async with visiting(endpoint) as (_, visitor):
        page = await visitor.get("/pending?topic=reminders")
        assert {*shards_in(page)} == {*SHARDS}
        assert len(shards_in(page)) == DELAYED
        assert f"<b>{DELAYED}</b> delayed · reminders" in page
        ids = re.findall(r'name="id" value="([^"]+@\d)"', page)
        chosen = [next(each for each in ids if each.endswith(f"@{shard}")) for shard in SHARDS]
        await visitor.post("/pending/change", verb="cancel", id=chosen, sure="yes")
        assert "2 messages cancelled" in visitor.page
        page = await visitor.until("/pending?topic=reminders", f"<b>{DELAYED - 2}</b> delayed")
        assert not {*chosen} & {*re.findall(r'name="id" value="([^"]+)"', page)}


async def test_pages_go_on_in_each_shard(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latermq_console.pages.pending.PAGE", 2)
    async with visiting(endpoint) as (_, visitor):
        seen: list[str] = []
        path = "/pending?topic=reminders"
        while path:
            page = await visitor.get(path)
            seen += re.findall(r'name="id" value="([^"]+)"', page)
            following = re.findall(r'rel="next" href="([^"]+)"', page)
            path = following[0] if following else ""
        assert len(seen) == len({*seen}) >= DELAYED - 2
        assert {handle[-2:] for handle in seen} == {"@0", "@1"}


async def test_a_message_is_found_wherever_it_is(endpoint: str) -> None:
    async with visiting(endpoint) as (_, visitor), latermq.connect(endpoint) as mq:
        ids = await shop.send_orders(mq, ["fine"] * 6, topic="anywhere")
        found: set[str] = set()
        for number, message_id in enumerate(ids):
            page = await visitor.get(f"/messages/{message_id}")
            assert visitor.status == 200
            found |= {*re.findall(r"<dt>Shard</dt><dd>(\d)</dd>", page)}
            page = await visitor.get(f"/messages?q=A-{1000 + number}&topic=anywhere")
            assert message_id in page
            assert len(shards_in(page)) == 1
        assert found == {*SHARDS}
        await visitor.get(f"/messages/{'0' * 34}")
        assert visitor.status == 404


async def test_transactions_and_clients_are_of_all_shards(endpoint: str) -> None:
    async with visiting(endpoint) as (_, visitor), latermq.connect(endpoint) as mq:
        opened = [mq.transaction("halves", b"x") for _ in range(6)]
        for each in opened:
            await each.__aenter__()
        page = await visitor.get("/transactions")
        assert {*shards_in(page)} == {*SHARDS}
        ids = re.findall(r'name="id" value="([^"]+@\d)"', page)
        assert len(ids) == len(opened)
        await visitor.post("/pending/change", verb="commit", id=ids, sure="yes")
        assert f"{len(ids)} messages committed" in visitor.page
        page = await visitor.until("/clients", 'data-label="Shard">1<')
        assert {*shards_in(page)} == {*SHARDS}
        link = next(each for each in re.findall(r'/client\?id=[^"]+', page) if "shard=1" in each)
        page = await visitor.get(link)
        assert "<dt>Shard</dt><dd>1</dd>" in page


async def test_a_group_is_moved_in_all_shards(endpoint: str) -> None:
    async with visiting(endpoint) as (_, visitor):
        here = f"/groups/{shop.GROUP}"
        page = await visitor.get(f"{here}/reset?topic={shop.TOPIC}&to=earliest")
        assert {*shards_in(page)} == {*SHARDS}
        assert f"<b>{DEAD}</b> to be read again" in page
        fields = {"topic": shop.TOPIC, "to_ms": "0", "sure": "yes", "back": here}
        await visitor.post(f"{here}/reset", **fields)
        for shard in SHARDS:
            assert f"in shard {shard}" in visitor.page
        page = await visitor.get(f"{here}/reset?topic={shop.TOPIC}&to=earliest")
        assert "<b>0</b> to be read again" in page


def of_row(page: str, key: str, label: str) -> str:
    """Return a cell of the row with that key, "" where there is no such row."""
    found = re.search(rf'data-key="{key}".*?data-label="{label}"[^>]*>([^<]*)<', page, re.DOTALL)
    return found[1] if found is not None else ""


async def test_how_far_a_group_is_is_of_all_shards_together(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "PERIOD_S", 0.05)
    await shop.make_topic(endpoint, "parcels", queues=2)
    await shop.make_groups(endpoint, "packing")
    async with (
        visiting(endpoint) as (_, visitor),
        latermq.connect(endpoint) as mq,
        mq.simple_consumer("parcels", group="packing") as consumer,
    ):
        await shop.send_orders(mq, ["fine"] * 8, topic="parcels")
        taken: list[latermq.Delivery] = []
        while len(taken) < 8:
            taken += await consumer.receive(8, invisible=timedelta(minutes=5))
        await shop.send_orders(mq, ["fine"] * 6, topic="parcels")
        for path in ("/", "/groups?q=packing"):
            while of_row(page := await visitor.get(path), "packing", "Lag") != "6":
                await asyncio.sleep(0.02)
            assert of_row(page, "packing", "In flight") == "8"
        page = await visitor.until("/groups/packing", *(each.message_id for each in taken))
        assert of_row(page, "parcels", "Ready") == "6"
        assert sum(int(of_row(page, f"shard {n}", "Ready")) for n in SHARDS) == 6
        lags = re.findall(
            r'Lag of queue \d of shard (\d)"></progress><span class="num">(\d+)', page
        )
        assert {shard for shard, _ in lags} == {*SHARDS}
        assert sum(int(lag) for _, lag in lags) == 6
        assert {*shards_in(page)} == {*SHARDS}, "its consumer is connected to both"
        assert "<b>8</b> in flight" in await visitor.get("/groups/packing/delete")


async def test_topics_are_of_all_shards_together(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latermq_console.pages.groups.PAGE", 1)
    for name in ("stored-a", "stored-b"):
        await shop.make_topic(endpoint, name, queues=1)
    async with visiting(endpoint) as (_, visitor), latermq.connect(endpoint) as mq:
        await shop.send_orders(mq, ["fine"] * 6, topic="stored-b")
        page = await visitor.until("/topics/stored-b", "<dd>6 messages</dd>")
        assert shards_in(page) == [*SHARDS], "a queue of each"
        assert "<b>6</b> stored" in await visitor.get("/topics/stored-b/delete")
        seen: dict[str, str] = {}
        path = "/topics"
        while path:
            page = await visitor.get(path)
            (name,) = re.findall(r'<tr data-key="([^"]+)"', page)
            assert name not in seen
            seen[name] = of_row(page, name, "Stored")
            following = re.findall(r'rel="next" href="([^"]+)"', page)
            path = following[0] if following else ""
        assert [*seen] == sorted(seen)
        assert (seen["stored-a"], seen["stored-b"]) == ("0", "6")


async def test_figures_are_of_all_shards_together(machines: Machines, endpoint: str) -> None:
    sent, request = 0, broker_pb2.GetBrokerRequest()
    for each in machines.shards:
        with admin.connect(each.endpoint) as broker:
            sent += broker.call(broker.brokers.GetBroker, request).broker.totals.messages_sent
    async with visiting(endpoint) as (_, visitor):
        page = await visitor.get("/")
        assert f"{words.short(sent)} since the start" in page
        assert ">2 shards<" in page
        for shard in SHARDS:
            page = await visitor.get(f"/broker?shard={shard}")
            assert f"shard-0{shard}" in page
            assert f'href="/broker?shard={shard}" aria-current="true"' in page
        await visitor.get("/broker?shard=7")
        assert visitor.status == 400


async def test_lines_of_the_past_are_of_all_shards(
    machines: Machines, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "FRESH_S", 0.0)
    with PrometheusApi() as api:
        async with visiting(endpoint, prometheus=api.url) as (_, visitor):
            for number, shard in enumerate(machines.shards):
                await visitor.until("/", f"it has no figures of shard {number}")
                await api.know(shard.endpoint, shard=str(number))
            await visitor.until("/", "at most 120/s")
            assert 'instance=~"broker0:9464|broker1:9464"' in api.asked[-1]["query"]


async def test_the_rest_is_shown_while_the_consoles_own_shard_is_silent(
    machines: Machines, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "ANSWER_S", patient(3))
    async with visiting(endpoint) as (_, visitor):
        assert ">2 shards<" in await visitor.get("/")
        machines.shards[0].kill()
        try:
            for path in ("/", "/groups/billing", "/topics", "/topics/orders", "/dead"):
                page = await visitor.until(path, "What is below is not all")
                assert visitor.status == 200, path
                assert "shard 0: " in page, path
            assert "Nothing needs a person" not in await visitor.get("/")
            assert "/dead/billing@1" in await visitor.get("/dead")
        finally:
            await asyncio.to_thread(machines.shards[0].start)
        while "is not all" in await visitor.get("/"):
            await asyncio.sleep(0.05)


async def test_a_silent_shard_is_named_and_the_rest_is_shown(
    machines: Machines, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "ANSWER_S", patient(3))
    machines.shards[1].kill()
    try:
        async with visiting(endpoint) as (_, visitor):
            for path in ("/", "/dead", "/dead/billing", "/pending", "/transactions", "/clients",
                         "/groups/billing", "/topics", "/topics/orders",
                         "/messages?q=A-1001&topic=orders"):  # fmt: skip
                page = await visitor.get(path)
                assert visitor.status == 200, path
                assert "What is below is not all" in page, path
                assert "shard 1: " in page, path
            await visitor.until("/groups", "What is below is not all", "shard 1: ")
            assert "/dead/billing@0" in await visitor.get("/dead")
            await visitor.get(f"/messages/{'0' * 34}")
            assert visitor.status == 503, "it may be where nobody answers"
            page = await visitor.get("/pending?topic=reminders")
            (following,) = re.findall(r'rel="next" href="([^"]+)"', page)
            (first, *_) = re.findall(r'name="id" value="([^"]+)@0"', page)
            ids = [f"{first}@1", f"{first}@0"]
            await visitor.post("/pending/change", verb="postpone", by="1h", id=ids)
            assert "1 message postponed; 1 not: " in visitor.page
    finally:
        await asyncio.to_thread(machines.shards[1].start)
    async with visiting(endpoint) as (_, visitor):
        page = await visitor.until(following, 'data-label="Shard">1<')
        assert {*shards_in(page)} == {"1"}, "its rows come on a later page"
