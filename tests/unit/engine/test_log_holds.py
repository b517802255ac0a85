"""What a backup copies stays until it has: while it says so, and while there is room."""

from typing import Final

import pytest

from latermq_broker.config.config import StoreConfig
from latermq_broker.engine.retention.holds import HOLD_MS, HOLDS_MAX, LogHolds
from latermq_broker.errors import BadRequestError, NotFoundError
from latermq_broker.store.disk_pressure import DiskPressure
from latermq_broker.store.files import Space
from support.engine_rig import EngineRig, short_store

MINUTE_MS: Final = 60_000


def old_rig() -> EngineRig:
    """Five segments that may go."""
    rig = EngineRig(store=short_store(retention_ms=MINUTE_MS))
    while len(rig.segments()) < 6:
        rig.send("m", body=b"x" * 1_000)
    rig.checkpoint()
    rig.engine.log_copy.begin(rig.now_ms + 2 * MINUTE_MS)
    rig.advance(2 * MINUTE_MS)
    return rig


def test_retention_waits_for_who_copies() -> None:
    rig = old_rig()
    before = rig.segments()
    rig.retain()
    assert rig.segments() == before
    rig.engine.log_copy.keep("1", before[2], rig.now_ms)  # the first two are copied
    rig.retain()
    assert rig.segments() == before[2:]
    rig.engine.log_copy.keep("1", 0, rig.now_ms)
    rig.retain()
    assert len(rig.segments()) == 1


def test_a_hold_that_nobody_renews_ends() -> None:
    rig = old_rig()
    rig.advance(HOLD_MS)
    rig.retain()
    assert len(rig.segments()) == 1
    with pytest.raises(NotFoundError):
        rig.engine.log_copy.keep("1", 1, rig.now_ms)
    with pytest.raises(NotFoundError):
        rig.engine.log_copy.read(0, 100)


def test_who_needs_room_does_not_wait() -> None:
    rig = old_rig()
    rig.engine.store.disk.look(Space(5, 100))
    rig.retain()
    assert len(rig.segments()) == 1


def test_a_pass_that_had_begun_drops_nothing() -> None:
    rig = EngineRig(store=short_store(retention_ms=MINUTE_MS))
    while len(rig.segments()) < 6:
        rig.send("m", body=b"x" * 1_000)
    rig.checkpoint()
    rig.now_ms += 2 * MINUTE_MS
    rig.engine.retention.step_cost = 1
    rig.engine.chores[0].step(rig.now_ms)  # judges the first segments
    rig.engine.log_copy.begin(rig.now_ms)
    before = rig.segments()
    rig.engine.retention.step_cost = 1 << 30
    rig.retain()
    assert rig.segments() == before


def test_holds() -> None:
    holds = LogHolds(DiskPressure(StoreConfig()))
    assert not holds.needs(1_000, 0)
    first, second = holds.begin(100, 0), holds.begin(50, 10)
    assert holds.needs(51, 10)
    assert not holds.needs(50, 10)
    assert holds.keep(second, 200, 20)
    assert not holds.needs(100, 30)
    assert holds.needs(101, 30)
    assert not holds.needs(200, HOLD_MS)
    assert holds.needs(201, HOLD_MS)
    assert not holds.keep(first, 100, HOLD_MS)
    assert holds.keep(second, 0, HOLD_MS)
    assert not holds.needs(1 << 40, HOLD_MS)
    for position in range(HOLDS_MAX + 1):
        holds.begin(position, 0)
    assert not holds.needs(1, 1)
    assert holds.needs(2, 1)


def test_only_what_is_on_the_disk_is_read() -> None:
    rig = EngineRig()
    rig.send("m")
    log = rig.engine.store.log
    with pytest.raises(BadRequestError):
        rig.engine.log_copy.read(log.durable, 1)
    assert len(rig.engine.log_copy.read(0, 1 << 30)) == log.durable
