"""Jobs in turns on a loop, under a clock that stands still unless a job says how long it took."""

import asyncio
from collections.abc import Iterator

import pytest

from latermq_broker.background.fair_share import SLICE_NS
from latermq_broker.background.jobs import FIRST_COUNT, SCRAPE, STEP_NS, Background, in_turns
from latermq_broker.config.background import BackgroundConfig
from latermq_broker.errors import TooManyRequestsError


class Hands:
    """Makes jobs that work for so long, and notes whose step came when."""

    def __init__(self, config: BackgroundConfig | None = None) -> None:
        self.now_ns = 0
        self.background = Background(config or BackgroundConfig(), lambda: self.now_ns)
        self.steps: list[str] = []

    async def work(self, user: str, steps: int, step_ns: int, kind: str = "list") -> None:
        async with self.background.job(user, kind) as job:
            for _ in range(steps):
                self.steps.append(user)
                self.now_ns += step_ns
                await job.turn()


async def test_users_take_turns_by_the_time_they_used() -> None:
    hands = Hands()
    half = SLICE_NS // 2
    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(hands.work("many", 8, half))
        tasks.create_task(hands.work("one", 8, half))
    assert len(hands.steps) == 32
    assert abs(hands.steps[:16].count("one") - 8) <= 2
    assert hands.background.figures["list"].used_ns == 32 * half


async def test_everything_that_is_ready_comes_between_two_slices() -> None:
    hands = Hands()

    async def others() -> None:
        for _ in range(8):
            hands.steps.append("-")
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hands.work("a", 6, SLICE_NS))
        tasks.create_task(others())
    assert "aa" not in "".join(hands.steps[:8])


async def test_a_slice_has_many_short_steps_and_they_grow() -> None:
    hands = Hands()
    counts: list[int] = []
    async with hands.background.job("a", "list") as job:
        for _ in range(3):
            counts.append(job.count)
            hands.now_ns += STEP_NS // 100
            await job.turn()
        hands.now_ns += 10 * STEP_NS
        await job.turn()
        counts.append(job.count)
    assert counts == [FIRST_COUNT, 2 * FIRST_COUNT, 4 * FIRST_COUNT, 8 * FIRST_COUNT // 10]
    assert sum(hands.background.figures["list"].wait_ms.counts) == 2  # turns that were waited for


async def test_what_is_waited_for_in_between_is_nobodys_time() -> None:
    hands = Hands()
    written = asyncio.Event()

    async def writes() -> None:
        async with hands.background.job("a", "redrive") as job:
            hands.now_ns += SLICE_NS
            job.rest()
            await written.wait()
            await job.turn()

    task = asyncio.create_task(writes())
    await asyncio.sleep(0.001)
    hands.now_ns += 50 * SLICE_NS
    await hands.work("b", 1, SLICE_NS)
    written.set()
    await task
    assert hands.background.figures["redrive"].used_ns == SLICE_NS
    assert hands.background.fair.begun_count == 0


async def test_beyond_those_that_run_calls_wait_and_beyond_these_they_are_refused() -> None:
    hands = Hands(BackgroundConfig(running_per_user_max=1, waiting_per_user_max=1))
    stop = asyncio.Event()

    async def hold() -> None:
        async with hands.background.job("a", "list"):
            await stop.wait()

    first, second = asyncio.create_task(hold()), asyncio.create_task(hold())
    await asyncio.sleep(0.001)
    assert hands.background.fair.waiting_count == 1
    with pytest.raises(TooManyRequestsError, match=r"2 lasting calls .* at most 1 run .* 1 wait"):
        await hands.work("a", 1, 0)
    await hands.work("b", 1, 0)
    second.cancel()  # it leaves the queue
    await asyncio.wait((second,))
    third = asyncio.create_task(hold())
    stop.set()
    await asyncio.wait_for(asyncio.gather(first, third), 10)
    assert hands.background.fair.begun_count == hands.background.fair.waiting_count == 0
    assert hands.background.fair.refused_count == 1


async def test_one_that_is_cancelled_when_its_turn_comes_has_none() -> None:
    hands = Hands()
    left = asyncio.create_task(hands.work("a", 1, SLICE_NS))
    stays = asyncio.create_task(hands.work("a", 2, SLICE_NS))
    await asyncio.sleep(0)  # both ask
    left.cancel()
    await asyncio.wait_for(stays, 10)
    assert left.cancelled()
    assert hands.steps == ["a", "a"]
    assert hands.background.fair.begun_count == 0


async def test_beside_calls_the_next_slice_waits_for_the_share() -> None:
    hands = Hands(BackgroundConfig(percent=50))
    looks: list[int] = []

    def calls() -> int:
        looks.append(hands.now_ns)
        hands.now_ns += SLICE_NS // 10  # a look that finds that the share is used up comes again
        return len(looks)

    hands.background.foreground_count = calls
    await asyncio.wait_for(hands.work("a", 4, SLICE_NS), 10)
    used_ns = hands.background.figures["list"].used_ns
    assert used_ns <= hands.now_ns * 0.6


async def test_calls_that_become_jobs_are_no_calls_beside_jobs() -> None:
    hands = Hands(BackgroundConfig(percent=1))
    begun = 0
    hands.background.foreground_count = lambda: begun
    async with hands.background.job("a", "list", is_call=False) as other:
        for _ in range(100):
            begun += 1
            async with hands.background.job("b", "list", is_call=True) as job:
                hands.now_ns += SLICE_NS
                await asyncio.wait_for(job.turn(), 10)  # at 1 %, the clock that stands would end it
            await other.turn()


async def test_a_text_is_made_in_turns() -> None:
    hands = Hands()

    def pieces() -> Iterator[str]:
        for number in range(3):
            hands.now_ns += SLICE_NS
            yield str(number)

    assert await in_turns(hands.background, SCRAPE, pieces) == "012"
    assert await in_turns(None, SCRAPE, pieces) == "012"
    assert hands.background.figures[SCRAPE].used_ns == 3 * SLICE_NS


async def test_at_once_a_turn_needs_no_loop() -> None:
    hands = Hands()
    hands.background.at_once = True
    work = hands.work("a", 3, SLICE_NS)
    with pytest.raises(StopIteration):
        work.send(None)
    assert hands.steps == ["a", "a", "a"]
    assert hands.background.fair.begun_count == 0
