"""What the pump does about the disk: looks how full it is, prepares, checkpoints, lets old go."""

import asyncio
from dataclasses import replace

import pytest

from latermq_broker.errors import StoreFullError
from support.engine_rig import SMALL_STORE
from support.pump_rig import PumpRig as Rig
from support.virtual_loop import run_virtually


class TestDisk:
    def test_a_full_disk_refuses_sends_and_takes_them_again_by_itself(self) -> None:
        async def main() -> None:
            rig = Rig()
            disk = rig.engine.store.disk
            assert disk.space.free > 0, "known before the first send"
            await asyncio.sleep(1.1)
            assert not rig.log.row.spare_wanted
            rig.files.disk.capacity_bytes = rig.files.disk.used_bytes + (1 << 20)
            await asyncio.sleep(1)
            assert disk.low
            with pytest.raises(StoreFullError, match="disk full: need 2,097,152 bytes free"):
                rig.send()
            assert rig.receive() == 0
            rig.files.disk.capacity_bytes = 1 << 30
            await asyncio.sleep(1)
            assert not disk.full
            rig.send()
            assert rig.failures == []

        run_virtually(main)

    def test_a_checkpoint_that_finds_no_room_gets_the_spares(self) -> None:
        async def main() -> None:
            rig = Rig(replace(SMALL_STORE, checkpoint_interval_ms=5_000))
            await asyncio.sleep(1.1)
            rig.send()
            rig.files.disk.capacity_bytes = rig.files.disk.used_bytes
            await asyncio.sleep(5)
            assert rig.log.row.spare_wanted
            await asyncio.sleep(6)
            assert rig.engine.store.checkpointed > 0
            assert rig.failures == []

        run_virtually(main)

    def test_old_segments_are_deleted_while_it_runs(self) -> None:
        async def main() -> None:
            rig = Rig(replace(SMALL_STORE, retention_ms=60_000))
            for _ in range(60):
                rig.send(size=60_000)
                await asyncio.sleep(0.1)
            await asyncio.sleep(120)
            names = [path.name for path in rig.files.inodes if path.suffix == ".seg"]
            assert len(names) == 1
            assert rig.engine.retention.segments_dropped == 3
            assert rig.failures == []

        run_virtually(main)
