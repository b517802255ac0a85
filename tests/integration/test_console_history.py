"""Figures that reach further back than the console: of a real Prometheus, and of one in trouble."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gameday.prometheus import Prometheus
from latermq_console.reading import history
from support import console_story as shop
from support.broker_process import BrokerProcess
from support.cluster_process import free_ports
from support.console_rig import visiting
from support.prometheus_api import PrometheusApi


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[BrokerProcess]:
    config = f'[metrics]\nlisten = "127.0.0.1:{port}"\n'
    with BrokerProcess(tmp_path_factory.mktemp("history") / "data", config=config) as broker:
        broker.start()
        asyncio.run(shop.tell(broker.endpoint, comma=2, slow=0, expired=0, fine=3))
        yield broker


@pytest.fixture
def endpoint(broker: BrokerProcess) -> str:
    return broker.endpoint


@pytest.fixture
async def prometheus(endpoint: str) -> AsyncIterator[PrometheusApi]:
    with PrometheusApi() as api:
        api.started_at_ms = [1]
        await api.know(endpoint)
        yield api


@pytest.mark.parametrize(
    ("range", "words"), [("1h", "hour"), ("6h", "6 hours"), ("24h", "24 hours"), ("7d", "7 days")]
)
async def test_lines_reach_as_far_back_as_is_asked(
    endpoint: str, prometheus: PrometheusApi, range: str, words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(history, "FRESH_S", 3_600)
    async with visiting(endpoint, prometheus=prometheus.url) as (_, visitor):
        page = await visitor.until(f"/?range={range}", f"The last {words}")
        assert "Prometheus" not in page
        assert f'href="?range={range}" aria-current="true"' in page
        assert "Sent: 0/s now, at most 120/s" in page, "the highest of 121 points"
        asked = prometheus.asked[-1]
        reach_s = float(asked["end"]) - float(asked["start"])
        assert reach_s == pytest.approx(history.RANGES[range])
        assert reach_s / int(asked["step"]) == pytest.approx(history.POINTS)
        assert 'job="latermq"' in asked["query"]
        assert 'instance="broker1:9464"' in asked["query"], "and none of the other broker"
        page = await visitor.until(f"/groups/billing?range={range}", f"The last {words}")
        assert "Send to done" in page
        assert 'group="billing"' in prometheus.asked[-1]["query"]
        count = len(prometheus.asked)
        await asyncio.gather(*(visitor.get(f"/?range={range}") for _ in (1, 2, 3)))
        assert len(prometheus.asked) == count, "remembered"
        await visitor.get("/?range=1y")
        assert visitor.status == 400


@pytest.mark.parametrize(
    ("trouble", "words"),
    [("silent", "has not answered yet"), ("refuses", "it refuses: too many samples"),
     ("html", "not as a Prometheus does"), ("huge", "more than was asked for")],
)  # fmt: skip
async def test_one_in_trouble_is_named_and_holds_up_nobody(
    endpoint: str, prometheus: PrometheusApi, trouble: str, words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(history, "ANSWER_S", 3_600)
    prometheus.trouble = trouble
    async with visiting(endpoint, prometheus=prometheus.url) as (_, visitor):
        for path in ("/", "/groups/billing?range=7d"):
            page = await visitor.until(path, words)
            assert "what the console itself remembers" in page
            assert "The last 7 days" not in page


async def test_one_that_is_silent_for_long(
    endpoint: str, prometheus: PrometheusApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "ANSWER_S", 0.05)
    prometheus.trouble = "silent"
    async with visiting(endpoint, prometheus=prometheus.url) as (_, visitor):
        assert "did not answer within" in await visitor.until("/", "Prometheus is silent")


async def test_lines_stay_while_it_is_away(
    endpoint: str, prometheus: PrometheusApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with visiting(endpoint, prometheus=prometheus.url) as (_, visitor):
        await visitor.until("/", "The last hour")
        monkeypatch.setattr(history, "FRESH_S", 0.0)
        prometheus.trouble = "refuses"
        page = await visitor.until("/", "Prometheus is silent")
        assert "These lines are its last answer" in page
        assert "at most 120/s" in page
        prometheus.trouble = ""
        while "silent" in await visitor.get("/"):
            await asyncio.sleep(0.02)


async def test_one_that_does_not_know_this_broker(endpoint: str, prometheus: PrometheusApi) -> None:
    prometheus.started_at_ms = [1, 2]
    async with visiting(endpoint, prometheus=prometheus.url) as (_, visitor):
        await visitor.until("/", "it has no figures of this broker")
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    async with visiting(endpoint, prometheus=nobody) as (_, visitor):
        await visitor.until("/", "Prometheus is silent")


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus")
async def test_a_real_prometheus(endpoint: str, port: int, tmp_path: Path) -> None:
    watcher = Prometheus(tmp_path / "watch", f"127.0.0.1:{port}")
    await asyncio.to_thread(watcher.__enter__)
    try:
        for _ in range(2):  # a rate needs two
            await asyncio.to_thread(watcher.wait_scraped)
        async with visiting(endpoint, prometheus=watcher.url) as (console, visitor):
            await visitor.until("/?range=6h", "The last 6 hours")
            assert "Prometheus is silent" not in visitor.page
            await visitor.until("/groups/billing?range=24h", "The last 24 hours", "Send to done")
            watch = console.watch_of(console.sessions.of_user("")[0])
            assert console.history is not None
            assert watch is not None
            began = {0: watch.brokers[0].started_at_ms}
            whole = await console.history.past("6h", began)
            assert whole.lines.keys() == history.OF_BROKER.keys()
            assert whole.lines["dead"][-1] == 2
            assert 0 < (whole.lines["free_percent"][-1] or 0) <= 100
            billing = await console.history.past("24h", began, "billing")
            assert billing.problem == ""
            assert {"lag", "delivered", "acknowledged", "failed", "dead"} <= billing.lines.keys()
            assert billing.lines["dead"][-1] == 2
    finally:
        await asyncio.to_thread(watcher.__exit__)
