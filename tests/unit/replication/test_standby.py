"""What becomes of an engine that only follows: it keeps nothing that its owner let go; and of the
time, when it takes over."""

from dataclasses import replace

import pytest

from latermq_broker.config.config import LiteConfig
from latermq_broker.engine.catalog.lites import lite_key
from latermq_broker.engine.state.model import Outgoing, TopicType
from support.driven_standby import DrivenStandby, ShippedLog
from support.engine_rig import EngineRig
from support.memory_files import MemoryFiles

SECOND_MS = 1_000
FIRED = 300


class FollowedRig(EngineRig):
    """With a standby, which has read all that is there and goes on with the log."""

    def follow(self, ahead_ms: int = 0) -> None:
        shipped = ShippedLog(self.engine.store.log)
        self.standby = DrivenStandby(
            shipped, self.config, MemoryFiles(), lambda: self.now_ms + ahead_ms
        )
        self.follower = self.standby.engine

    def told(self) -> None:
        """What was appended is written, and read there."""
        self.engine.write()
        self.standby.catch_up()


def kept_timers(rig: FollowedRig) -> int:
    """Count what takes room there: the cancelled ones, too, and that they are."""
    tables = rig.follower._state.timer.near.tables()
    return sum(len(entries) for table in tables for entries in table.values())


async def test_timers_that_fired_are_gone() -> None:
    rig = FollowedRig()
    rig.follow()
    for number in range(FIRED):
        rig.send(f"m{number}", wait_ms=SECOND_MS // 2)
        rig.told()
        assert kept_timers(rig) == 1
        rig.advance(SECOND_MS)
        rig.told()
        assert not kept_timers(rig)


async def test_timers_that_fire_together_are_gone() -> None:
    rig = FollowedRig()
    rig.follow()
    rig.send(*(f"m{number}" for number in range(FIRED)), wait_ms=SECOND_MS // 2)
    rig.told()
    assert kept_timers(rig) == FIRED
    rig.advance(SECOND_MS)
    rig.told()
    assert not kept_timers(rig)


async def test_lite_topics_that_expired_are_gone() -> None:
    rig = FollowedRig()
    rig.config = replace(rig.config, lite=LiteConfig(topic_idle_ms_max=60 * SECOND_MS))
    rig.crash()
    rig.engine.topics.create("chat", TopicType.LITE, 0, rig.now_ms)
    group = rig.engine.lites.bind("agents", "chat", rig.now_ms)
    rig.engine.write()
    rig.follow()
    for number in range(5):
        name = f"room-{number}"
        one = Outgoing("chat", b"", b"", f"m{number}", lite_topic=name)
        rig.engine.send([one], rig.now_ms)
        rig.told()
        for engine in (rig.engine, rig.follower):
            assert engine.lites.waits("agents", "chat", frozenset([lite_key(name)]))
        rig.advance(120 * SECOND_MS)
        rig.told()
        for engine in (rig.engine, rig.follower):
            [parent] = engine._state.lites.values()
            assert not parent.topics
            assert not parent.reader(group.id).ready


@pytest.mark.parametrize("ahead_ms", [20 * SECOND_MS, 0, -20 * SECOND_MS])
async def test_a_lease_lasts_by_the_clock_by_which_it_was_given(ahead_ms: int) -> None:
    """The next owner's clock is another. Times of day are on it, and nothing else."""
    rig = FollowedRig()
    rig.follow(ahead_ms)
    rig.send("one")
    assert len(rig.receive(lease_ms=15 * SECOND_MS)) == 1
    rig.told()
    rig.now_ms += 3 * SECOND_MS
    rig.engine, _ = await rig.standby.standby.begin_life()
    clock = rig.standby.standby._clock
    assert clock.now_ms() == rig.now_ms
    assert clock.wall_offset_ms == ahead_ms
    rig.advance(12 * SECOND_MS - 1)
    assert not rig.receive()
    rig.advance(1)
    assert len(rig.receive()) == 1
