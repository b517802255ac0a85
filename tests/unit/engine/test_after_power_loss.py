"""What a loss of power may bring about between the broker and what clients still hold."""

import pytest

from support.engine_rig import START_MS, EngineRig, short_store
from support.memory_files import MemoryFiles
from support.torn_files import TornFiles


def sync(rig: EngineRig) -> None:
    log = rig.engine.store.log
    log.write()
    log.synced(log.sync())


@pytest.mark.parametrize("seed", range(8))
def test_the_handle_of_a_forgotten_lease_settles_no_other_message(seed: int) -> None:
    """The lease was never durable; its delivery id must not become that of another message."""
    files = TornFiles()
    rig = EngineRig(files=files)
    rig.send("first")
    rig.send("second", topic="others")
    sync(rig)
    [first] = rig.receive()
    again = EngineRig(files=files.power_loss(seed))
    [second] = again.receive(topic="others")  # takes the next delivery id
    [came_through] = again.ack(first)
    assert again.ack(second) == [True]
    assert again.names() == ([] if came_through else ["first"])


def test_a_checkpoint_whose_log_was_dropped_is_passed_over() -> None:
    """The newest rots: the one before it needs segments that are gone, the log alone does not."""
    files = MemoryFiles()
    rig = EngineRig(files=files, store=short_store())
    rig.send("waits", wait_ms=86_400_000)
    rig.checkpoint()
    while len(rig.engine.store.log.segments) < 3:
        rig.send("f", topic="filler", body=bytes(1_000))
    older = max(path for path in files.inodes if path.suffix == ".ckpt")
    kept = bytes(files.disk.bytes_of(older))
    rig.advance(61_000)
    rig.retain()
    assert rig.segments()[0] > 0
    rig.engine.abandon()
    for path in [path for path in files.inodes if path.suffix == ".ckpt"]:
        del files.inodes[path]
    files.disk.replace(older, kept)  # as after a power loss that undid its removal
    again = rig.reopened()
    assert again.recovery is not None
    assert again.recovery.rebuilt
    assert again.topics.delayed_count(again.ensure_topic("orders", rig.now_ms)) == 1


def test_a_wall_clock_set_back_takes_no_time_from_push_consumers() -> None:
    """After a restart they have two minutes to show that they live; the clock is an hour back."""
    rig = EngineRig()
    rig.send("m")
    [held] = rig.receive(push=True)
    rig.advance(55_000)  # renewed once: the client is known to have seen it
    rig.engine.write()
    last_ms = rig.engine.store.log.last_store_ms
    rig.engine.abandon()
    rig.now_ms = START_MS - 3_600_000
    rig.engine = rig.reopened()
    rig.now_ms = last_ms  # as `SystemClock.not_before` has it
    rig.advance(100_000)
    assert rig.ack(held) == [True]
