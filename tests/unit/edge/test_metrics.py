"""The page of figures, and the port that hands it out."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Final

import pytest

from latermq_broker.background.jobs import Background
from latermq_broker.config.background import BackgroundConfig
from latermq_broker.config.config import DeliveryConfig, MetricsConfig
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.figures import (
    DURATION_MS,
    MARK_MS,
    RECENT_MS,
    Figures,
    Histogram,
)
from latermq_broker.engine.state.model import Outgoing
from latermq_broker.errors import ConfigError
from latermq_broker.observability.metrics import Edges, render, render_standby
from latermq_broker.observability.metrics_endpoint import (
    CONNECTIONS_MAX,
    PAGES_MAX,
    PAGES_PER_ADDRESS_MAX,
    REQUEST_S_MAX,
    MetricsEndpoint,
)
from latermq_broker.observability.replication_figures import (
    OWNER,
    STANDBY,
    Member,
    MemberSeen,
    Others,
    ReplicationFigures,
)
from latermq_broker.observability.transport_figures import TransportFigures
from support.engine_rig import EngineRig

SAMPLE = re.compile(
    r'^((?:latermq|process)_[a-z_]+)(\{(?:[a-z]+="(?:[^"\\]|\\.)*",?)*\})? (-?[0-9.e+-]+)$'
)


def page_of(engine: Engine, edges: Edges) -> dict[str, float]:
    return samples("".join(render(engine, edges)))


def samples(page: str) -> dict[str, float]:
    """Name and labels → value; every line must be one that Prometheus reads."""
    found: dict[str, float] = {}
    types: dict[str, str] = {}
    assert page.endswith("\n")
    for line in page.splitlines():
        if line.startswith("# "):
            _, word, name, rest = line.split(" ", 3)
            if word == "TYPE":
                assert name not in types, f"{name} twice"
                types[name] = rest
            continue
        match = SAMPLE.match(line)
        assert match, line
        family = re.sub(r"_(bucket|sum|count)$", "", match[1])
        assert match[1] in types or types.get(family) == "histogram", line
        key = match[1] + (match[2] or "")
        assert key not in found, f"{key} twice"
        found[key] = float(match[3])
    return found


def test_the_transport_is_on_the_page() -> None:
    figures = TransportFigures(
        calls=9, connections=5, calls_open=1, connections_open=2, deadline_timers=1, tasks=4,
        others={("fault", "ENHANCE_YOUR_CALM: pings"): 3, ("status", "CANCELLED"): 2},
    )  # fmt: skip
    page = page_of(EngineRig().engine, Edges(0, transport=figures))
    assert page["latermq_calls_open"] == 1
    assert page["latermq_calls_total"] == 9
    assert page["latermq_connections_total"] == 5
    assert page["latermq_tasks"] == 4
    fault = 'latermq_transport_events_total{kind="fault",reason="ENHANCE_YOUR_CALM: pings"}'
    assert page[fault] == 3
    assert "latermq_calls_open" not in page_of(EngineRig().engine, Edges(0))


def test_a_replicated_log_is_on_the_page_of_its_owner_and_of_a_standby() -> None:
    latency_ms = Histogram(DURATION_MS)
    latency_ms.observe(2.0)
    owner = ReplicationFigures(
        OWNER, "shop", 4, 8_192, 20, latency_ms, in_flight=2, waiting_bytes=300, gaps=1, beats=7
    )
    page = page_of(EngineRig().engine, Edges(0, replication=owner))
    assert page['latermq_replication_owner{cluster="shop"}'] == 1
    assert page["latermq_replication_engine_silence_seconds"] == 0.02
    assert page["latermq_replication_in_flight"] == 2
    assert page["latermq_replication_beats_total"] == 7
    assert page["latermq_replication_append_seconds_count"] == 1
    assert "latermq_replication_epoch" not in page_of(EngineRig().engine, Edges(0))
    member = Member("b:8081", 0, STANDBY, 4, 4_096, 0, "1.4.0")
    others = Others(
        (
            MemberSeen("b:/data", member, 900, silent=False),
            MemberSeen("c:/data", member, 90_000, silent=True),
            MemberSeen("d:/data", member._replace(role=OWNER), 900, silent=False),
        ),
        unread=2,
    )
    standby = ReplicationFigures(
        STANDBY, "shop", 4, 4_096, 20, Histogram(DURATION_MS), lag_entries=9, others=others
    )
    page = samples("".join(render_standby(standby)))
    assert page['latermq_replication_owner{cluster="shop"}'] == 0
    assert page['latermq_replication_standbys{cluster="shop"}'] == 1
    assert page["latermq_replication_members_unread_total"] == 2
    assert page["latermq_replication_lag_entries"] == 9
    assert page["latermq_build_info" + next(k for k in page if "build" in k)[18:]] == 1
    assert "latermq_messages_sent_total" not in page


def test_it_counts_what_happens() -> None:
    rig = EngineRig(delivery=DeliveryConfig(max_attempts=2))
    rig.send("a", "b", "c")
    rig.send("late", wait_ms=10_000)
    once = Outgoing("others", b"b", b"s", "m", dedup_id="order-17")
    rig.engine.send([once, once, once], rig.now_ms)
    first, second, third = rig.receive(push=True, lease_ms=1_000)
    rig.ack(first)
    rig.engine.change_invisible("billing", second.handle, 1_000, rig.now_ms)
    rig.engine.forward("billing", third.handle, rig.now_ms)
    rig.advance(10_007)
    page = page_of(rig.engine, Edges(rig.now_ms, clients=2))
    told = {
        name: value
        for name, value in page.items()
        if re.fullmatch(r"latermq_(messages|attempts|dead|clients|retries).*", name) and value
    }
    assert told == {
        "latermq_messages_sent_total": 5,
        "latermq_messages_duplicate_total": 2,
        "latermq_messages_due_total": 1,
        "latermq_messages_delivered_total": 3,
        "latermq_messages_acknowledged_total": 1,
        "latermq_attempts_failed_total": 1,
        "latermq_dead_letters_total": 1,
        "latermq_retries_ready": 1,
        "latermq_clients": 2,
    }
    assert page['latermq_delivery_lateness_seconds_bucket{le="0.005"}'] == 0
    assert page['latermq_delivery_lateness_seconds_bucket{le="0.01"}'] == 1
    assert page['latermq_delivery_lateness_seconds_bucket{le="+Inf"}'] == 1
    assert page["latermq_delivery_lateness_seconds_sum"] == 0.007
    assert page["latermq_sent_bytes_total"] > 0
    assert page["latermq_log_segments"] == 1
    assert page["latermq_log_bytes"] == rig.config.store.segment_bytes
    assert page['latermq_pending{kind="backoff",topic="orders",group="billing"}'] == 1


def test_names_are_escaped() -> None:
    rig = EngineRig()
    rig.send("m", topic='a"b\\c\nd', wait_ms=1_000)
    page = page_of(rig.engine, Edges(rig.now_ms))
    assert page['latermq_pending{kind="delayed",topic="a\\"b\\\\c\\nd",group=""}'] == 1


def test_series_are_bounded() -> None:
    rig = EngineRig()
    for n in range(5):
        rig.send("m", topic=f"t{n}", wait_ms=1_000)
    page = page_of(rig.engine, Edges(rig.now_ms, subscriptions_max=2))
    assert sum(name.startswith("latermq_pending{") for name in page) == 2
    assert sum(name.startswith("latermq_topic_messages_total{") for name in page) == 2
    assert page['latermq_series_left_out{of="topics"}'] == 3


def test_a_quantile_is_a_bound_of_a_bucket_or_the_largest_value() -> None:
    histogram = Histogram((1, 10, 100))
    assert histogram.quantile(0.99) == 0
    for value in (0.5, 1, 7, 10, 11):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1, 0]
    assert histogram.quantile(0.4) == 1
    assert histogram.quantile(0.8) == 10
    assert histogram.quantile(1) == 11
    histogram.observe(5_000)
    assert histogram.quantile(1) == 5_000


def test_what_was_late_is_forgotten_and_what_is_late_is_seen() -> None:
    """By all that was since the start, one late hour was told of for days, and a minute never."""
    figures = Figures()
    figures.lateness_ms.observe_some(3_600_000, 100)  # the broker was down
    assert figures.lateness_lately.quantile(0.99) == 3_600_000

    def live(begin_ms: int, end_ms: int, lateness_ms: int) -> None:
        for now_ms in range(begin_ms, end_ms, 1_000):
            figures.on_second(now_ms)
            figures.lateness_ms.observe_some(lateness_ms, 1_000)

    live(0, RECENT_MS, 1)
    assert figures.lateness_lately.quantile(0.99) == 1  # a thousand times as many
    assert figures.lateness_lately.quantile(1) == 3_600_000
    live(RECENT_MS, RECENT_MS + 2 * MARK_MS, 1)
    assert figures.lateness_lately.quantile(1) == 1
    assert figures.lateness_ms.quantile(1) == 3_600_000, "a Prometheus has all of them"
    live(RECENT_MS + 2 * MARK_MS, RECENT_MS + 4 * MARK_MS, 30_000)
    assert figures.lateness_lately.quantile(0.99) == 30_000


def test_what_is_old_is_not_kept() -> None:
    figures = Figures()
    for now_ms in range(0, 10 * RECENT_MS, 1_000):
        figures.on_second(now_ms)
        figures.sync_ms.observe(now_ms / 1_000_000)
    assert len(figures.sync_lately._marks) <= RECENT_MS // MARK_MS + 2
    figures.on_second(20 * RECENT_MS)
    figures.on_second(30 * RECENT_MS)
    assert figures.sync_lately.quantile(0.99) == 0


PAGE_BYTES: Final = 32 << 20  # more than two sockets hold


def nothing() -> Iterator[str]:
    return iter(())


class TestEndpoint:
    @pytest.fixture
    async def endpoint(self) -> AsyncIterator[MetricsEndpoint]:
        config = MetricsConfig(listen="127.0.0.1:0")
        self.ready = True

        def page() -> Iterator[str]:
            yield "# TYPE figures_total counter\n"
            yield "figures_total 1\n"

        async with MetricsEndpoint(config, page, lambda: self.ready) as made:
            yield made

    async def ask(self, endpoint: MetricsEndpoint, request: bytes) -> tuple[str, bytes]:
        """(status line, body) of the whole answer."""
        host, _, port = endpoint.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        answer = await reader.read()
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        status, *fields = head.decode().split("\r\n")
        told = dict(field.split(": ", 1) for field in fields)
        assert told.get("Connection") == "close"
        if not request.startswith(b"HEAD"):
            assert int(told["Content-Length"]) == len(body)
        return status, body

    async def test_it_answers(self, endpoint: MetricsEndpoint) -> None:
        get = b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n"
        page = b"# TYPE figures_total counter\nfigures_total 1\n"
        assert await self.ask(endpoint, get) == ("HTTP/1.1 200 OK", page)
        head = b"HEAD /metrics HTTP/1.0\r\n\r\n"
        assert await self.ask(endpoint, head) == ("HTTP/1.1 200 OK", b"")

    async def test_who_wants_openmetrics_gets_it(self, endpoint: MetricsEndpoint) -> None:
        get = b"GET /metrics HTTP/1.1\r\nAccept: application/OpenMetrics-text;version=1.0.0\r\n\r\n"
        page = b"# TYPE figures counter\nfigures_total 1\n# EOF\n"
        assert await self.ask(endpoint, get) == ("HTTP/1.1 200 OK", page)

    async def test_it_tells_whether_the_broker_lives_and_serves(
        self, endpoint: MetricsEndpoint
    ) -> None:
        ready, alive = b"GET /readyz HTTP/1.1\r\n\r\n", b"GET /healthz HTTP/1.1\r\n\r\n"
        assert await self.ask(endpoint, ready) == ("HTTP/1.1 200 OK", b"ready\n")
        self.ready = False
        assert await self.ask(endpoint, ready) == (
            "HTTP/1.1 503 Service Unavailable", b"not serving\n",
        )  # fmt: skip
        assert await self.ask(endpoint, alive) == ("HTTP/1.1 200 OK", b"alive\n")

    @pytest.mark.parametrize(
        ("line", "status"),
        [
            (b"GET / HTTP/1.1", 404), (b"POST /metrics HTTP/1.1", 405), (b"hello", 400),
            (b"GET /metrics SIP/1.1", 400),
        ],
    )  # fmt: skip
    async def test_it_refuses(self, endpoint: MetricsEndpoint, line: bytes, status: int) -> None:
        told, _ = await self.ask(endpoint, line + b"\r\n\r\n")
        assert told.startswith(f"HTTP/1.1 {status} ")

    async def test_a_page_that_fails_is_told(self) -> None:
        def fail() -> Iterator[str]:
            yield str(1 // 0)

        config = MetricsConfig(listen="127.0.0.1:0")
        async with MetricsEndpoint(config, fail, lambda: True) as endpoint:
            told, _ = await self.ask(endpoint, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert told == "HTTP/1.1 500 Internal Server Error"

    async def test_who_says_too_much_or_nothing_is_let_go(
        self, endpoint: MetricsEndpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        module = "latermq_broker.observability.metrics_endpoint"
        monkeypatch.setattr(f"{module}.REQUEST_S_MAX", 0.05)
        host, _, port = endpoint.address.rpartition(":")
        for said in (b"GET /" + b"x" * 100_000, b"", b"GET"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(said)
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()

    async def test_who_does_not_read_is_let_go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its page was kept for as long as its machine was there, and it was not counted."""
        bounds: list[tuple[float, asyncio.Timeout]] = []

        def bound(delay_s: float) -> asyncio.Timeout:
            bounds.append((delay_s, asyncio.timeout_at(None)))  # its time comes when the test says
            return bounds[-1][1]

        monkeypatch.setattr(asyncio, "timeout", bound)

        def page() -> Iterator[str]:
            yield "x" * PAGE_BYTES

        config = MetricsConfig(listen="127.0.0.1:0")
        async with MetricsEndpoint(config, page, lambda: True) as endpoint:
            host, _, port = endpoint.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 10)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            got = len(await reader.readexactly(1))  # the page is written, and waits to be read
            [(delay_s, timeout)] = bounds
            timeout.reschedule(asyncio.get_running_loop().time())
            with suppress(ConnectionResetError):
                while piece := await reader.read(1 << 20):
                    got += len(piece)
            writer.close()
        assert delay_s == REQUEST_S_MAX
        assert got < PAGE_BYTES, "what was on its way, and nothing more"

    @pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
    async def test_who_says_nothing_keeps_no_probe_out(
        self, endpoint: MetricsEndpoint, source: str
    ) -> None:
        host, _, port = endpoint.address.rpartition(":")
        held = [
            await asyncio.open_connection(host, int(port), local_addr=(source, 0))
            for _ in range(3 * CONNECTIONS_MAX)
        ]
        for path in (b"/healthz", b"/readyz", b"/metrics"):
            told, _ = await self.ask(endpoint, b"GET " + path + b" HTTP/1.1\r\n\r\n")
            assert told == "HTTP/1.1 200 OK"
        assert await held[0][0].read() == b"", "the oldest went"
        for _, one in held:
            one.close()

    async def test_who_does_not_read_the_page_keeps_no_probe_out(self) -> None:
        def page() -> Iterator[str]:
            yield "x" * PAGE_BYTES

        config = MetricsConfig(listen="127.0.0.1:0")
        async with MetricsEndpoint(config, page, lambda: True) as endpoint:
            host, _, port = endpoint.address.rpartition(":")

            async def begun(source: str) -> tuple[bytes, asyncio.StreamWriter]:
                reader, writer = await asyncio.open_connection(
                    host, int(port), limit=1 << 10, local_addr=(source, 0)
                )
                writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
                return (await reader.readline()).strip(), writer

            told = [await begun("127.0.0.2") for _ in range(PAGES_PER_ADDRESS_MAX + 1)]
            told += [await begun("127.0.0.3") for _ in range(PAGES_MAX)]
            assert [line.split()[1] for line, _ in told] == [
                *[b"200"] * PAGES_PER_ADDRESS_MAX, b"503",
                *[b"200"] * PAGES_PER_ADDRESS_MAX, *[b"503"] * PAGES_PER_ADDRESS_MAX,
            ]  # fmt: skip
            said, _ = await self.ask(endpoint, b"GET /healthz HTTP/1.1\r\n\r\n")
            assert said == "HTTP/1.1 200 OK"
            for _, writer in told:
                writer.transport.abort()

    async def test_off_by_default_and_an_address_in_use_is_an_error(
        self, endpoint: MetricsEndpoint
    ) -> None:
        async with MetricsEndpoint(MetricsConfig(), nothing, lambda: True) as silent:
            assert silent.address == ""
        again = MetricsEndpoint(MetricsConfig(listen=endpoint.address), nothing, lambda: True)
        with pytest.raises(ConfigError, match=r"metrics\.listen: cannot bind"):
            await again.__aenter__()

    def test_bounds(self) -> None:
        with pytest.raises(ConfigError, match=r"metrics\.subscriptions_max"):
            MetricsConfig(subscriptions_max=0)

    def test_not_an_address(self) -> None:
        with pytest.raises(ConfigError, match=r"metrics\.listen"):
            MetricsConfig(listen="9464")


async def test_work_that_lasts_says_how_long_it_waits() -> None:
    background = Background(BackgroundConfig())
    async with background.job("a", "list") as job:
        await job.turn()
        page = page_of(EngineRig().engine, Edges(0, background=background))
    assert page["latermq_background_open"] == 1
    assert page["latermq_background_waiting"] == page["latermq_background_refused_total"] == 0
    assert page['latermq_background_wait_seconds_count{kind="list"}'] == 1
    assert page['latermq_background_seconds_total{kind="list"}'] >= 0
    assert "latermq_background_open" not in page_of(EngineRig().engine, Edges(0))
