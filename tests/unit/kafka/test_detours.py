"""Order by key over two ways: straight to the handler, and through the FIFO group at LaterMQ.

A model of that group, consumed by anybody at any time, and partitions that go from one process to
the next; whatever happens when, no record is done before an earlier one of its key.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from functools import partial

import pytest

from latermq.errors import UnavailableError
from latermq.kafka import _detours
from latermq.kafka._detours import Detours
from support.virtual_loop import run_virtually, virtually

KEYS = 4
RECORDS = 60


async def pause(chance: random.Random, ms_max: int) -> None:
    await asyncio.sleep(chance.randrange(ms_max) / 1_000)  # whole ones: so the virtual clock goes


class Group:
    """A FIFO group: what it has not looked at, and what waits message group by message group."""

    def __init__(self, chance: random.Random, done: Callable[[str, int], None]) -> None:
        self._chance = chance
        self._done = done
        self._fresh: deque[tuple[str, int]] = deque()
        self._held: dict[str, deque[int]] = {}

    async def send(self, name: str, number: int) -> None:
        await pause(self._chance, 100)
        self._fresh.append((name, number))
        await pause(self._chance, 100)

    async def consume(self) -> None:
        while True:
            await pause(self._chance, 200)
            if self._fresh and self._chance.random() < 0.6:
                name, number = self._fresh.popleft()
                self._held.setdefault(name, deque()).append(number)
            elif self._held:
                name = self._chance.choice(sorted(self._held))
                self._done(name, self._held[name][0])
                await pause(self._chance, 200)  # done, and not acknowledged yet
                self._held[name].popleft()
                if not self._held[name]:
                    del self._held[name]

    async def unread(self) -> int:
        await self._answer()
        count = len(self._fresh)
        await pause(self._chance, 100)
        return count

    async def busy(self) -> set[str]:
        await self._answer()
        names = set(self._held)
        await pause(self._chance, 100)
        return names

    async def _answer(self) -> None:
        await pause(self._chance, 100)
        if self._chance.random() < 0.1:
            raise UnavailableError("away")


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_done_before_an_earlier_one_of_its_key(seed: int) -> None:
    chance = random.Random(seed)
    done: dict[str, list[int]] = {}
    straight = 0

    def note(name: str, number: int) -> None:
        done.setdefault(name, []).append(number)

    async def story() -> None:
        nonlocal straight
        group = Group(chance, note)
        consuming = asyncio.create_task(group.consume())
        detours = Detours(group)
        for number in range(RECORDS):
            if number % 20 == 0:  # another process has the partition now
                await detours.close()
                detours = Detours(group)
                detours.begin()
            await detours.known()
            name = f"k{chance.randrange(KEYS)}"
            if name in detours or chance.random() < 0.1:
                await detours.send(name, partial(group.send, name, number))
            else:
                note(name, number)
                straight += 1
            await pause(chance, 500)
        while sum(map(len, done.values())) < RECORDS or len(detours):
            await asyncio.sleep(1)
        await detours.close()
        consuming.cancel()
        await asyncio.gather(consuming, return_exceptions=True)

    run_virtually(story)
    assert all(numbers == sorted(numbers) for numbers in done.values())
    assert straight > KEYS


class Busy:
    """A FIFO group whose message groups end when the test says so."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    async def send(self, name: str) -> None:
        self.names.add(name)

    async def unread(self) -> int:
        return 0

    async def busy(self) -> set[str]:
        return set(self.names)


@virtually
async def test_so_many_message_groups_are_on_a_detour(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next one waits, and with it its partition; what follows of the others does not."""
    monkeypatch.setattr(_detours, "DETOURS_MAX", 2)
    group = Busy()
    detours = Detours(group)

    async def send(name: str) -> None:
        await detours.send(name, partial(group.send, name))

    for name in ("a", "b", "a"):
        await send(name)
    waiting = [asyncio.create_task(send(name)) for name in ("c", "d")]
    await asyncio.sleep(3_600)
    await send("b")
    assert (group.names, len(detours)) == ({"a", "b"}, 2)
    assert not any(each.done() for each in waiting)
    group.names.remove("a")
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert len(group.names) == len(detours) == 2
    group.names.clear()
    await asyncio.wait(waiting)
    assert len(group.names) == 1
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    group.names.clear()
    await asyncio.sleep(60)
    assert not len(detours)
    await detours.close()
