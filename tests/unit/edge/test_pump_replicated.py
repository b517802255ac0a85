"""The pump where others keep the log, too: who waits for them, and who for the disk."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

import pytest

from latermq_broker.config.config import Flush
from latermq_broker.errors import FencedError, StoreReadOnlyError, TooManyRequestsError
from support.engine_rig import SMALL_STORE
from support.pump_rig import PumpRig as Rig
from support.pump_rig import settled
from support.virtual_loop import run_virtually

SYNC_STORE = replace(SMALL_STORE, flush=Flush.SYNC)


def tasks(*awaitables: Awaitable[None]) -> list[asyncio.Future[None]]:
    return [asyncio.ensure_future(each) for each in awaitables]


class Quorum:
    """Keeps the log, too; has what it is told to have."""

    def written(self, pieces: object) -> None: ...

    def may_commit(self) -> bool:
        return True

    def until_kept(self, position: int) -> None: ...


@pytest.mark.parametrize("flush", [Flush.NONE, Flush.ASYNC])
def test_all_wait_for_the_quorum_and_nobody_for_the_disk(flush: Flush) -> None:
    async def main() -> None:
        rig = Rig(replace(SMALL_STORE, flush=flush), replicated=True)
        await asyncio.sleep(1)
        rig.log.commitment.keep_with(Quorum(), rig.log.end)
        before = rig.syncs()
        rig.send()
        waits = tasks(rig.pump.written(), rig.pump.leased(), rig.pump.synced())
        assert not any([await settled(each) for each in waits])
        rig.log.commitment.kept(rig.log.written)
        assert all([await settled(each) for each in waits])
        assert rig.syncs() == before
        await asyncio.sleep(0.201)
        assert rig.syncs() == before + 1
        assert rig.log.durable == rig.log.end

    run_virtually(main)


def test_with_sync_they_wait_for_both() -> None:
    async def main() -> None:
        rig = Rig(SYNC_STORE, replicated=True)
        await asyncio.sleep(1)
        rig.log.commitment.keep_with(Quorum(), rig.log.end)
        rig.threads.held = True
        rig.send()
        written, leased = tasks(rig.pump.written(), rig.pump.leased())
        await asyncio.sleep(0.001)
        rig.log.commitment.kept(rig.log.written)
        assert not await settled(written)
        rig.threads.release()
        assert await settled(written)
        assert await settled(leased)

    run_virtually(main)


def test_sends_are_refused_while_the_quorum_is_far_behind() -> None:
    async def main() -> None:
        rig = Rig(replace(SMALL_STORE, unsynced_bytes_max=100_000), replicated=True)
        rig.log.commitment.keep_with(Quorum(), rig.log.end)
        for _ in range(4):
            rig.send(size=30_000)
        rig.pump.written()
        await asyncio.sleep(1)
        assert rig.log.durable >= rig.log.end - 1_000
        with pytest.raises(TooManyRequestsError, match="no quorum has"):
            rig.pump.admit()
        rig.log.commitment.kept(rig.log.written)
        rig.pump.admit()

    run_virtually(main)


def test_who_ends_syncs_what_is_left() -> None:
    async def main() -> None:
        rig = Rig(replicated=True)
        await asyncio.sleep(1)
        rig.log.commitment.keep_with(Quorum(), rig.log.end)
        rig.send()
        [ended] = tasks(rig.pump.conclude(drained=True))
        await asyncio.sleep(0.001)
        assert rig.log.durable == rig.log.end
        assert not await settled(ended)
        rig.log.commitment.kept(rig.log.written)
        assert await settled(ended)

    run_virtually(main)


def test_an_owner_that_is_no_longer_one_fails_who_waits_and_who_comes() -> None:
    async def main() -> None:
        rig = Rig(replicated=True)
        rig.log.commitment.keep_with(Quorum(), rig.log.end)
        rig.send()
        waits = [rig.pump.written(), rig.pump.leased()]
        await asyncio.sleep(0.001)
        error = FencedError("another broker has taken over")
        rig.pump.fail(error)
        waits.append(rig.pump.written())
        for each in waits:
            with pytest.raises(FencedError):
                await each
        rig.pump.fail(StoreReadOnlyError("later"))
        assert rig.failures == [error]

    run_virtually(main)
