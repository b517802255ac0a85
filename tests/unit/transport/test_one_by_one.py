"""Long messages of many streams: one in a turn of the loop."""

import asyncio
import itertools

from latermq_broker.transport.grpc.one_by_one import OneByOne


async def test_one_in_a_turn_in_the_order_they_asked() -> None:
    turns, order = OneByOne(), []

    async def work(number: int) -> None:
        await turns.turn()
        order.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(5)]
    seen = []
    while len(order) < 5:
        await asyncio.sleep(0)
        seen.append(len(order))
    assert order == [0, 1, 2, 3, 4]
    assert max(after - before for before, after in itertools.pairwise(seen)) == 1
    await asyncio.gather(*tasks)


async def test_who_is_gone_takes_no_turn() -> None:
    turns, order = OneByOne(), []

    async def work(number: int) -> None:
        await turns.turn()
        order.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.wait(tasks)
    assert order == [0, 2]
