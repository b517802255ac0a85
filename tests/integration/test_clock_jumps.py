"""A broker process whose wall clock is set by an hour, while it runs and between two lives."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import wire_requests
from support.broker_process import BrokerProcess
from support.wall_clock import WallClock
from support.wire_client import WireClient, now_ms, require_ok

TOPIC, GROUP = "orders", "billing"
HOUR_S = 3_600
CONFIG = "[store]\nsegment_bytes = 20971520\n[server]\npolling_ms_min = 100\n"


@pytest.fixture
def wall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(tmp_path, monkeypatch)


@pytest.fixture
def broker(wall: WallClock, tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", config=CONFIG) as process:
        process.start()
        with WireClient(process.endpoint) as wire:
            wire.create_topic(TOPIC)
        yield process


def send(wire: WireClient, body: str, due_ms: int = 0) -> None:
    message = wire_requests.message(TOPIC, body.encode(), deliver_at_ms=due_ms)
    require_ok(wire.send(message))


def bodies(
    wire: WireClient, group: str, wait_ms: int = 300, invisible_ms: int = 60_000
) -> list[str]:
    got = wire.receive(TOPIC, group, wait_ms=wait_ms, invisible_ms=invisible_ms)
    return [message.body.decode() for message in got.messages]


def first_of(wire: WireClient, group: str, until_s: float = 5.0) -> tuple[str, float]:
    """(what comes first, after how many seconds)."""
    began_s = time.monotonic()
    while time.monotonic() - began_s < until_s:
        if got := bodies(wire, group):
            return got[0], time.monotonic() - began_s
    raise AssertionError("nothing came")


def test_set_forward_what_it_passes_comes_and_leases_stay(
    wall: WallClock, broker: BrokerProcess
) -> None:
    with WireClient(broker.endpoint) as wire:
        send(wire, "held")
        assert bodies(wire, GROUP) == ["held"]
        send(wire, "in half an hour", now_ms() + HOUR_S * 500)
        send(wire, "in two hours", now_ms() + HOUR_S * 2_000)
        assert bodies(wire, GROUP) == []
        wall.set_ahead(HOUR_S)
        assert first_of(wire, GROUP)[0] == "in half an hour"
        send(wire, "in a second", now_ms() + HOUR_S * 1_000 + 1_000)  # by a clock that is right
        body, waited_s = first_of(wire, GROUP)
        assert body == "in a second"
        assert 0.7 < waited_s < 2.5
        assert bodies(wire, GROUP) == []


def test_set_back_nothing_comes_before_its_time_and_nothing_is_stuck(
    wall: WallClock, broker: BrokerProcess
) -> None:
    with WireClient(broker.endpoint) as wire:
        wall.set_ahead(-HOUR_S)
        send(wire, "in a second", now_ms() - HOUR_S * 1_000 + 1_000)
        body, waited_s = first_of(wire, GROUP)
        assert body == "in a second"
        assert 0.7 < waited_s < 2.5
        send(wire, "leased for a second")
        assert bodies(wire, GROUP, invisible_ms=1_000) == ["leased for a second"]
        body, waited_s = first_of(wire, GROUP)
        assert body == "leased for a second"
        assert 0.5 < waited_s < 3


def test_a_restart_with_an_earlier_clock(wall: WallClock, broker: BrokerProcess) -> None:
    with WireClient(broker.endpoint) as wire:
        send(wire, "held")
        assert bodies(wire, GROUP) == ["held"]
    broker.kill()
    wall.set_ahead(-HOUR_S)
    broker.start()
    with WireClient(broker.endpoint, "again@1@0@test") as wire:
        send(wire, "in a second", now_ms() - HOUR_S * 1_000 + 1_000)
        body, waited_s = first_of(wire, GROUP)
        assert body == "in a second"
        assert 0.7 < waited_s < 2.5
        send(wire, "now")
        assert bodies(wire, GROUP) == ["now"]
    ended = broker.terminate()
    assert ended.code == 0
