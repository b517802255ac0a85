"""Every query of the shipped dashboard, put to a real Prometheus that scrapes real brokers.

One broker works and fails as a shop's does. What none does that is well has one of its own: a full
disk, messages that go unread by their age, a log that others keep. Needs Prometheus (Debian).
"""

import asyncio
import json
import math
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import latermq
from gameday.prometheus import Prometheus
from latermq import admin
from latermq_proto.latermq.v1 import dead_letter_pb2
from support import console_story as shop
from support import replica_process, wire_requests
from support.broker_process import BrokerProcess
from support.cluster_process import free_ports
from support.machine import patient
from support.replica_process import LogServerProcess, ReplicaProcess
from support.wire_client import WireClient, require_ok

ROOT: Final = Path(__file__).resolve().parents[2]
DASHBOARD: Final = ROOT / "broker/latermq_broker/config/operating/latermq.dashboard.json"
METRICS: Final = '[metrics]\nlisten = "127.0.0.1:{port}"\n'
FULL: Final = """[store]
segment_bytes = 1048576
message_body_bytes_max = 131072
disk_low_percent = 99
disk_full_percent = 99
"""
DISK_MIB: Final = 16  # a segment is more than a hundredth of it
WITHOUT_SMALL_DISK: Final = "latermq_sends_refused_disk_full_total"
AGED: Final = """[store]
segment_bytes = 1048576
message_body_bytes_max = 131072
retention_ms = 1000
checkpoint_interval_ms = 300
disk_full_percent = 0
disk_low_percent = 0
"""
KINDS: Final = ("comma", "comma", "fine", "slow")
SETTLED: Final = 3 * shop.ATTEMPTS + 1
FILLER: Final = b"x" * 65_536
FILLERS: Final = 40  # more than a segment
ROUNDS_S_MAX: Final = patient(90)
VALUES_OF: Final = re.compile(r"label_values\((.+), (\w+)\)")
LABEL: Final = re.compile(r"\{\{(\w+)\}\}")

pytestmark = [
    pytest.mark.timeout(patient(240)),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus"),
    pytest.mark.skipif(
        os.environ.get("LATERMQ_SERVER_TRANSPORT", "lean") != "lean",
        reason="grpcio does not tell of connections",
    ),
]


class Query(NamedTuple):
    """What the dashboard asks, and the labels that it writes of each series."""

    expr: str
    labels: frozenset[str]


def queries() -> Iterator[Query]:
    """Give every query as Grafana sends it when nothing is chosen."""
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    variables = [each for each in board["templating"]["list"] if each["type"] == "query"]
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            expr = target["expr"]
            for each in variables:
                expr = expr.replace(f"${each['name']}", each["allValue"])
            assert "$" not in expr, expr
            yield Query(expr, frozenset(LABEL.findall(target["legendFormat"])))
    for each in variables:
        match = VALUES_OF.fullmatch(each["query"]["query"])
        assert match is not None, each["query"]
        yield Query(f"group by ({match[2]}) ({match[1]})", frozenset({match[2]}))
    for each in board["annotations"]["list"]:
        yield Query(each["expr"], frozenset())


def answered(prometheus: Prometheus, query: Query) -> bool:
    """Tell whether there is a number to draw, with what is written beside it."""
    return any(
        not math.isnan(float(each["value"][1])) and query.labels <= each["metric"].keys()
        for each in prometheus.query(query.expr)
    )


async def work(endpoint: str) -> None:
    """Send and work off orders; some die, one is held, one waits, one comes due."""
    async with latermq.connect(endpoint) as mq:
        await shop.send_orders(mq, list(KINDS))
        await mq.send("reminders", b"soon", delay=timedelta(milliseconds=20))
        await mq.send("reminders", b"later", delay=timedelta(hours=1))
        await shop.work(mq, SETTLED)
        holding = mq.simple_consumer(shop.TOPIC, group="shipping")
        await holding.receive(1, invisible=timedelta(minutes=10))


def redrive_one(endpoint: str) -> None:
    with admin.connect(endpoint) as broker:
        request = dead_letter_pb2.RedriveDeadLettersRequest(group=shop.GROUP, max_count=1)
        (*_, last) = broker.stream(broker.dead_letters.RedriveDeadLetters, request)
    assert last.done


def speak_nonsense(endpoint: str) -> None:
    host, _, port = endpoint.rpartition(":")
    with socket.create_connection((host, int(port)), patient(10)) as connection:
        connection.sendall(b"GET /console HTTP/1.1\r\nHost: here\r\n\r\n")
        while connection.recv(4_096):  # until it is closed
            pass


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A disk that a segment fills; None: nothing can be mounted here."""
    mount = tmp_path / "disk"
    mount.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(mount)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        yield None
        return
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


class Brokers:
    """Four, each with what the others lack."""

    def __init__(self, stack: ExitStack, home: Path, small_disk: Path | None) -> None:
        ports = free_ports(4)
        self.targets = [f"127.0.0.1:{port}" for port in ports]
        pages = [METRICS.format(port=port) for port in ports]
        log_server = stack.enter_context(LogServerProcess())
        self.busy = BrokerProcess(home / "busy", config=pages[0])
        self._fills = small_disk is not None
        self.full = BrokerProcess((small_disk or home) / "full", config=FULL + pages[1])
        self.aged = BrokerProcess(home / "aged", config=AGED + pages[2])
        owner_config = replica_process.CONFIG + pages[3]
        self.owner = ReplicaProcess(home / "owner", log_server, owner_config)
        for broker in (self.busy, self.full, self.aged, self.owner):
            stack.enter_context(broker).start()
        asyncio.run(self._set_up())

    async def _set_up(self) -> None:
        await shop.make_topic(self.busy.endpoint, shop.TOPIC)
        await shop.make_groups(self.busy.endpoint, shop.GROUP)

    def go_round(self, number: int) -> None:
        """Let happen once more whatever a panel shows."""
        asyncio.run(work(self.busy.endpoint))
        redrive_one(self.busy.endpoint)
        speak_nonsense(self.busy.endpoint)
        if number == 1:
            self.full.terminate()
            self.full.start()
        message = wire_requests.message("orders", b"body")
        with WireClient(self.full.endpoint) as wire:
            until_s = time.monotonic() + patient(30)  # it looks at its disk now and then
            while "disk full" not in wire.send(message).status.message and self._fills:
                assert time.monotonic() < until_s
                time.sleep(0.1)
        with WireClient(self.owner.endpoint) as wire:
            require_ok(wire.send(message))
        with WireClient(self.aged.endpoint) as wire:
            for _ in range(FILLERS):
                require_ok(wire.send(wire_requests.message("orders", FILLER)))
            if number == 0:  # the group that misses the rest
                wire.receive("orders", "billing", count_max=1, wait_ms=1_000, invisible_ms=60_000)


def test_every_query_of_the_dashboard_returns_data(tmp_path: Path, small_disk: Path | None) -> None:
    wanted = [each for each in queries() if small_disk or WITHOUT_SMALL_DISK not in each.expr]
    assert len(wanted) > 40
    with ExitStack() as stack:
        brokers = Brokers(stack, tmp_path, small_disk)
        prometheus = stack.enter_context(Prometheus(tmp_path / "prometheus", *brokers.targets))
        until_s = time.monotonic() + ROUNDS_S_MAX
        rounds = 0
        while wanted:
            assert time.monotonic() < until_s, f"{rounds} rounds, no data: {wanted}"
            brokers.go_round(rounds)
            rounds += 1
            prometheus.wait_scraped()
            wanted = [each for each in wanted if not answered(prometheus, each)]


def test_a_query_that_asks_for_what_is_not_there_is_noticed(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    with BrokerProcess(tmp_path / "data", config=METRICS.format(port=port)) as broker:
        broker.start()
        with Prometheus(tmp_path / "prometheus", f"127.0.0.1:{port}") as prometheus:
            prometheus.wait_scraped()
            assert answered(prometheus, Query("latermq_build_info", frozenset({"version"})))
            for query in (
                Query("latermq_no_such_series", frozenset()),
                Query("latermq_build_info", frozenset({"group"})),
                Query("latermq_build_info * NaN", frozenset()),
            ):
                assert not answered(prometheus, query), query
