"""The engine's chores in turns of the background."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from latermq_broker.background.fair_share import SLICE_NS
from latermq_broker.background.jobs import OWN, Background
from latermq_broker.config.background import BackgroundConfig
from latermq_broker.engine.engine import Chore, Engine
from latermq_broker.pump.chores import Chores
from support.engine_rig import EngineRig

PARTS: int = 5


class Rig:
    """An engine with one chore, of five parts of a slice each, and a clock of its own."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.parts = 0
        self.appended = 0
        self.behind = False
        self.failures: list[BaseException] = []
        self.background = Background(BackgroundConfig(), lambda: self.now_ns)
        chore = Chore("retention", self.due_ms, lambda now_ms: self.part())
        engine = cast(Engine, SimpleNamespace(chores=(chore,)))
        self.chores = Chores(
            engine, lambda: 1, lambda: self.behind, self.append, self.failures.append
        )
        self.chores.start(self.background)

    def due_ms(self) -> int | None:
        return None if self.parts >= PARTS else 0

    def part(self) -> bool:
        self.parts += 1
        self.now_ns += SLICE_NS
        return self.parts < PARTS

    def append(self) -> None:
        self.appended += 1

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0)


async def test_a_chore_is_done_part_by_part_with_others_between() -> None:
    rig = Rig()
    seen: list[int] = []
    async with rig.background.job("a user", "list") as job:
        for _ in range(PARTS):
            rig.now_ns += SLICE_NS
            await job.turn()
            seen.append(rig.parts)
    await rig.until(lambda: rig.parts == PARTS)
    await rig.until(lambda: rig.background.fair.begun_count == 0)
    assert sorted(set(seen)) == seen  # one between two slices of the other
    assert rig.background.figures["retention"].used_ns == PARTS * SLICE_NS
    assert rig.appended == PARTS
    await rig.chores.stop()


async def test_what_fails_in_a_chore_is_told_once() -> None:
    rig = Rig()

    def fail() -> bool:
        raise OSError("gone")

    rig.part = fail  # type: ignore[method-assign]
    await rig.until(lambda: bool(rig.failures))
    assert [str(failure) for failure in rig.failures] == ["gone"]
    assert rig.background.fair.begun_count == 0
    await rig.chores.stop()


async def test_while_too_much_waits_to_be_synced_no_part_is_done() -> None:
    rig = Rig()
    await rig.until(lambda: rig.parts == 1)
    rig.behind = True
    done = rig.parts
    async with rig.background.job(OWN, "scrape") as job:
        for _ in range(10):
            rig.now_ns += SLICE_NS
            await job.turn()
    assert rig.parts <= done + 1
    assert rig.background.fair.begun_count == 0
    await rig.chores.stop()


async def test_what_is_stopped_does_no_part_any_more() -> None:
    rig = Rig()
    await rig.until(lambda: rig.parts == 1)
    await rig.chores.stop()
    assert rig.background.fair.begun_count == 0
    for _ in range(10):
        await asyncio.sleep(0)
    assert rig.parts == 1


def test_the_engines_own_are_done_at_a_tick_unless_others_do_them() -> None:
    rig = EngineRig()
    done: list[int] = []

    def part(now_ms: int) -> bool:
        done.append(now_ms)
        return False

    rig.engine.chores = (Chore("retention", lambda: 7, part),)  # type: ignore[misc]
    assert rig.engine.tick(rig.now_ms) == 7
    assert done == [rig.now_ms]
    assert rig.engine.tick(rig.now_ms, chores=False) is None
    assert done == [rig.now_ms]
