"""Every call of a file system fails with every class of error while a broker works: what it does is
what the table in docs/store-format.md says, and nothing acknowledged is lost."""

import asyncio
import errno
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.conditions import Part
from latermq_broker.errors import LaterMQError, StoreFullError, StoreGoneError
from latermq_broker.store.store import Store
from support.engine_rig import SMALL_STORE
from support.pump_rig import PumpRig as Rig
from support.virtual_loop import START_MS, run_virtually

STORE: Final = replace(SMALL_STORE, checkpoint_interval_ms=2_000)
PASSING: Final = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
CALLS: Final = (
    "open", "size", "allocate", "pwrite", "pread", "map", "datasync", "rename", "unlink",
    "make_directory", "sync_directory", "list_directory", "free_bytes",
)  # fmt: skip


def ends(call: str, number: int) -> bool:
    """Tell whether the broker ends with code 3, by the table."""
    if call == "pwrite":
        return True
    if call in ("datasync", "sync_directory"):  # what was written is in doubt
        return number not in NO_DESCRIPTOR
    return number == errno.EROFS and call != "pread"


async def stored(rig: Rig, sends: int) -> list[str]:
    """Send, roll and read for some seconds; what was acknowledged, by message id."""
    before, acknowledged = rig.log.end, 0
    for _ in range(sends):
        with suppress(LaterMQError):
            rig.send(size=60_000)
            with suppress(asyncio.TimeoutError):
                async with asyncio.timeout(3):
                    await rig.pump.written()
                acknowledged += 1
        await asyncio.sleep(0.25)
    assert rig.log.end >= before
    return ["m"] * acknowledged


@pytest.mark.parametrize("number", [*PASSING, errno.EROFS, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("call", CALLS)
def test_each_call_fails_for_a_while(call: str, number: int) -> None:
    async def main() -> None:
        rig = Rig(STORE)
        await asyncio.sleep(1.1)
        acknowledged = await stored(rig, 4)
        rig.files.broken, rig.files.number = call, number
        with suppress(LaterMQError):
            rig.receive()
        acknowledged += await stored(rig, 60)
        assert bool(rig.failures) == ends(call, number), rig.failures
        assert len(rig.failures) <= 1, "it is told once"
        rig.files.broken = ""
        if not rig.failures:
            await asyncio.sleep(15)
            assert rig.receive()
            again = await stored(rig, 8)
            assert len(again) == 8, "it comes back by itself"
            acknowledged += again
            await asyncio.sleep(5)
            damaged = call in ("open", "pread") and number == errno.EIO
            remaining = {Part.CHECKPOINTS} if damaged else set()  # a start makes the queue anew
            assert rig.engine.conditions.troubles.keys() == remaining
            assert rig.failures == []
        rig.engine.abandon()
        rig.files.disk.kill()
        engine = Engine.open(
            Store.open(Path("/data"), STORE, rig.files, START_MS), rig.config, START_MS
        )
        topic = engine._state.catalog.require_topic("t")
        assert engine.store.queue(topic.id, 0).next >= len(acknowledged)

    run_virtually(main)


@pytest.mark.parametrize("number", PASSING)
def test_without_a_file_sends_are_refused_and_acknowledgements_go_on(number: int) -> None:
    async def main() -> None:
        rig = Rig(STORE)
        await asyncio.sleep(1.1)
        rig.files.broken, rig.files.number = "open", number
        await stored(rig, 30)
        with pytest.raises(StoreFullError, match=r"further segment .*; sends are refused"):
            rig.send()
        assert rig.engine.store.disk.full
        await asyncio.sleep(1)
        assert Part.DISK in rig.engine.conditions.troubles
        assert rig.receive() > 10
        assert rig.failures == []

    run_virtually(main)


@pytest.mark.parametrize("what", ["LOCK", "log", "another", "segment", "checkpoints"])
def test_a_directory_that_is_not_there_ends_the_broker(what: str) -> None:
    async def main() -> None:
        rig = Rig(STORE)
        await asyncio.sleep(1.1)
        for _ in range(30):
            rig.send(size=60_000)
            await asyncio.sleep(0.01)
        assert len(rig.log.segments) > 1
        disk = rig.files.disk
        for path in list(disk.inodes):
            if {"LOCK": path.name == "LOCK", "log": path.suffix == ".seg"}.get(what):
                del disk.inodes[path]
            elif what == "another" and path.name == "LOCK":
                del disk.inodes[path]
                disk.create(path)
            elif what == "segment" and path == rig.log.segments[0].path:
                del disk.inodes[path]
        if what == "checkpoints":
            disk.directories.discard(Path("/data/ckpt"))
        rig.send()
        await asyncio.sleep(3.1)
        assert [type(error) for error in rig.failures] == [StoreGoneError]
        assert Part.DIRECTORY in rig.engine.conditions.troubles
        with pytest.raises(StoreGoneError):
            await rig.pump.written()

    run_virtually(main)


def test_a_checkpoint_that_fails_is_told_until_one_succeeds() -> None:
    async def main() -> None:
        rig = Rig(STORE)
        await asyncio.sleep(1.1)
        rig.files.broken, rig.files.number = "rename", errno.EIO
        rig.send()
        await asyncio.sleep(3)
        assert rig.engine.conditions.lines() == ["checkpoints: checkpoint failed: [Errno 5] broken"]
        rig.files.broken = ""
        await asyncio.sleep(3)
        assert rig.engine.conditions.lines() == []
        assert rig.failures == []

    run_virtually(main)
