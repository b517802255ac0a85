"""Which shards are started again, and what ends them all: their processes are scripted."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from latermq_broker.cluster import supervisor
from latermq_broker.cluster.supervisor import STORE_FAILED, TRY_AGAIN, Child, Supervisor
from support.machine import patient

REFUSED = 2
KILLED = -9
KILLS = 3


class Lives:
    """What becomes of each shard's lives, one after the other; the last one serves until told."""

    def __init__(self, patch: pytest.MonkeyPatch, *codes: Sequence[int]) -> None:
        self.codes = [list(each) for each in codes]
        addresses = [f"127.0.0.1:{8081 + number}" for number in range(len(codes))]
        self.supervisor = Supervisor(Path("data"), addresses, addresses, (), ())
        self.lives = [0] * len(codes)
        self.announced: list[str] = []
        patch.setattr(supervisor, "BACKOFF_S", (0.001,))
        patch.setattr(self.supervisor, "_one_life", self.one_life)

    async def one_life(self, child: Child, *, replace: bool) -> None:
        self.lives[child.number] += 1
        if self.codes[child.number]:
            child.code = self.codes[child.number].pop(0)
            return
        child.serves, child.code = True, 0
        child.ready.set()
        await self.supervisor._stopping.wait()

    def announce(self, text: str) -> None:
        self.announced.append(text)
        self.supervisor._stop()

    async def run(self, *, replace: bool = False) -> int:
        async with asyncio.timeout(patient(20)):
            return await self.supervisor.run(self.announce, replace=replace)


async def test_a_shard_whose_kafka_does_not_answer_yet_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lives = Lives(monkeypatch, [TRY_AGAIN, TRY_AGAIN], [])
    assert await lives.run() == 0
    assert lives.lives == [3, 1]
    assert len(lives.announced) == 1


@pytest.mark.parametrize("code", [REFUSED, STORE_FAILED])
async def test_one_that_is_refused_ends_those_that_are_tried_again(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    lives = Lives(monkeypatch, [TRY_AGAIN] * 100_000, [code])
    assert await lives.run() == code
    assert lives.announced == []


async def test_one_that_is_killed_is_started_again_and_not_one_whose_store_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both served; the second is killed when the first has ended, again and again."""
    shards = Lives(monkeypatch, [], [])
    failed = asyncio.Event()

    async def one_life(child: Child, *, replace: bool) -> None:
        shards.lives[child.number] += 1
        child.serves, child.code = True, KILLED if child.number else STORE_FAILED
        child.ready.set()
        if child.number == 0:
            failed.set()
            return
        await failed.wait()
        if shards.lives[1] > KILLS:
            child.code = 0
            shards.supervisor._stop()

    monkeypatch.setattr(shards.supervisor, "_one_life", one_life)
    async with asyncio.timeout(patient(20)):
        code = await shards.supervisor.run(shards.announced.append, replace=False)
    assert code == STORE_FAILED
    assert shards.lives == [1, KILLS + 1]


async def test_one_whose_store_fails_as_it_replaces_another_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others were replaced by then: they serve, and end when they are told to."""
    shards = Lives(monkeypatch, [], [STORE_FAILED], [])
    assert await shards.run(replace=True) == STORE_FAILED
    assert len(shards.announced) == 1
    assert shards.lives == [1, 1, 1]
