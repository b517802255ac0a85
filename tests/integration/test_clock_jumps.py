"""A broker process whose wall clock is set by an hour, while it runs and between two lives."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wall_clock import WallClock
from support.wire_client import WireClient, now_ms, require_ok

TOPIC, GROUP = "orders", "billing"
HOUR_S, SOON_MS = 3_600, 300
CONFIG = "[store]\nsegment_bytes = 20971520\n[server]\npolling_ms_min = 100\n"


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


def bodies(wire: WireClient, group: str, wait_ms: int = 0, invisible_ms: int = 60_000) -> list[str]:
    got = wire.receive(TOPIC, group, wait_ms=wait_ms, invisible_ms=invisible_ms)
    return [message.body.decode() for message in got.messages]


def first_of(wire: WireClient, group: str) -> str:
    """Wait for what comes first, far less long than the hour that a wrong clock would mean."""
    until_s = time.monotonic() + patient(5)
    while time.monotonic() < until_s:
        if got := bodies(wire, group, wait_ms=300):
            return got[0]
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
        assert first_of(wire, GROUP) == "in half an hour"
        due_ms = now_ms() + SOON_MS
        send(wire, "soon", due_ms + HOUR_S * 1_000)  # by a clock that is right
        assert first_of(wire, GROUP) == "soon"
        assert now_ms() >= due_ms
        assert bodies(wire, GROUP) == []


def test_set_back_nothing_comes_before_its_time_and_nothing_is_stuck(
    wall: WallClock, broker: BrokerProcess
) -> None:
    with WireClient(broker.endpoint) as wire:
        wall.set_ahead(-HOUR_S)
        due_ms = now_ms() + SOON_MS
        send(wire, "soon", due_ms - HOUR_S * 1_000)
        assert first_of(wire, GROUP) == "soon"
        assert now_ms() >= due_ms
        send(wire, "leased for a moment")
        before_s = time.monotonic()
        assert bodies(wire, GROUP, invisible_ms=SOON_MS) == ["leased for a moment"]
        assert first_of(wire, GROUP) == "leased for a moment"
        assert time.monotonic() - before_s >= SOON_MS / 1_000


def test_a_restart_with_an_earlier_clock(wall: WallClock, broker: BrokerProcess) -> None:
    with WireClient(broker.endpoint) as wire:
        send(wire, "held")
        assert bodies(wire, GROUP) == ["held"]
    broker.kill()
    wall.set_ahead(-HOUR_S)
    broker.start()
    with WireClient(broker.endpoint, "again@1@0@test") as wire:
        due_ms = now_ms() + SOON_MS
        send(wire, "soon", due_ms - HOUR_S * 1_000)
        assert first_of(wire, GROUP) == "soon"
        assert now_ms() >= due_ms
        send(wire, "now")
        assert bodies(wire, GROUP) == ["now"]
    ended = broker.terminate()
    assert ended.code == 0


def stored_before(wire: WireClient, time_ms: int) -> int:
    """Count what was stored before a time of day, by the offsets that Java's client asks for."""
    count = 0
    for queue in wire.route(TOPIC).message_queues:
        request = service_pb2.QueryOffsetRequest(query_offset_policy=definition_pb2.TIMESTAMP)
        request.message_queue.CopyFrom(queue)
        request.timestamp.FromMilliseconds(time_ms)
        answer = wire.call(wire.messaging.QueryOffset, request)
        require_ok(answer)
        count += answer.offset
    return count


def test_a_machine_that_slept_is_asked_for_what_came_since_it_woke(
    wall: WallClock, broker: BrokerProcess
) -> None:
    """While it runs, after a restart on that clock, and after one on the clock as it was."""
    ahead_ms = 8 * HOUR_S * 1_000
    with WireClient(broker.endpoint) as wire:
        for number in range(2):
            send(wire, f"before {number}")
        wall.set_ahead(8 * HOUR_S)
        woke_ms = now_ms() + ahead_ms
        for number in range(3):
            send(wire, f"after {number}")
        assert stored_before(wire, woke_ms - 600_000) == 2
        assert stored_before(wire, woke_ms - ahead_ms - 600_000) == 0
    for ahead_s in (8 * HOUR_S, 0):
        broker.kill()
        wall.set_ahead(ahead_s)
        broker.start()
        with WireClient(broker.endpoint, f"again{ahead_s}@1@0@test") as wire:
            assert stored_before(wire, woke_ms - 600_000) == 2
            assert stored_before(wire, woke_ms - ahead_ms - 600_000) == 0
