"""A storm of one group, or of one topic, stands in front of its own alone."""

from collections import Counter

import pytest

from latermq_broker.config.config import DeliveryConfig
from latermq_broker.delivery.leases.group_deadlines import QUANTUM
from latermq_broker.delivery.leases.lease import State
from support.engine_rig import EngineRig

STORM = 2_000
LEASES_MAX = 40
TIMERS_MAX = 40


def storming() -> EngineRig:
    """`storm` has STORM leases that end at one instant, `calm` one that ends a moment later."""
    rig = EngineRig(delivery=DeliveryConfig(tick_leases_max=LEASES_MAX, receive_batch_max=256))
    for name in ("storm", "calm"):
        rig.engine.groups.create(name, fifo=False, max_attempts=0, backoff=None, now_ms=rig.now_ms)
    rig.send(*map(str, range(STORM)), topic="storms")
    rig.send("lone", topic="calms")
    taken = 0
    while taken < STORM:
        taken += len(rig.receive("storm", topic="storms", count=256, lease_ms=60_000))
    assert len(rig.receive("calm", topic="calms", lease_ms=60_001)) == 1
    rig.now_ms += 60_001
    return rig


def ready(rig: EngineRig) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (group_id, _), subscription in rig.engine._state.subscriptions.items():
        group = rig.engine.catalog.group_by_id(group_id)
        assert group is not None
        counts[group.name] += subscription.counts[State.READY]
    return counts


def test_a_lone_retry_does_not_stand_behind_the_storm_of_another_group() -> None:
    rig = storming()
    assert rig.engine.tick(rig.now_ms) is not None
    assert ready(rig) == {"storm": LEASES_MAX - 1, "calm": 1}
    rig.advance(0)
    assert ready(rig) == {"storm": STORM, "calm": 1}


@pytest.mark.parametrize(("light", "heavy"), [(1, 1), (1, 4), (2, 3)])
def test_storms_share_the_ticks_by_weight(light: int, heavy: int) -> None:
    rig = EngineRig(delivery=DeliveryConfig(tick_leases_max=LEASES_MAX, receive_batch_max=256))
    for name, weight in (("light", light), ("heavy", heavy)):
        rig.engine.groups.create(
            name, fifo=False, max_attempts=0, backoff=None, now_ms=rig.now_ms, weight=weight
        )
    rig.send(*map(str, range(STORM)))
    for name in ("light", "heavy"):
        taken = 0
        while taken < STORM:
            taken += len(rig.receive(name, count=256, lease_ms=60_000))
    rig.now_ms += 60_000
    for _ in range(20):
        rig.engine.tick(rig.now_ms)
    counts = ready(rig)
    assert counts.total() == 20 * LEASES_MAX
    assert counts["light"] * heavy == pytest.approx(
        counts["heavy"] * light, abs=QUANTUM * heavy * light
    )
    rig.crash()
    rig.advance(0)
    assert ready(rig) == {"light": STORM, "heavy": STORM}


def test_a_lone_delayed_message_does_not_stand_behind_those_of_another_topic() -> None:
    rig = EngineRig(delivery=DeliveryConfig(tick_timers_max=TIMERS_MAX))
    rig.send(*map(str, range(STORM)), topic="storms", wait_ms=5_000)
    rig.send("lone", topic="calms", wait_ms=5_001)
    rig.now_ms += 5_001
    ticks = 0
    while True:
        ticks += 1
        rig.engine.tick(rig.now_ms)
        calm = rig.engine.topics.ends(rig.engine.catalog.require_topic("calms"))
        if calm[0].next_offset:
            break
    assert ticks <= STORM // (8 * TIMERS_MAX) + 2, "not after all of the storm"
    rig.advance(0)
    storm = rig.engine.topics.ends(rig.engine.catalog.require_topic("storms"))
    assert storm[0].next_offset == STORM
    assert rig.names(topic="storms")[:32] == [str(n) for n in range(32)], "in order still"
