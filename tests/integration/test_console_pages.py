"""The console's other pages against a broker: groups, topics, what waits, messages, limits."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

import latermq
from latermq import admin
from latermq_console.reading import findings, watch
from latermq_proto.latermq.v1 import limit_pb2, schedule_pb2
from support import console_story as shop
from support import wire_requests
from support.broker_process import BrokerProcess
from support.console_rig import visiting
from support.wire_client import WireClient


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("console-pages") / "data") as broker:
        broker.start()
        asyncio.run(shop.tell(broker.endpoint, comma=1, slow=0, expired=0, fine=3))
        yield broker


@pytest.fixture
def endpoint(broker: BrokerProcess) -> str:
    return broker.endpoint


async def take(mq: latermq.Client, name: str, count: int) -> list[latermq.Delivery]:
    consumer = mq.simple_consumer(name, group=name)
    taken: list[latermq.Delivery] = []
    while len(taken) < count:
        taken += await consumer.receive(count, invisible=timedelta(minutes=5))
    return taken


async def test_a_group_shows_its_lag_by_queue_and_its_ladder(endpoint: str, name: str) -> None:
    await shop.make_topic(endpoint, name, queues=2)
    await shop.make_groups(endpoint, name)
    async with visiting(endpoint) as (_, visitor), latermq.connect(endpoint) as mq:
        page = await visitor.get(f"/groups/{name}")
        assert "It has read no topic yet" in page
        ids = await shop.send_orders(mq, ["fine"] * 8, topic=name)
        taken = await take(mq, name, 3)
        page = await visitor.until(f"/groups/{name}", "by queue", taken[0].message_id)
        lags = re.findall(r'aria-label="Lag of queue \d"></progress><span class="num">(\d+)', page)
        assert sum(map(int, lags)) == 5, "of 8, 3 are in flight"
        assert "a ladder: 40 ms 120 ms" in page
        assert "3 deliveries, then a dead letter" in page
        assert sum(f"/messages/{each}" in page for each in ids) == 3
        page = await visitor.until("/groups?q=" + name[:12].upper(), name.replace("_", "_<wbr>"))
        assert "No group is called so" in await visitor.get("/groups?q=nobody-at-all")
        await visitor.get("/groups/nobody")
        assert visitor.status == 404


async def test_a_message_group_that_is_parked_is_named(endpoint: str, name: str) -> None:
    await shop.make_topic(endpoint, name, queues=1, type=2)
    await shop.make_groups(endpoint, name, fifo=True)
    async with visiting(endpoint) as (_, visitor), latermq.connect(endpoint) as mq:
        for _ in range(3):
            await mq.send(name, b"{}", message_group="ship-1")
        [delivery] = await take(mq, name, 1)
        await delivery.dead_letter("the crane is broken", OSError("crane"))
        page = await visitor.until(f"/groups/{name}", "parked", "letter 0")
        assert "parks behind a dead letter" in page
        assert "Its message group stands still" in await visitor.get(f"/dead/{name}/letters/0")
        await visitor.until("/", "stand still", "Parked behind dead letters")


async def test_topics(endpoint: str) -> None:
    async with visiting(endpoint) as (_, visitor):
        page = await visitor.get("/topics")
        assert "/topics/orders" in page
        assert "/pending?topic=reminders&kind=delayed" in page
        page = await visitor.until("/topics/orders", "billing", "Oldest kept")
        assert await visitor.get("/topics/nowhere")
        assert visitor.status == 404


async def test_what_waits_is_moved_and_cancelled(endpoint: str, name: str) -> None:
    async with visiting(endpoint) as (_, visitor), latermq.connect(endpoint) as mq:
        for minute in (5, 5, 20, 300):
            await mq.send(name, b"x", keys=[f"m-{minute}"], delay=timedelta(minutes=minute))
        page = await visitor.get(f"/pending?topic={name}&kind=delayed")
        assert "4 messages" in page
        assert "2 messages in minute" in page, "the histogram"
        ids = re.findall(r'name="id" value="([^"]+)"', page)
        assert len(ids) == 4
        here = f"/pending?topic={name}"
        page = await visitor.post(
            "/pending/change", verb="postpone", by="6h", id=ids[:1], back=here
        )
        assert visitor.path == here
        assert "1 message postponed" in page
        page = await visitor.get(here)
        assert "postponed" not in page, "a notice is shown once"
        await visitor.post("/pending/change", verb="expedite", id=ids[1:2], back=here)
        assert "1 message due now" in visitor.page
        page = await visitor.post("/pending/change", verb="cancel", id=ids[2:], back=here)
        assert "Cancel for good?" in page
        page = await visitor.post(
            "/pending/change", verb="cancel", id=ids[2:], sure="yes", back=here
        )
        assert "2 messages cancelled" in page
        await visitor.post("/pending/change", verb="cancel", id=ids[2:], sure="yes", back=here)
        assert "Not done" in visitor.page
        await visitor.post("/pending/change", verb="postpone", by="soon", id=ids[:1], back=here)
        assert "is not a duration" in visitor.page
        await visitor.post("/pending/change", verb="expedite", back=here)
        assert "choose some messages first" in visitor.page
        await visitor.get("/pending?kind=odd")
        assert visitor.status == 400


async def test_a_retry_that_nobody_receives_says_how_late_it_is(endpoint: str, name: str) -> None:
    await shop.make_topic(endpoint, name, queues=1)
    await shop.make_groups(endpoint, name)
    async with visiting(endpoint) as (_, visitor), latermq.connect(endpoint) as mq:
        await shop.send_orders(mq, ["comma"], topic=name)
        await shop.work(mq, 1, topic=name, group=name)
        page = await visitor.until(f"/pending?group={name}", '"nowrap">ready')
        assert re.search(r'"nowrap">ready<br><small class="quiet">due <time datetime="\d', page)


async def test_an_open_transaction_is_ended(endpoint: str, name: str) -> None:
    async with visiting(endpoint) as (_, visitor), latermq.connect(endpoint) as mq:
        assert "No open transactions" in await visitor.get("/transactions")
        for number in range(2):
            open_one = mq.transaction(
                name, b"{}", keys=[f"{name}-{number}"], check_after=timedelta(minutes=9)
            )
            await open_one.__aenter__()
        page = await visitor.until("/transactions", f"{name}-0", f"{name}-1")
        ids = re.findall(r'name="id" value="([^"]+)"', page)
        for verb, each, words in [
            ("commit", ids[0], "1 message committed"),
            ("cancel", ids[1], "1 message cancelled"),
        ]:
            page = await visitor.post("/pending/change", verb=verb, id=each, back="/transactions")
            assert 'name="sure" value="yes"' in page
            await visitor.post(
                "/pending/change", verb=verb, id=each, sure="yes", back="/transactions"
            )
            assert words in visitor.page
            assert visitor.path == "/transactions"
        page = await visitor.get(f"/messages?q={name}-1")
        assert "cancelled" in page


async def test_a_message_is_found_and_tells_its_story(endpoint: str, name: str) -> None:
    await shop.make_topic(endpoint, name, queues=1)
    await shop.make_groups(endpoint, name)
    async with visiting(endpoint) as (_, visitor), latermq.connect(endpoint) as mq:
        [first, second] = await shop.send_orders(mq, ["fine", "fine"], topic=name)
        later = await mq.send(name, b"\xff\x00bytes", keys=[name], delay=timedelta(hours=1))
        assert "No group has read the topic yet" in await visitor.get(f"/messages/{first}")
        [delivery] = await take(mq, name, 1)
        await visitor.until(f"/messages/{first}", 'data-fate="in flight"', "attempt 1 of 3 with ")
        await visitor.until(f"/messages/{second}", "the next of its queue")
        await delivery.ack()
        await visitor.until(f"/messages/{first}", 'data-fate="done"')
        page = await visitor.get(f"/messages?q={name}&topic={name}")
        assert f"/messages/{later.message_id}" in page
        page = await visitor.get(f"/messages/{later.message_id}")
        assert "ff 00 62 79 74 65 73" in page
        assert "No group sees it before its time" in page
        await visitor.get(f"/go?q={first.lower()}")
        assert visitor.path == f"/messages/{first.lower()}"
        assert "No such message" in await visitor.get("/messages?q=nothing-like-it")
        await visitor.get(f"/messages/{'0' * 34}")
        assert visitor.status == 404
        with WireClient(endpoint) as client:  # ids are the clients' own
            client.send(wire_requests.message(name, b"a slash", message_id=f"{name}/1?"))
        assert "a slash" in await visitor.get(f"/messages/{name}%2F1%3F")


async def test_limits_are_set_and_taken_away(endpoint: str, name: str) -> None:
    async with visiting(endpoint) as (_, visitor):
        page = await visitor.get("/access")
        assert "The broker asks nobody for a name" in page
        await visitor.post("/access/limits", scope="client", name=name, sends_per_s="70")
        assert re.search(rf"client {name}", visitor.page)
        with admin.connect(endpoint) as broker:
            answer = broker.call(broker.limits.ListLimits, limit_pb2.ListLimitsRequest())
        assert [(each.name, each.sends_per_s) for each in answer.limits] == [(name, 70)]
        await visitor.post("/access/limits", scope="client", name=name, back="/access")
        assert "say at least one limit" in visitor.page
        await visitor.post("/access/limits", scope="client", sends_per_s="many", back="/access")
        assert "is a whole number" in visitor.page
        await visitor.post("/access/limits/unset", scope="client", name=name)
        assert "limited no longer" in visitor.page
        assert "No limits" in visitor.page


async def test_a_client_shows_what_it_holds_and_is_let_go(endpoint: str, name: str) -> None:
    await shop.make_topic(endpoint, name, queues=1)
    await shop.make_groups(endpoint, name)
    async with visiting(endpoint) as (_, visitor), latermq.connect(endpoint) as mq:
        await shop.send_orders(mq, ["fine"] * 3, topic=name)
        await take(mq, name, 2)
        page = await visitor.until(f"/clients?group={name}", "simple consumer")
        (link,) = re.findall(r'/client\?id=[^"]+', page)
        page = await visitor.get(link)
        assert re.search(r'data-label="Messages">2<', page)
        page = await visitor.get(f"/groups/{name}")
        assert page.count(link) == 3, "as a consumer, and with each of its messages"
        page = await visitor.get(f"/pending?group={name}")
        assert page.count(link) == 2
        await visitor.get(link)
        client_id = re.findall(r'name="id" value="([^"]+)"', visitor.page)[0]
        page = await visitor.post("/client/kick", id=client_id, group=name)
        assert "2 messages of it may be received by others" in page
        await visitor.post("/client/kick", id="nobody@nowhere", back="/clients")
        assert "Not done" in visitor.page
        await visitor.get("/client?id=nobody@nowhere")
        assert visitor.status == 404


async def test_a_group_that_nobody_works_for_is_found(
    endpoint: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "IDLE_MS", 0)
    monkeypatch.setattr(watch, "PERIOD_S", 0.05)
    await shop.make_topic(endpoint, name, queues=1)
    await shop.make_groups(endpoint, name)
    async with visiting(endpoint) as (_, visitor), latermq.connect(endpoint) as mq:
        await shop.send_orders(mq, ["fine"] * 3, topic=name)
        await take(mq, name, 1)
        page = await visitor.until("/", f"{name} falls behind: 2 messages ready")
        assert "Nothing was acknowledged in the last minute; the oldest waits for" in page


async def test_what_no_code_has_any_more_and_services_that_share_a_group(
    endpoint: str, name: str
) -> None:
    async with AsyncExitStack() as stack:
        _, visitor = await stack.enter_async_context(visiting(endpoint))
        mq = await stack.enter_async_context(latermq.connect(endpoint))
        schedule = schedule_pb2.Schedule(name=name, topic=name, every_ms=3_600_000)
        put = schedule_pb2.PutScheduleRequest(schedule=schedule, app="billing")
        runs = schedule_pb2.DeclareSchedulesRequest(app="billing", worker="w", names=[name])
        services = mq.admin.schedules
        await mq.admin.call(services.PutSchedule, put)
        await mq.admin.call(services.DeclareSchedules, runs)
        await visitor.until("/schedules", name)
        assert "declared by no running worker" not in visitor.page
        runs.ends = True
        await mq.admin.call(services.DeclareSchedules, runs)
        await visitor.until("/schedules", "declared by no running worker since")
        prune = schedule_pb2.PruneSchedulesRequest(app="billing")
        await mq.admin.call(services.PruneSchedules, prune)
        await visitor.until("/schedules", "No schedules")
        await shop.make_groups(endpoint, name)
        for service in ("billing", "shipping"):
            client = await stack.enter_async_context(latermq.connect(endpoint))
            client._service = service
            await client.push_consumer(name, group=name).start()
        page = await visitor.until(f"/groups/{name}", f"Several services share {name}")
        assert "<code>shipping</code> (1 client)" in page


async def test_schedules_are_paused_resumed_and_removed(endpoint: str, name: str) -> None:
    async with visiting(endpoint) as (_, visitor):
        assert "No schedules" in await visitor.get("/schedules")
        await shop.make_schedule(
            endpoint, name, "reminders", cron="0 6 29 2 *", zone="Europe/Berlin"
        )
        page = await visitor.until("/schedules", "0 6 29 2 * Europe/Berlin")
        assert "/topics/reminders" in page
        assert ">Resume<" not in page
        page = await visitor.post("/schedules/change", verb="pause", name=name, back="/schedules")
        assert f"schedule {name} paused" in page
        assert visitor.path == "/schedules"
        assert ">Pause<" not in page
        page = await visitor.post("/schedules/change", verb="resume", name=name)
        assert f"schedule {name} resumed" in page
        page = await visitor.post("/schedules/change", verb="remove", name=name)
        assert f"Remove {name}?" in page
        assert name in await visitor.get("/schedules"), "it was asked first"
        await visitor.post("/schedules/change", verb="melt", name=name, back="/schedules")
        assert "say pause, resume or remove" in visitor.page
        page = await visitor.post("/schedules/change", verb="remove", name=name, sure="yes")
        assert f"schedule {name} removed" in page
        assert "No schedules" in page
        await shop.make_schedule(endpoint, name, "reminders", every_ms=90_000)
        await visitor.until("/schedules", "every 1m30s")
        csrf = "another session's"
        await visitor.post("/schedules/change", verb="remove", name=name, sure="yes", csrf=csrf)
        assert visitor.status == 403
        await visitor.get("/schedules")
        await visitor.post("/schedules/change", verb="remove", name=name, sure="yes")
        await visitor.post("/schedules/change", verb="pause", name=name)
        assert "Not done" in visitor.page
