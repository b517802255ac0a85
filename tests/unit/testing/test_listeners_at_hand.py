"""A listener of an app that serves: paused, resumed, looked at, bounded."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import latermq
from latermq.testing import HeldBroker


async def test_a_listener_is_paused_and_resumed(latermq_time: HeldBroker) -> None:
    app, got = latermq.App(), list[str]()

    @app.listener("orders", group="billing")
    async def bill(order: str) -> None:
        got.append(order)

    @app.listener("orders", group="shipping")
    async def ship(order: str) -> None:
        got.append(f"ship {order}")

    with pytest.raises(ValueError, match="no worker serves bill in this process, now"):
        _ = bill.consumer
    assert app.stats == []
    async with latermq_time.working(app):
        await bill.consumer.pause()
        await bill.send("17")
        await latermq_time.advance("1h")
        assert got == ["ship 17"]
        paused, shipping = app.stats
        assert (paused.group, paused.paused, paused.ok) == ("billing", True, 0)
        assert (shipping.group, shipping.paused, shipping.ok) == ("shipping", False, 1)
        bill.consumer.resume()
        await latermq_time.settle()
        assert got == ["ship 17", "17"]
        (row,) = bill.consumer.stats
        assert (row.ok, row.paused, row.full) == (1, False, False)
    with pytest.raises(ValueError, match="no worker serves bill"):
        bill.consumer.resume()


async def test_a_listener_in_a_thread_pauses_itself(latermq_time: HeldBroker) -> None:
    app, got = latermq.App(), list[tuple[str, bool, int]]()

    @app.listener("orders", group="billing", concurrency=1)
    def bill(order: str) -> None:
        consumer = bill.consumer_for_threads
        consumer.pause()
        got.append((order, consumer.paused, consumer.stats[0].in_hand))

    async with latermq_time.working(app):
        await bill.send("17")
        await bill.send("18")
        await latermq_time.advance("1h")
        assert got == [("17", True, 1)]
        with pytest.raises(RuntimeError, match="own event loop"):
            bill.consumer_for_threads.pause()
        await asyncio.to_thread(bill.consumer_for_threads.resume)
        await latermq_time.advance("1h")
        assert [order for order, *_ in got] == ["17", "18"]
        held = bill.consumer_for_threads
    assert held.closed


async def test_a_listener_has_bounds_of_its_own(latermq_time: HeldBroker) -> None:
    app = latermq.App()
    second = timedelta(seconds=1)

    @app.listener(
        "orders", group="billing", concurrency=2, cached_count_max=7, cached_bytes_max=5 << 20,
        receive_max=3, receive_pause=second,
    )  # fmt: skip
    async def bill(order: str) -> None:
        await asyncio.sleep(3600)

    assert repr(bill).endswith(
        "holds 7 messages and 5 MiB a queue, 3 at most a receive, 1s between two receives"
    )
    async with latermq_time.working(app):
        (row,) = bill.consumer.stats
        bounds = (row.concurrency, row.cached_count_max, row.cached_bytes_max)
        assert (*bounds, row.receive_max, row.receive_pause) == (2, 7, 5 << 20, 3, second)
        for number in range(10):
            await bill.send(str(number))
        held = []
        for _ in range(4):
            await latermq_time.settle()
            held.append(bill.consumer.stats[0].held_count)
            await latermq_time.advance("1s")
        assert held[0] <= 3
        assert held[-1] == 7  # and not the 10 there are
        assert bill.consumer.stats[0].full


@pytest.mark.parametrize(
    ("bounds", "error", "words"),
    [
        ({"cached_count_max": 0}, ValueError, "cached_count_max must be at least 1"),
        ({"receive_max": 0}, ValueError, "receive_max must be at least 1"),
        ({"receive_pause": 3}, TypeError, "receive_pause must be a timedelta"),
        ({"prefetch": 3}, TypeError, "unexpected keyword argument 'prefetch'"),
    ],
)
def test_what_bounds_nothing_is_refused(bounds: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        latermq.App().listener("orders", group="billing", **bounds)
