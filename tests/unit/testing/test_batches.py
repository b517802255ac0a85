"""Listeners of batches: how they fill, what is done of them, in which order the rest comes."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

import latermq
from latermq import ConsumeResult, Delivery, Message
from latermq.middleware import BatchNext, HandleNext, Middleware
from latermq.testing import HeldBroker

MS = timedelta(milliseconds=1)


async def send(broker: HeldBroker, *bodies: str, group: str | None = None) -> None:
    async with broker.connect() as mq:
        await mq.send_batch(
            "orders", [Message(body.encode(), message_group=group) for body in bodies]
        )


async def test_a_batch_leaves_when_it_is_full_or_its_first_has_waited(
    latermq_time: HeldBroker,
) -> None:
    app, batches = latermq.App(), list[list[str]]()

    @app.listener("orders", group="billing", batch=3, batch_wait="200ms")
    async def bill(orders: list[str]) -> None:
        batches.append(orders)

    async with latermq_time.working(app):
        await send(latermq_time, *"abcdefg")
        await latermq_time.settle()
        assert [len(each) for each in batches] == [3, 3]
        await latermq_time.advance("199ms")
        assert len(batches) == 2
        await latermq_time.advance("1ms")
        assert sorted(order for each in batches for order in each) == list("abcdefg")
        await latermq_time.advance("1h")
        assert len(batches) == 3
        await bill(["x"])  # still its function
        assert batches.pop() == ["x"]
        await bill.send("h")
        await latermq_time.advance("200ms")
        assert batches[3] == ["h"]
    assert not latermq_time.pending()
    assert not latermq_time.dead("billing")


async def test_what_comes_after_the_done_ones_has_failed_by_itself(
    latermq_time: HeldBroker,
) -> None:
    app, batches = latermq.App(), list[list[tuple[str, int]]]()

    @app.listener("orders", group="billing", batch=5, retry="1s", max_attempts=2)
    async def bill(orders: list[str], deliveries: list[Delivery]) -> int:
        batches.append([(o, d.attempt) for o, d in zip(orders, deliveries, strict=True)])
        return min(2, len(orders))

    async with latermq_time.working(app):
        await send(latermq_time, *"abcde")
        await latermq_time.settle()
        waiting = latermq_time.pending(group="billing")
        assert [each.state for each in waiting] == ["backoff"] * 3
        assert {(each.kind, each.text) for each in waiting} == {
            ("NotDoneError", "2 of the 5 of its batch were done before it")
        }
        await latermq_time.advance("1s200ms")
        assert [attempt for _, attempt in batches[1]] == [2, 2, 2]
        (letter,) = latermq_time.dead("billing")
        assert letter.body.decode() == batches[1][2][0]
    assert latermq_time.pending() == []


async def test_an_exception_is_of_all_by_the_rules(latermq_time: HeldBroker) -> None:
    class Limited(Exception):
        retry_in = 60

    app, calls = latermq.App(), list[int]()
    raised: list[Exception] = [Limited(), ConnectionError("away"), KeyError("ann")]

    @app.listener(
        "orders", group="billing", batch=3, dead_letter_on=KeyError, give_back_on=ConnectionError
    )
    def bill(orders: list[bytes]) -> None:
        calls.append(len(orders))
        raise raised.pop(0)

    async with latermq_time.working(app):
        await send(latermq_time, *"abc")
        await latermq_time.settle()
        waiting = latermq_time.pending(group="billing")
        due = latermq_time.now() + timedelta(seconds=60)
        assert [each.due_at - due for each in waiting] == [0 * MS] * 3
        await latermq_time.advance("60s")
        await latermq_time.advance("10s")
        letters = latermq_time.dead("billing")
        assert sorted(each.body for each in letters) == [b"a", b"b", b"c"]
        assert {each.attempts for each in letters} == {2}, "that the bank was away is not counted"
    assert calls == [3, 3, 3]


async def test_what_does_not_fit_is_dead_and_the_count_is_of_the_others(
    latermq_time: HeldBroker,
) -> None:
    app, batches = latermq.App(), list[list[int]]()

    @app.listener("orders", group="billing", batch=5, retry="1h")
    async def bill(orders: list[int]) -> int:
        batches.append(orders)
        return 2

    @app.listener("orders", group="mailing", batch=5)
    async def mail(orders: list[list[str]]) -> None:
        raise AssertionError("nothing fits")

    async with latermq_time.working(app):
        await send(latermq_time, "x", "1", "y", "2", "3", group="ann")
        await latermq_time.settle()
        assert batches == [[1, 2, 3]]
        assert [each.kind for each in latermq_time.dead("billing")] == ["PayloadError"] * 2
        assert len(latermq_time.pending(group="billing")) == 1
        assert len(latermq_time.dead("mailing")) == 5


async def test_in_an_ordered_group_the_rest_comes_again_in_order(
    latermq_time: HeldBroker,
) -> None:
    app, done = latermq.App(), list[str]()
    app.topic("orders", kind="fifo")
    app.group("ledger", fifo=True, retry="3s", max_attempts=100)
    batches: list[list[str]] = []

    @app.listener("orders", group="ledger", batch=4)
    async def book(entries: list[str]) -> int:
        batches.append(entries)
        count = 1 if len(batches) % 2 else len(entries)
        done.extend(entries[:count])
        return count

    async with latermq_time.working(app):
        async with latermq_time.connect() as mq:
            for number in range(6):
                for who in ("ann", "bob"):
                    await mq.send("orders", f"{who}{number}".encode(), message_group=who)
        await latermq_time.advance("10m")
    for who in ("ann", "bob"):
        assert [each for each in done if each.startswith(who)] == [f"{who}{n}" for n in range(6)]
    assert max(map(len, batches)) == 4
    assert any(len({entry[:3] for entry in each}) < len(each) for each in batches), "together"


async def test_a_batch_in_hand_ends_or_is_given_back(latermq_time: HeldBroker) -> None:
    app, began = latermq.App(), list[int]()

    @app.listener("orders", group="billing", batch=2, concurrency=1)
    async def bill(orders: list[bytes], deliveries: list[Delivery]) -> None:
        began.append(len(orders))
        await deliveries[0].ack()
        await asyncio.sleep(3_600)

    async with latermq_time.working(app, grace=timedelta(seconds=30)):
        await send(latermq_time, *"abcde")
        await latermq_time.advance("1s")
        assert began == [2]
    async with latermq_time.connect() as mq:
        left = await mq.simple_consumer("orders", group="billing").receive(8)
        assert [each.attempt for each in left] == [1] * 4


async def test_results_that_are_none(latermq_time: HeldBroker) -> None:
    app = latermq.App()
    results: list[Any] = [latermq.RECONSUME_LATER, 3, True, "2", -1, ConsumeResult.SUCCESS]

    @app.listener("orders", group="billing", batch=2, retry="1s")
    async def bill(orders: list[Delivery]) -> Any:
        assert isinstance(orders[0], Delivery)
        return results.pop(0)

    async with latermq_time.working(app):
        await send(latermq_time, "a", "b")
        await latermq_time.settle()
        kinds = []
        for _ in range(5):
            kinds.append({each.kind for each in latermq_time.pending()})
            await latermq_time.advance("1s")
        assert kinds == [{"NotDoneError"}, *[{"ValueError"}] * 4]
        assert latermq_time.pending() == []


async def test_middleware_is_around_batches(latermq_time: HeldBroker) -> None:
    class Single(Middleware):
        async def handle(self, delivery: Delivery, call_next: HandleNext) -> ConsumeResult | None:
            return await call_next(delivery)

    class Counting(Single):
        counts: list[tuple[int, int]]

        async def handle_batch(self, deliveries: Sequence[Delivery], call_next: BatchNext) -> int:
            done = await call_next(deliveries)
            self.counts.append((len(deliveries), done))
            return done

    app, counting = latermq.App(), Counting()
    counting.counts = []

    @app.listener("orders", group="billing", batch=3, retry="1h")
    async def bill(orders: list[bytes]) -> int:
        return 2

    app.use(counting)
    async with latermq_time.working(app):
        await send(latermq_time, *"abc")
        await latermq_time.settle()
    assert counting.counts == [(3, 2)]
    app.use(Single())
    with pytest.raises(TypeError, match="Single has no `handle_batch`"):
        async with latermq_time.working(app):
            pass


async def _bare(orders: list) -> None: ...  # type: ignore[type-arg]
async def _single(orders: str) -> None: ...
async def _mixed(orders: list[str], delivery: Delivery) -> None: ...
async def _three(a: list[str], b: list[Delivery], c: list[str]) -> None: ...


@pytest.mark.parametrize("function", [_bare, _single, _mixed, _three])
def test_functions_that_take_no_lists_are_refused(function: Any) -> None:
    with pytest.raises(TypeError, match="must take a list of payloads, of Delivery, or both"):
        latermq.App().listener("orders", group="billing", batch=2)(function)


@pytest.mark.parametrize("about", [{"batch": 0}, {"batch": 2, "batch_wait": "soon"}])
def test_bounds_that_are_none_are_refused(about: Any) -> None:
    with pytest.raises(ValueError, match=r"batch|duration"):
        latermq.App().listener("orders", group="billing", **about)


async def test_a_consumer_of_its_own_takes_batches_too(latermq_time: HeldBroker) -> None:
    """Without an app: deliveries, as the broker has them; the same words count."""
    batches = list[list[str]]()
    await send(latermq_time, "a", "dead", "c", group="orders")
    async with latermq_time.connect() as mq:
        consumer = mq.push_consumer("orders", group="billing")

        @consumer.batch_listener(3, "200ms")
        async def bill(deliveries: list[Delivery]) -> int | ConsumeResult | None:
            batches.append([each.body.decode() for each in deliveries])
            if len(batches) == 1:
                await deliveries[1].dead_letter("no such customer")
                return 1
            return ConsumeResult.RECONSUME_LATER if len(batches) == 2 else None

        with pytest.raises(TypeError, match="a listener is an `async def` function"):
            consumer.batch_listener(2)(print)  # type: ignore[arg-type]
        async with consumer:
            await latermq_time.settle()
            assert batches == [["a", "dead", "c"]]
            (letter,) = latermq_time.dead("billing")
            assert (letter.body, letter.text) == (b"dead", "no such customer")
            await latermq_time.advance("5m")
        assert batches[1:] == [["c"], ["c"]]
    assert not latermq_time.pending()


@pytest.mark.parametrize("batch", [0, True, "2"])
async def test_a_batch_of_a_consumer_is_a_number(latermq_time: HeldBroker, batch: Any) -> None:
    async with latermq_time.connect() as mq:
        with pytest.raises((ValueError, TypeError), match="batch"):
            mq.push_consumer("orders", group="billing").batch_listener(batch)
