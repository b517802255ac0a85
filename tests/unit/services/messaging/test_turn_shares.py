"""How much of one turn of the loop goes to one group."""

import asyncio

from latermq_broker.services.messaging.turn_shares import MESSAGES, TurnShares
from support.messaging import Messaging
from support.wire_requests import message


async def test_a_group_with_many_consumers_does_not_have_the_turn_for_itself() -> None:
    async with Messaging() as broker:
        await broker.send(message("orders", b"first"))
        waiting = [asyncio.ensure_future(broker.receive(wait_ms=20_000)) for _ in range(17)]
        calm = asyncio.ensure_future(broker.receive("calms", "calm", wait_ms=20_000))
        await broker.settle()
        assert [task.done() for task in waiting] == [True] + [False] * 16
        storm = [[message("orders", b"x")] * 32 for _ in range(16)]
        sends = [*(broker.send(*part) for part in storm), broker.send(message("calms", b"lone"))]
        tasks = [asyncio.ensure_future(send) for send in sends]
        figures = broker.engine.figures
        given: list[int] = []  # in each turn
        calm_came = 0
        while not all(task.done() for task in waiting):
            before = figures.messages_delivered
            await asyncio.sleep(0)
            given.append(figures.messages_delivered - before)
            if calm.done() and not calm_came:
                calm_came = len(given)
        assert [one.body for one in calm.result().messages] == [b"lone"]
        assert calm_came < len(given) - 2, "not behind all of the storm"
        assert sum(len(task.result().messages) for task in waiting[1:]) == 16 * 32
        assert max(given) <= MESSAGES + 1
        assert all(task.done() for task in tasks)


async def test_a_heavier_group_has_more_of_a_turn() -> None:
    shares = TurnShares({"light": 1, "heavy": 3}.__getitem__, lambda group, topic: None)
    for _ in range(2):
        for group, most in (("light", MESSAGES), ("heavy", 3 * MESSAGES)):
            shares.take(group, most - 1)
            assert not shares.spent(group)
            shares.take(group, 1)
            assert shares.spent(group)
        await asyncio.sleep(0)
    assert not shares.spent("light")
