"""Schedules as a worker declares them, under a broker and a clock that the test holds."""

import asyncio
import logging
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

import latermq
from latermq.admin import AsyncAdmin
from latermq.testing import HeldBroker
from latermq_proto.latermq.v1 import schedule_pb2

QUARTER = timedelta(minutes=15)


def schedules(broker: HeldBroker) -> list[schedule_pb2.Schedule]:
    request = schedule_pb2.ListSchedulesRequest()
    return list(broker.call(AsyncAdmin.schedules.ListSchedules, request).schedules)


async def test_two_hours_have_eight_quarters(latermq_time: HeldBroker) -> None:
    app, ticks, calls = latermq.App(), list[datetime](), list[int]()

    @app.every("15m")
    async def sweep(tick: datetime) -> None:
        ticks.append(tick)

    @app.every("1h")
    def hourly() -> None:
        calls.append(1)

    async with latermq_time.working(app):
        began = latermq_time.now()
        await latermq_time.advance("2h")
        assert len(ticks) == 8
        assert len(calls) == 2
        assert all(after - before == QUARTER for before, after in pairwise(ticks))
        assert began < ticks[0] <= began + QUARTER
        assert ticks[0].minute % 15 == ticks[0].second == 0
    assert latermq_time.pending() == []
    (message, *_) = latermq_time.sent("sweep")
    assert message.properties["latermq-schedule"] == "sweep"
    assert datetime.fromisoformat(message.properties["latermq-tick"]) == ticks[0]


async def test_many_workers_one_call(latermq_time: HeldBroker) -> None:
    calls = list[int]()

    def app_of(number: int) -> latermq.App:
        app = latermq.App()

        @app.cron("*/20 * * * *", tz="Europe/Berlin", name="often")
        async def often() -> None:
            calls.append(number)
            await asyncio.sleep(1)

        return app

    async with (
        latermq_time.working(app_of(1)),
        latermq_time.working(app_of(2)),
        latermq_time.working(app_of(3)),
    ):
        await latermq_time.advance("1h")
    assert len(calls) == 3
    assert len(latermq_time.sent("often")) == 3


async def test_a_tick_that_failed_comes_again_as_any_message(latermq_time: HeldBroker) -> None:
    app, ticks = latermq.App(), list[str]()

    @app.every("1h")
    async def fragile(delivery: latermq.Delivery) -> None:
        ticks.append(delivery.properties["latermq-tick"])
        if len(ticks) == 1:
            raise ConnectionError("away")

    async with latermq_time.working(app):
        await latermq_time.advance("1h1m")
    assert len(ticks) in (2, 3)
    assert ticks[0] == ticks[1]


def versions(every: str) -> latermq.App:
    app = latermq.App()

    @app.every(every, name="sweep")
    async def sweep() -> None: ...

    return app


async def test_what_differs_is_told_and_declare_alters_it(
    latermq_time: HeldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "latermq.worker")

    def said() -> list[str]:
        lines = [record.getMessage() for record in caplog.records if "sweep" in record.message]
        caplog.clear()
        return [line for line in lines if line.startswith("schedule")]

    async with latermq_time.working(versions("15m")):
        assert said() == ["schedule sweep made: every 15m"]
    async with latermq_time.working(versions("15m")):
        assert said() == []
    async with latermq_time.working(versions("30m")):
        assert said() == [
            "schedule sweep: every 15m at the broker, every 30m in the code; the broker's word "
            "holds; `latermq worker --declare` has it be the code's"
        ]
    assert [each.every_ms for each in schedules(latermq_time)] == [900_000]
    newer = versions("30m")
    with latermq_time.using(newer):
        assert await newer.declare() == [
            "schedule sweep altered: every 15m at the broker, every 30m in the code"
        ]
        assert await newer.declare() == []
        await newer.close()
    assert [each.every_ms for each in schedules(latermq_time)] == [1_800_000]


async def test_what_the_broker_refuses_ends_the_worker(latermq_time: HeldBroker) -> None:
    app = latermq.App()

    @app.cron("61 * * * *")
    async def never() -> None: ...

    with pytest.raises(latermq.errors.RequestError, match="bad minute"):
        async with latermq_time.working(app):
            pass


async def test_a_schedule_that_the_code_has_no_more(latermq_time: HeldBroker) -> None:
    def version(name: str) -> latermq.App:
        app = latermq.App(name="billing")

        @app.every("1h", name=name)
        async def sweep() -> None: ...

        return app

    def told() -> dict[str, bool]:
        return {each.name: bool(each.undeclared_since_ms) for each in schedules(latermq_time)}

    async with latermq_time.working(version("old")):
        await latermq_time.advance("10m")
        assert told() == {"old": False}
        async with latermq_time.working(version("new")):
            await latermq_time.advance("10m")
            assert told() == {"new": False, "old": False}
            with latermq_time.using(version("new")) as app:
                (kept,) = await app.declare(prune=True)
                assert kept == "schedule old kept: a running worker of billing has it"
        assert told() == {"new": True, "old": False}
    ended = latermq_time.now()
    (_, old) = schedules(latermq_time)
    assert old.undeclared_since_ms == ended.timestamp() * 1_000
    app = version("new")
    other = latermq.App(name="shipping")
    other.schedule("new", "new", every="1h")
    other.schedule("theirs", "new", every="1h")
    with latermq_time.using(other):
        assert await other.declare() == ["schedule theirs made: every 1h"]
    with latermq_time.using(app):
        assert await app.declare(prune=True) == [
            "schedule old removed: billing declares it no more"
        ]
    with latermq_time.using(latermq.App(name="billing")) as app:
        assert await app.declare(prune=True) == ["schedule new kept: shipping has it"]
    assert told() == {"new": False, "theirs": False}  # without a worker
    request = schedule_pb2.PruneSchedulesRequest()
    assert not latermq_time.call(AsyncAdmin.schedules.PruneSchedules, request).removed
