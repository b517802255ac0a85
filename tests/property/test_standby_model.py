"""A standby is driven by what the owner of a log writes, and is what the owner is.

The owner lives through the same histories as in the simulation of disks. What it wrote comes to the
standby as batches, its checkpoints are taken at the same positions, and there, and now and then,
both are asked for all that they are. In the end the standby takes over, and is held against what
was promised.
"""

import asyncio
from typing import Final

import pytest

from support.driven_standby import LAID_OUT, DrivenStandby, ShippedLog, sections
from support.memory_files import MemoryFiles
from support.sim_desk import imagine
from support.simulation import Simulation, settled

SEEDS: Final = range(8)
STEPS: Final = 240
LOOK_EACH: Final = 12
RESTART_EACH: Final = 50


class Owned(Simulation):
    """One life in which nothing fails, with a standby."""

    standby: DrivenStandby

    def begin_with_standby(self) -> None:
        self.begin()
        self._shipped = ShippedLog(self.engine.store.log)
        self._standby_files = MemoryFiles()
        self._start_standby()

    async def restart_standby(self) -> None:
        """Have it go on from what it has noted, and from its own checkpoint."""
        await self.standby.standby.copy.keep()
        self.engine.write()
        self.standby.catch_up()  # what is cut off again
        await self.standby.standby.close()
        self._start_standby()

    def _start_standby(self) -> None:
        self.standby = DrivenStandby(
            self._shipped, self.config, self._standby_files, lambda: self.now_ms
        )

    def look(self) -> None:
        """Both are the same, once what is due now is done, which the owner alone writes down."""
        owner = settled(self.engine, self.now_ms)
        self.engine.write()
        self.standby.catch_up()
        engine = self.standby.engine
        assert engine.store.log.end == self.engine.store.log.end
        assert settled(engine, self.now_ms) == owner
        found = sections(engine)
        for name, section in sections(self.engine).items():
            assert name.startswith(LAID_OUT) or found[name] == section, name

    def _keep_house(self) -> None:
        log = self.engine.store.log
        dice = self.random.random()
        if dice < 0.4:
            self.engine.write()
            self.standby.catch_up()
            for engine in (self.engine, self.standby.engine):
                engine.checkpoints.take(self.now_ms)
            self.look()
        elif dice < 0.7:
            log.prepare_next()
        else:
            log.row.prepare_spare()


async def live(seed: int) -> None:
    it = Owned(seed)
    it.begin_with_standby()
    for step in range(STEPS):
        it.step()
        if step % LOOK_EACH == 0:
            it.look()
        if step % RESTART_EACH == 0:
            await it.restart_standby()
    it.engine.write()
    it.standby.catch_up()
    position = it.engine.store.log.end
    ledger = imagine(it.ledger, it.clients, position)
    ledger.crashed()
    engine, _ = await it.standby.standby.begin_life()
    it._examine(engine, ledger, 0)
    dropped = it.engine.store.dropped.start
    if dropped:
        assert engine.store.log.segments[0].base == dropped
    engine.abandon()


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_what_the_owner_is_and_can_take_its_place(seed: int) -> None:
    asyncio.run(live(seed))
