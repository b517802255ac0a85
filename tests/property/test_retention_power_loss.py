"""Segments are rolled forward, dropped and deleted, and every single call goes wrong in turn.

Power fails after it, or it fails itself, once or for good.
"""

import errno
from contextlib import suppress
from typing import Final

import pytest

from latermq_broker.engine.state.model import DeadFilter, Failure, PendingFilter
from latermq_broker.errors import StoreError
from latermq_broker.store.offline.inspect import verify_directory
from support.engine_rig import EngineRig, short_store
from support.recount import check_uses
from support.small_bounds import SMALL_BLOCKS, bounded
from support.torn_files import Fault, TornFiles

HOUR_MS: Final = 3_600_000
DATA: Final = EngineRig.DIRECTORY
SEEDS: Final = 6
STORE: Final = bounded(short_store(dead_letter_retention_ms=24 * HOUR_MS), SMALL_BLOCKS)
FAILURE: Final = Failure("ValueError", "bad", "", "")


def sync(rig: EngineRig) -> None:
    log = rig.engine.store.log
    log.write()
    log.synced(log.sync())


def fill(rig: EngineRig) -> None:
    """Three segments more."""
    wanted = len(rig.engine.store.log.segments) + 3
    while len(rig.engine.store.log.segments) < wanted:
        rig.send("f", topic="filler", body=b"x" * 1_000)


def precious(rig: EngineRig) -> None:
    """One of everything that outlives its segment, on the medium."""
    rig.send("delayed", wait_ms=24 * HOUR_MS, body=b"precious")
    rig.send("failing", "dead", body=b"precious")
    failing, dead = rig.receive(lease_ms=HOUR_MS)
    rig.engine.change_invisible("billing", failing.handle, HOUR_MS, rig.now_ms, failure=FAILURE)
    rig.engine.forward("billing", dead.handle, rig.now_ms, FAILURE)
    fill(rig)
    sync(rig)


def check(rig: EngineRig) -> None:
    """All of it is there, whole."""
    check_uses(rig.engine)
    items, _ = rig.engine.pending.page(PendingFilter(), 10)
    assert sorted((item.sys, item.rest, item.attempt) for item in items) == [
        (b"delayed", b"precious", 0),
        (b"failing", b"precious", 1),
    ]
    assert [item.failure for item in items if item.attempt] == [FAILURE]
    assert not rig.engine.store.index.gaps
    for name in ("delayed", "failing", "dead"):
        assert {one.sys for one in rig.engine.messages.by_id(name)[0]} == {name.encode()}
    (letter,) = rig.engine.dead.scan("billing", DeadFilter()).letters
    assert (letter.sys, letter.rest, len(letter.attempts)) == (b"dead", b"precious", 1)


def retain(rig: EngineRig) -> None:
    """Two passes, with syncs and checkpoints at any moment in between."""
    for _ in range(2):
        rig.checkpoint()
        rig.advance(61_000)
        for step in range(12):
            rig.advance(100)
            if step % 4 == 0:
                sync(rig)
        rig.checkpoint()
        fill(rig)
        sync(rig)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_power_lost_after_any_call(seed: int) -> None:
    files = TornFiles()
    rig = EngineRig(files=files, store=STORE)
    rig.engine.retention.step_cost = 1_000
    precious(rig)
    images = 0

    def lose_power() -> None:
        nonlocal images
        images += 1
        try:
            check_image(rig, files.power_loss(seed * 1_000_000 + images), seed)
        except BaseException as error:
            error.add_note(f"seed {seed}, image {images}")
            raise

    files.after_call = lose_power
    retain(rig)
    check(rig)
    assert rig.engine.retention.segments_dropped >= 6
    assert rig.engine.retention.roll_forward.messages_moved >= 6
    assert rig.engine.retention.roll_forward.histories_moved >= 2
    assert images > 100


def check_image(rig: EngineRig, image: TornFiles, seed: int) -> None:
    """Recover, check, go on with retention, lose power again, without checkpoints at that."""
    before = image.disk.snapshot()
    assert verify_directory(DATA, image).ok
    assert image.disk.snapshot() == before
    again = EngineRig(files=image, store=rig.config.store, now_ms=rig.now_ms)
    check(again)
    retain(again)
    check(again)
    image = image.power_loss(seed)
    for path in [path for path in image.inodes if path.suffix == ".ckpt"]:
        del image.inodes[path]
    check(EngineRig(files=image, store=rig.config.store, now_ms=again.now_ms))


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_every_call_fails(error: int, persistent: bool) -> None:
    at = 0
    fired = True
    while fired:
        at += 1
        files = TornFiles()
        rig = EngineRig(files=files, store=STORE)
        precious(rig)
        files.fault = Fault(files.calls + at, error, persistent)
        with suppress(StoreError, OSError):
            retain(rig)
        fired = bool(files.fired)
        files.disk.kill()
        again = EngineRig(files=TornFiles(files.disk), store=rig.config.store, now_ms=rig.now_ms)
        try:
            check(again)
            retain(again)
            check(again)
        except BaseException as failure:
            failure.add_note(f"call {at}")
            raise
    assert at > 100
