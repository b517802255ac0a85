"""A game day: six faults, one after another, in a broker that works, watched by a real Prometheus.

    make game-day           about six minutes: a day that goes by thirty times as fast
    make game-day PAGE=1    the table, into docs/operating/game-day.md

Of each fault: the alert of the shipped rules that fires, that no other does, what a command says of
the cause, and that the alert ends when the fault has. A group that nothing is wrong with works on
all day. Needs Prometheus (Debian: prometheus), a C compiler for the clock, the right to mount.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gameday.ballast import Ballast
from gameday.page import Row, write
from gameday.prometheus import Alert, Prometheus
from gameday.shop import GROUP, STEADY_GROUP, TOPIC, Shop
from support.broker_process import BrokerProcess
from support.cluster_process import free_ports
from support.console_story import make_groups
from support.machine import patient
from support.wall_clock import WallClock

MIB: Final = 1 << 20
DISK_MIB: Final = 64
PAUSE_S: Final = patient(0.2)  # that a slow consumer takes for each
RESTARTS_MAX: Final = 9
ALERT_S: Final = patient(90)
QUIET_S: Final = patient(150)
CONFIG: Final = """
[store]
segment_bytes = 524288
message_body_bytes_max = 65536
[server]
polling_ms_min = 100
[metrics]
listen = "127.0.0.1:{port}"
"""

pytestmark = [
    pytest.mark.timeout(patient(600)),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus"),
]


class Day:
    """The broker, who works with it, who watches it, and what was found."""

    def __init__(
        self, broker: BrokerProcess, shop: Shop, watcher: Prometheus, wall: WallClock, disk: Path
    ) -> None:
        self.broker, self.shop, self.watcher, self.wall = broker, shop, watcher, wall
        self.disk = disk
        self.rows: list[Row] = []
        self._fault = ""
        self._began_s = 0.0
        self._expected: set[str] = set()

    def fault(self, words: str, *may_fire: str) -> None:
        """Begin a fault: whatever fires until `over` is one of these alerts."""
        self._fault, self._expected = words, set(may_fire)
        self.begin()

    def begin(self) -> None:
        """Have what fires from now on count from now on."""
        self._began_s = time.monotonic()

    def fires(self, name: str, *words: str, **labels: str) -> Alert:
        """Wait until it does, and check that its summary has these words."""
        found: list[Alert] = []

        def fires() -> bool:
            firing = self.watcher.firing()
            assert {alert.name for alert in firing} <= self._expected, firing
            assert all(alert.labels.get("group") != STEADY_GROUP for alert in firing), firing
            found[:] = [alert for alert in firing if alert.name == name]
            return bool(found)

        self.watcher.wait_until(fires, ALERT_S)
        (alert,) = found
        assert labels.items() <= alert.labels.items(), alert
        assert all(word in alert.summary for word in words), alert
        self._after_s = time.monotonic() - self._began_s
        return alert

    def told(self, alert: Alert, command: str, wanted: str, code: int = 0) -> str:
        """Run a command that names the cause, by a line that is like `wanted`."""
        ended = subprocess.run(
            [sys.executable, "-m", "latermq_broker", *command.split()[1:]],
            env={**os.environ, "LATERMQ_ENDPOINT": self.broker.endpoint, "COLUMNS": "120"},
            capture_output=True, text=True, timeout=patient(60), check=False,
        )  # fmt: skip
        said = ended.stdout + ended.stderr
        assert ended.returncode == code, said
        line = re.search(f"^.*{wanted}.*$", said, re.MULTILINE)
        assert line is not None, f"{wanted} is not in\n{said}"
        row = Row(self._fault, alert.name, self._after_s, command, line[0], alert.runbook)
        self.rows.append(row)
        return said

    def over(self) -> None:
        """Wait until nothing fires any more, nor is about to."""

        def quiet() -> bool:
            firing = self.watcher.firing()
            assert {alert.name for alert in firing} <= self._expected, firing
            return not firing and not self.watcher.firing("pending")

        self.watcher.wait_until(quiet, QUIET_S)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    mount = tmp_path_factory.mktemp("disk")
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(mount)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("no small disk can be mounted here")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


@pytest.fixture(scope="module")
def day(disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    directory = tmp_path_factory.mktemp("day")
    port = free_ports(1)[0]
    with pytest.MonkeyPatch.context() as patch:
        wall = WallClock(directory)
        wall.preload(patch)
        broker = BrokerProcess(disk / "data", config=CONFIG.format(port=port))
        with (
            broker.start(),
            Prometheus(directory / "watch", f"127.0.0.1:{port}") as watcher,
            Shop(broker.endpoint) as shop,
        ):
            shop.now(make_groups(broker.endpoint, GROUP))
            found = Day(broker, shop, watcher, wall, disk)
            yield found
    if os.environ.get("PAGE") and found.rows:
        write(found.rows)


def test_a_slow_consumer(day: Day) -> None:
    # What it had left is done late when the fault is over.
    alerts = ("LaterMQGroupBehind", "LaterMQGroupSlow")
    day.fault("A consumer is slower than what comes", *alerts)
    slow = day.shop.begin(day.shop.work(pause_s=PAUSE_S))
    day.shop.now(day.shop.send(*[b"order"] * 1_500))
    alert = day.fires("LaterMQGroupBehind", "Group billing is", "behind on orders", group=GROUP)
    day.told(alert, "latermq top --once", rf"{GROUP} ")
    day.told(alert, f"latermq group show {GROUP}", TOPIC)
    day.shop.leave(slow)
    fast = day.shop.begin(day.shop.work())
    day.shop.now(day.shop.done())
    day.shop.leave(fast)
    day.over()


def test_a_slow_consumer_that_has_taken_all_that_waits(day: Day) -> None:
    day.fault("A consumer has taken all there is, and is slow with it", "LaterMQGroupSlow")
    slow = day.shop.begin(day.shop.hoard(320, pause_s=PAUSE_S))
    day.shop.now(day.shop.send(*[b"order"] * 320))
    alert = day.fires("LaterMQGroupSlow", "Half of what group billing finishes", group=GROUP)
    day.told(alert, f"latermq client list --group {GROUP}", rf"simple +{GROUP} +\d+ ")
    day.shop.now(day.shop.done())
    day.shop.leave(slow)
    day.over()


def test_a_poison_message(day: Day) -> None:
    day.fault("A message that no consumer can digest", "LaterMQDeadLetters")
    fine = day.shop.begin(day.shop.work())
    day.shop.now(day.shop.send(b"order", b"order", b"poison", b"order"))
    alert = day.fires("LaterMQDeadLetters", "orders", "billing", group=GROUP, topic=TOPIC)
    day.told(alert, f"latermq dead list {GROUP}", "CardReaderError.*track 2 is empty")
    day.shop.leave(fine)
    day.over()


def test_a_broker_that_is_killed(day: Day) -> None:
    day.fault("The broker is killed", "LaterMQDown", "LaterMQRestarts")
    day.broker.kill()
    alert = day.fires("LaterMQDown", "does not answer")
    day.told(alert, "latermq health", "does not answer: UNAVAILABLE", code=1)
    day.fault("It is killed again and again", "LaterMQDown", "LaterMQRestarts")
    day.broker.start()
    for lives in range(1, RESTARTS_MAX):  # more than three where they take long
        day.watcher.wait_scraped()  # in each of its lives
        if lives >= 3:
            day.watcher.wait_scraped()  # between two scrapes the rules were evaluated
            if "LaterMQRestarts" in {alert.name for alert in day.watcher.firing()}:
                break
        day.broker.kill()
        day.broker.start()
    alert = day.fires("LaterMQRestarts", "was started")
    assert re.search("was started [3-9] times", alert.summary), alert
    day.told(alert, "latermq broker show", "started .*ago")
    day.over()


def test_a_disk_that_fills(day: Day) -> None:
    alerts = ("LaterMQDiskFills", "LaterMQDiskLow", "LaterMQDiskFull")
    with Ballast(day.disk, DISK_MIB * MIB * 8 // 100) as ballast:
        day.fault("Something fills the disk", *alerts)
        alert = day.fires("LaterMQDiskFills", "in less than six hours")
        day.told(alert, "latermq broker show", "disk .*free")
        day.fault("Less than a tenth of it is free", *alerts)
        day.watcher.wait_until(lambda: ballast.free_percent() < 10, ALERT_S)
        day.begin()
        alert = day.fires("LaterMQDiskLow", "nearly full")
        day.told(alert, "latermq broker show", "disk .*nearly full: .*old messages go early")
        day.fault("It is full", *alerts)
        ballast.free_bytes = MIB
        day.watcher.wait_until(lambda: ballast.free_percent() < 5, ALERT_S)
        day.begin()
        alert = day.fires("LaterMQDiskFull", "sends are refused")
        day.told(alert, "latermq broker show", "disk .*full: .*sends are refused")
    day.over()


def test_a_clock_that_is_set(day: Day) -> None:
    day.fault("The machine's clock is set an hour ahead", "LaterMQClockStepped")
    day.wall.set_ahead(3_600)
    alert = day.fires("LaterMQClockStepped", "1h 0m")
    day.told(alert, "latermq broker show", "the wall clock is 1h ahead of the broker's own time")
    day.wall.set_ahead(0)
    day.over()


def test_a_client_that_hoards(day: Day) -> None:
    # What it leaves waits, too, and is behind after ten minutes; at last all is done, and late.
    alerts = ("LaterMQNothingFinishes", "LaterMQGroupBehind", "LaterMQGroupSlow")
    day.fault("A client takes messages and does nothing with them", *alerts)
    hoarder = day.shop.begin(day.shop.hoard(96))
    day.shop.now(day.shop.send(*[b"order"] * 128))
    alert = day.fires("LaterMQNothingFinishes", "hold 96 messages of orders", group=GROUP)
    said = day.told(alert, f"latermq client list --group {GROUP}", rf"simple +{GROUP} +96 ")
    client = re.search(r"^(\S+) +simple", said, re.MULTILINE)
    assert client is not None, said
    day.told(alert, f"latermq client show {client[1]}", f"{GROUP} +{TOPIC} +96 ")
    fine = day.shop.begin(day.shop.work())
    day.shop.leave(hoarder)
    day.told(alert, f"latermq client kick {client[1]} --yes", "96 messages released")
    day.shop.now(day.shop.done())
    day.shop.leave(fine)
    day.over()
