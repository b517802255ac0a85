"""The shipped alerts over what befalls a log: old messages that a group has not read."""

import shutil
from pathlib import Path
from typing import Final

import pytest

from support.alert_life import AlertLife
from support.engine_rig import EngineRig, short_store

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool (Debian: prometheus)"
)
HOUR_MS: Final = 3_600_000
BODY: Final = b"x" * 1_000
WAITS: Final = {"LaterMQNobodyReceives billing orders", "LaterMQGroupBehind billing orders"}
KEPT: Final = "LaterMQKeptUnread"
GOING: Final = "LaterMQUnreadGoing"
EXPIRED: Final = "LaterMQExpiredUnread billing orders"


def keeping() -> EngineRig:
    """A broker that keeps messages for an hour, and unread ones for six."""
    rig = EngineRig(store=short_store(retention_ms=HOUR_MS, unread_retention_ms=6 * HOUR_MS))
    rig.send("first")
    rig.ack(*rig.receive())
    return rig


def read_all(rig: EngineRig) -> None:
    while delivered := rig.receive(count=32):
        rig.ack(*delivered)


def fill(rig: EngineRig, count: int = 60) -> None:
    """Send messages over several segments."""
    for _ in range(count):
        rig.send("m", body=BODY)
    rig.checkpoint()


def test_old_messages_that_a_group_reads_go_and_alert_nobody(tmp_path: Path) -> None:
    rig = keeping()
    life = AlertLife(rig)
    for _ in range(8):
        fill(rig)
        life.live(30, lambda: read_all(rig))
        rig.retain()
    life.check(tmp_path, set())


def test_unread_messages_alert_before_they_go_and_when_they_are_gone(tmp_path: Path) -> None:
    rig = keeping()
    life = AlertLife(rig)
    fill(rig)
    for hour in range(1, 8):
        life.live(55)
        rig.send("later", body=BODY)
        rig.retain()
        life.live(5)
        if hour == 1:
            life.expect(*WAITS)
        if hour == 4:
            life.expect(*WAITS, KEPT)
    life.live(30)
    life.check(tmp_path, WAITS | {KEPT, GOING, EXPIRED})


def test_unread_messages_that_are_read_in_time_alert_no_longer(tmp_path: Path) -> None:
    rig = keeping()
    life = AlertLife(rig)
    fill(rig)
    for _ in range(4):
        life.live(59)
        rig.retain()
    life.expect(*WAITS, KEPT)
    read_all(rig)
    rig.retain()
    life.live(30)
    life.expect()
    life.check(tmp_path, WAITS | {KEPT, "LaterMQGroupSlow billing orders"})
