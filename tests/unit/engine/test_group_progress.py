"""How far groups are, as it is told: which subscriptions are listed."""

import pytest

from latermq_broker.config.config import CatalogConfig
from latermq_broker.errors import GroupNotFoundError, TopicNotFoundError
from support.engine_facts import facts
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


@pytest.mark.parametrize("fifo", [False, True])
def test_a_group_that_found_nothing_yet_is_known_to_read_the_topic_after_a_kill(
    *, fifo: bool
) -> None:
    rig = EngineRig()
    rig.engine.ensure_topic("orders", rig.now_ms)
    rig.engine.groups.create("billing", fifo=fifo, max_attempts=0, backoff=None, now_ms=rig.now_ms)
    assert rig.names() == []
    end = rig.engine.store.log.end
    assert rig.names() == []
    assert rig.engine.store.log.end == end  # told once
    assert rig.engine.queues.committed("billing", "orders", 0) is None
    before = facts(rig.engine)
    rig.crash()
    assert facts(rig.engine) == before
    rig.send("m")
    [progress] = rig.engine.groups.describe("billing").topics
    assert (progress.topic, progress.ready_count) == ("orders", 1)
    assert rig.names() == ["m"]


def test_a_group_whose_filter_passed_over_all_is_known_to_read_the_topic_after_a_kill() -> None:
    rig = EngineRig()
    rig.send("m", tag="a")
    assert rig.names(tags="b") == []
    rig.crash()
    assert rig.engine.topics.describe("orders").groups == ("billing",)
    rig.checkpoint()
    rig.crash()
    end = rig.engine.store.log.end
    assert rig.names(tags="b") == []
    assert rig.engine.store.log.end == end  # the checkpoint has it


def test_a_receive_that_is_refused_writes_nothing() -> None:
    rig = EngineRig(catalog=CatalogConfig(auto_create_groups=False))
    rig.engine.ensure_topic("orders", rig.now_ms)
    end = rig.engine.store.log.end
    with pytest.raises(GroupNotFoundError):
        rig.receive()
    assert rig.engine.store.log.end == end


def test_a_group_reads_a_topic_that_was_made_anew_after_a_kill_too() -> None:
    rig = EngineRig()
    rig.engine.ensure_group("billing", rig.now_ms)
    rig.engine.ensure_topic("orders", rig.now_ms)
    assert rig.names() == []
    rig.engine.topics.delete("orders", rig.now_ms)
    assert rig.names() == []
    rig.engine.ensure_topic("orders", rig.now_ms)
    assert rig.names() == []
    rig.crash()
    assert rig.engine.topics.describe("orders").groups == ("billing",)
