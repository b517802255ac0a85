"""How far groups are, as it is told: which subscriptions are listed."""

import pytest

from latermq_broker.errors import TopicNotFoundError
from support.engine_rig import EngineRig


def test_a_deleted_subscription_stays_forgotten_until_the_group_reads_again() -> None:
    rig = EngineRig()

    def listed() -> list[tuple[str, str]]:
        return sorted(pair for pair, _ in rig.engine.progress.subscriptions())

    for topic in ("orders", "refunds"):
        rig.send("m", topic=topic)
        rig.receive(topic=topic)
    rig.engine.groups.forget("billing", "orders", rig.now_ms)
    rig.engine.groups.forget("billing", "orders", rig.now_ms)
    assert listed() == [("billing", "refunds")]
    rig.crash()
    assert listed() == [("billing", "refunds")]
    rig.checkpoint()
    rig.crash()
    assert listed() == [("billing", "refunds")]
    assert rig.engine.groups.describe("billing").topics
    rig.advance(2_000)
    assert len(rig.receive()) == 1  # its progress stayed: a retry, not the whole topic again
    assert listed() == [("billing", "orders"), ("billing", "refunds")]
    with pytest.raises(TopicNotFoundError):
        rig.engine.groups.forget("billing", "nothing", rig.now_ms)
