"""Listeners that are made, or raise, as nobody meant: nothing is acknowledged that was not done."""

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import latermq
from latermq._consuming.settle import LeaseSettler
from latermq.errors import UnavailableError
from latermq.testing import HeldBroker

Bill = Callable[[bytes], Coroutine[Any, Any, None]]


def plainly_wrapped(function: Bill) -> Bill:
    @functools.wraps(function)
    def inner(order: bytes) -> Coroutine[Any, Any, None]:
        return function(order)

    return inner


async def test_a_plain_function_around_an_async_one(latermq_time: HeldBroker) -> None:
    """What it returns is no success yet."""
    latermq_time.patience = timedelta(seconds=60)  # for the thread; it is not slept
    app, done = latermq.App(), []

    @app.listener("orders", group="billing")
    @plainly_wrapped
    async def bill(order: bytes) -> None:
        done.append(order)
        raise ValueError("no card")

    async with latermq_time.working(app):
        await bill.send(b"17")
        await latermq_time.settle()
        assert [each.text for each in latermq_time.pending()] == ["no card"]
    assert done == [b"17"]


def forgetful(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Decorate as one does who forgot `await`."""

    @functools.wraps(function)
    async def inner(given: Any) -> Any:
        return function(given)

    return inner


async def fails(given: object) -> None:
    raise ValueError("no card")


def yields(given: object) -> Iterator[object]:
    yield given


async def yields_later(given: object) -> AsyncIterator[object]:
    yield given


ODD = [(fails, "no card"), (yields, "yields yields"), (yields_later, "yields_later yields")]


@pytest.mark.parametrize(("function", "why"), ODD)
async def test_an_async_function_that_returns_what_nobody_awaits_or_iterates_over(
    latermq_time: HeldBroker, function: Callable[[Any], Any], why: str
) -> None:
    app = latermq.App()

    @app.listener("orders", group="billing")
    async def bill(order: bytes) -> Any:
        return function(order)

    @app.listener("orders", group="shipping", batch=1)
    async def ship(orders: list[bytes]) -> Any:
        return function(orders)

    async with latermq_time.working(app):
        await bill.send(b"17")
        await latermq_time.settle()
        texts = [each.text for each in latermq_time.pending()]
    assert len(texts) == 2
    assert all(text.startswith(why) for text in texts)


@pytest.mark.parametrize(("function", "why"), ODD)
async def test_so_a_push_consumer_s_listeners(
    latermq_time: HeldBroker, function: Callable[[Any], Any], why: str
) -> None:
    async with latermq_time.connect() as mq:
        single = mq.push_consumer("orders", group="billing")
        single.listener(forgetful(function))
        several = mq.push_consumer("orders", group="shipping")
        several.batch_listener(1)(forgetful(function))
        await single.start()
        await several.start()
        await mq.send("orders", b"17")
        await latermq_time.settle()
        texts = [each.text for each in latermq_time.pending()]
    assert len(texts) == 2
    assert all(text.startswith(why) for text in texts)


async def test_a_generator_that_only_its_call_shows(latermq_time: HeldBroker) -> None:
    latermq_time.patience = timedelta(seconds=60)  # for the thread; it is not slept
    app = latermq.App()

    def bills(order: bytes) -> Iterator[bytes]:
        yield order

    wrapped: Any = plainly_wrapped(bills)  # type: ignore[arg-type]
    bill = app.listener("orders", group="billing")(wrapped)
    async with latermq_time.working(app):
        await bill.send(b"17")
        await latermq_time.settle()
        assert [each.text for each in latermq_time.pending()] == [
            "bills yields, and nobody would iterate over it: a listener returns"
        ]


class Ended(BaseException):
    """As libraries have them that end tasks, or threads, by an exception."""


@pytest.mark.parametrize(
    ("error", "text"), [(SystemExit(2), "SystemExit: 2"), (Ended("now"), "Ended: now")]
)
@pytest.mark.parametrize("in_thread", [False, True])
async def test_what_would_end_the_worker_is_a_failure(
    latermq_time: HeldBroker, error: BaseException, text: str, in_thread: bool
) -> None:
    """It ended the worker, and every other one that got the message, which no attempt was counted
    of."""
    app = latermq.App()

    def quits(order: bytes) -> None:
        raise error

    async def quits_too(order: bytes) -> None:
        raise error

    bill = app.listener("orders", group="billing", max_attempts=2, retry="1s")(
        quits if in_thread else quits_too
    )
    async with latermq_time.working(app):
        await bill.send(b"17")
        await latermq_time.advance("1s")
        (letter,) = latermq_time.dead("billing")
        assert (letter.kind, letter.attempts) == ("HandlerExitedError", 2)
        assert letter.text == f"the handler raised {text}"


class Mute(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


async def test_an_exception_that_cannot_say_what_it_is(latermq_time: HeldBroker) -> None:
    app = latermq.App()

    @app.listener("orders", group="billing", max_attempts=2, retry="1s")
    async def bill(order: bytes) -> None:
        raise Mute

    async with latermq_time.working(app):
        await bill.send(b"17")
        await latermq_time.advance("1s")
        (letter,) = latermq_time.dead("billing")
        assert (letter.kind, letter.attempts) == ("Mute", 2)


async def test_a_body_that_does_not_fit_costs_the_others_of_its_batch_nothing(
    latermq_time: HeldBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even when the broker is away as it is refused."""
    app, done = latermq.App(), []

    @app.listener("orders", group="billing", batch=2, retry="1s")
    async def bill(orders: list[dict[str, int]]) -> None:
        done.extend(orders)

    away, forward = [UnavailableError("gone")], LeaseSettler.forward

    async def once_away(self: LeaseSettler, *given: Any) -> None:
        if away:
            raise away.pop()
        await forward(self, *given)

    monkeypatch.setattr(LeaseSettler, "forward", once_away)
    async with latermq_time.working(app):
        await app.client.send("orders", b"no JSON")
        await app.client.send("orders", b'{"id": 17}')
        await latermq_time.advance("10s")
        (letter,) = latermq_time.dead("billing")
        assert (letter.kind, letter.attempts) == ("PayloadError", 1)
        assert latermq_time.pending() == []
    assert done == [{"id": 17}]


@dataclass
class Priced:
    what: str

    def __post_init__(self) -> None:
        {"tea": 350}[self.what]


async def test_what_a_payload_s_own_type_raises_costs_the_others_of_its_batch_nothing(
    latermq_time: HeldBroker,
) -> None:
    """It failed the batch, again and again, until all of it was dead."""
    app, done = latermq.App(), list[str]()

    @app.listener("orders", group="billing", batch=2, retry="1s")
    async def bill(orders: list[Priced]) -> None:
        done.extend(each.what for each in orders)

    async with latermq_time.working(app):
        await app.client.send("orders", b'{"what": "cake"}')
        await app.client.send("orders", b'{"what": "tea"}')
        await latermq_time.advance("10s")
        (letter,) = latermq_time.dead("billing")
        assert letter.text == "the payload does not fit: KeyError: 'cake'"
        assert (letter.body, letter.attempts) == (b'{"what": "cake"}', 1)
        assert latermq_time.pending() == []
    assert done == ["tea"]
