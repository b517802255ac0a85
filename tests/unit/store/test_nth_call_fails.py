"""Every call of a store's life fails once, or for good: nothing acknowledged is lost, nothing
refused comes back, and there is always a clear error."""

import errno
from contextlib import suppress
from itertools import count
from typing import Final

import pytest

from latermq_broker.errors import LaterMQError
from support.store_rig import StoreRig
from support.torn_files import SHORT_WRITE, Fault, TornFiles

ERRORS: Final = {
    "EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EMFILE": errno.EMFILE, "EROFS": errno.EROFS,
    "short write": SHORT_WRITE,
}  # fmt: skip
CALLS_MAX: Final = 400


def live(rig: StoreRig, files: TornFiles) -> None:
    """A life with rolls, groups, checkpoints and a crash; a failed checkpoint ends nothing."""
    rig.start()
    for round_ in range(3):
        rig.append(900, topic_id=round_)
        rig.append(100, 200, 300)
        rig.write()
        rig.sync()
        rig.append(3000)
        rig.append(3000)
        rig.write()
        if round_ == 1:
            rig.store.log.prepare_next()
            with suppress(OSError):
                rig.checkpoint()
            rig.drop(0)
            rig.append(10)
            rig.write()
            with suppress(OSError):
                rig.checkpoint()
            rig.check_queues()
            rig.append(500, 500)
            rig.write()
            files.disk.kill()
            rig.restart()
    rig.store.log.mark(rig.now_ms)
    rig.close()


@pytest.mark.parametrize("persistent", [False, True], ids=["once", "persistent"])
@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS.keys())
def test_the_nth_call_fails(error: int, persistent: bool) -> None:
    for at in count(1):
        assert at < CALLS_MAX
        files = TornFiles()
        files.fault = Fault(at, error, persistent)
        rig = StoreRig(files)
        try:
            failed = outcome(rig, files)
            fired, files.fault = files.fired, None
            assert fired or not failed
            check(rig, files)
        except BaseException as problem:
            problem.add_note(f"the fault was at call {at}")
            raise
        if not fired and files.calls < at:
            break


def outcome(rig: StoreRig, files: TornFiles) -> bool:
    """Live until something fails, if anything does."""
    try:
        live(rig, files)
    except (LaterMQError, OSError):
        if hasattr(rig, "store"):
            with suppress(OSError):
                rig.store.abandon()
        return True
    return False


def check(rig: StoreRig, files: TornFiles) -> None:
    image = files.power_loss(files.calls)
    files.disk.kill()
    groups, durable = list(rig.model.groups), rig.model.durable
    rig.restart()
    rig.append(10)
    rig.write()
    rig.close()
    again = StoreRig(image)
    again.model.groups, again.model.durable = groups, durable
    again.restart(power_lost=True)
    again.close()
