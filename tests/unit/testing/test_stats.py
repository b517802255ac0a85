"""What a consumer tells of itself: figures, bounds, a window that is stuck, and its log lines."""

import asyncio
import logging
from datetime import timedelta

import pytest

import latermq
from latermq import Delivery
from latermq.testing import HeldBroker


async def test_figures_by_topic_and_group(latermq_time: HeldBroker) -> None:
    async with latermq_time.connect() as mq:
        consumer = mq.push_consumer({"orders": "*", "parcels": "*"}, group="shop", concurrency=2)

        @consumer.listener
        async def work(delivery: Delivery) -> None:
            if delivery.body == b"bad":
                raise ValueError("no")
            if delivery.body == b"never":
                await delivery.dead_letter("nobody there")
            if delivery.body == b"slow":
                await asyncio.sleep(600)

        for body in (b"1", b"2", b"bad", b"never"):
            await mq.send("orders", body)
        for _ in range(4):
            await mq.send("parcels", b"slow")
        await consumer.start()
        await latermq_time.settle()
        await latermq_time.advance("1ms")
        orders, parcels = sorted(consumer.stats, key=lambda row: row.topic)
        assert mq.stats == consumer.stats
        assert (orders.topic, orders.group, parcels.topic) == ("orders", "shop", "parcels")
        assert parcels.in_hand == 2
        assert parcels.held_count == parcels.in_hand + parcels.waiting
        assert parcels.held_bytes >= 4 * 2
        assert not parcels.full
        await latermq_time.advance("1h")
        orders, parcels = sorted(consumer.stats, key=lambda row: row.topic)
        assert (orders.ok, orders.dead_lettered, orders.returned, orders.lost) == (2, 1, 0, 0)
        assert orders.failed >= 1
        assert (parcels.ok, parcels.held_count) == (4, 0)
        assert orders.ok_per_s == parcels.ok_per_s == 0
        await mq.send("parcels", b"3")
        await latermq_time.settle()
        (parcels,) = (row for row in consumer.stats if row.topic == "parcels")
        assert parcels.ok_per_s == pytest.approx(1 / 60)
        assert "PushConsumer of orders, parcels for shop: concurrency 2, holds 1000" in repr(
            consumer
        )


async def test_a_window_that_stays_full_is_one_warning(
    latermq_time: HeldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with latermq_time.connect() as mq:
        for number in range(5):
            await mq.send("orders", b"%d" % number)
        consumer = mq.push_consumer("orders", group="billing", cached_count_max=2)
        held = [await anext(consumer) for _ in range(2)]
        await latermq_time.advance("59s")
        assert consumer.stats[0].full
        assert "nothing is received" not in caplog.text
        await latermq_time.advance("10m")
        assert caplog.text.count("nothing is received: 2 of 2 messages and 2 of") == 1
        for delivery in held:
            await delivery.ack()
        await latermq_time.settle()
        assert len(consumer._inbox) == 2


async def test_success_is_a_line_with_what_it_took(
    latermq_time: HeldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "latermq.client")
    app = latermq.App()

    @app.listener("orders", group="billing")
    async def bill(order: str) -> None:
        await asyncio.sleep(0.25)

    @app.listener("parcels", group="billing", batch=2)
    async def pack(parcels: list[str]) -> None:
        await asyncio.sleep(0.5)

    async with latermq_time.working(app):
        receipt = await bill.send("17")
        parcels = [await pack.send("18"), await pack.send("19")]
        await latermq_time.advance("1s")
    async with latermq_time.connect() as mq:
        looped = await mq.send("films", b"20")
        async for delivery in mq.push_consumer("films", group="billing"):
            async with delivery:
                pass
            break
    done = [each.getMessage() for each in caplog.records if " done: " in each.getMessage()]
    assert done == [
        f"message {receipt.message_id} of topic orders done: attempt 1, 250.0 ms",
        *(
            f"message {each.message_id} of topic parcels done: attempt 1, 500.0 ms, in a batch of 2"
            for each in parcels
        ),
        f"message {looped.message_id} of topic films done: attempt 1, 0.0 ms",
    ]


async def test_a_loop_takes_no_concurrency(latermq_time: HeldBroker) -> None:
    async with latermq_time.connect() as mq:
        await mq.send("orders", b"1")
        with pytest.raises(ValueError, match="a loop works on one message at a time"):
            async for _ in mq.push_consumer("orders", group="billing", concurrency=8):
                pass
        async for delivery in mq.push_consumer("orders", group="billing"):
            await delivery.ack()
            break


def test_a_loop_over_threads_takes_none_either() -> None:
    with latermq.sync.connect("127.0.0.1:1", request_timeout=timedelta(seconds=1)) as mq:
        consumer = mq.push_consumer("orders", group="billing", concurrency=8)
        with pytest.raises(ValueError, match="a loop works on one message at a time"):
            iter(consumer)
        assert "concurrency 8" in repr(consumer)
        (row,) = mq.stats
        assert (row.topic, row.ok, row.full) == ("orders", 0, False)


async def test_receives_are_bounded_and_spaced_out(latermq_time: HeldBroker) -> None:
    async with latermq_time.connect() as mq:
        await mq.send_batch("orders", [latermq.Message(b"%d" % number) for number in range(10)])
        second = timedelta(seconds=1)
        consumer = mq.push_consumer("orders", group="shop", receive_max=3, receive_pause=second)
        await consumer.start()
        held = []
        for _ in range(4):
            await latermq_time.settle()
            held.append(consumer.stats[0].waiting)
            await latermq_time.advance("1s")
        assert held == [3, 6, 9, 10]
        for wrong in ({"receive_max": 0}, {"receive_pause": -second}):
            with pytest.raises(ValueError, match="receive_"):
                mq.push_consumer("orders", group="shop", **wrong)
