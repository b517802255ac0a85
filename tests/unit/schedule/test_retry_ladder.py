"""The waits between attempts of a group of which nothing is said: RocketMQ's, from level 3 on."""

import pytest

from latermq_broker.config.config import Config, DeliveryConfig
from support.engine_rig import EngineRig

MINUTE_MS = 60_000


def test_a_group_of_which_nothing_is_said_waits_as_rocketmq_documents() -> None:
    rig = EngineRig()
    rig.send("m1")
    minutes = (*range(1, 11), 20, 30, 60, 120)
    for wait_ms in (10_000, 30_000, *(each * MINUTE_MS for each in minutes)):
        (one,) = rig.receive(push=True)
        rig.engine.change_invisible("billing", one.handle, 0, rig.now_ms)  # a bare nack
        rig.advance(wait_ms - 1)
        assert rig.receive() == []
        rig.advance(1)
    (last,) = rig.receive(push=True)
    assert last.attempt == 17
    rig.engine.change_invisible("billing", last.handle, 0, rig.now_ms)
    assert rig.engine.groups.dead_letter_count(rig.engine.catalog.require_group("billing")) == 1


@pytest.mark.parametrize(
    ("levels_ms", "ladder_ms"),
    [((5,), (5,)), ((5, 6), (6,)), ((5, 6, 7), (7,)), ((5, 6, 7, 8), (7, 8))],
)
def test_fewer_levels_repeat_the_last(
    levels_ms: tuple[int, ...], ladder_ms: tuple[int, ...]
) -> None:
    config = Config(delivery=DeliveryConfig(delay_levels_ms=levels_ms))
    assert config.delivery.retry_ladder_ms == ladder_ms
