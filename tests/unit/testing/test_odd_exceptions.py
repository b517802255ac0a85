"""Whatever a function raises is a failed attempt: it comes again, and is a dead letter at last."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import latermq
from latermq._worker.verdicts import Judge, Rules
from latermq.delivery import Delivery, Outcome
from latermq.middleware import HandleNext, Middleware
from latermq.testing import HeldBroker


class Refused(Exception):
    """Hands out the fields of an answer, and has none of those that are asked for."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__("refused")
        self.answer = answer

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["answer"][name]


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text")


class Picky(type):
    def __subclasscheck__(cls, other: type) -> bool:
        raise KeyError(other)


class Rare(Exception, metaclass=Picky):
    pass


def refused() -> BaseException:
    return Refused({"code": 4})


def odd_syntax_error() -> BaseException:
    error = SyntaxError("no such template")
    error.text, error.lineno = 5, 1  # type: ignore[assignment]
    return error


ERRORS: list[Callable[[], BaseException]] = [
    refused, odd_syntax_error, Mute, GeneratorExit, SystemExit, asyncio.CancelledError,
    lambda: StopIteration(3), lambda: BaseExceptionGroup("all", [SystemExit(), ValueError()]),
]  # fmt: skip


@pytest.fixture(params=ERRORS, ids=lambda make: getattr(make, "__name__", "odd"))
def make(request: pytest.FixtureRequest) -> Callable[[], BaseException]:
    error: Callable[[], BaseException] = request.param
    return error


async def _dies_of_it(latermq_time: HeldBroker, app: latermq.App, listener: Any) -> None:
    latermq_time.patience = timedelta(seconds=60)  # for threads; it is not slept
    async with latermq_time.working(app):
        await listener.send("x")
        await latermq_time.advance("10s")
        assert [row.in_hand for row in app.stats] == [0]
    (letter,) = latermq_time.dead("billing")
    assert (letter.reason, letter.attempts) == ("attempts_exhausted", 3)
    assert latermq_time.pending() == []


async def test_of_an_async_function(
    latermq_time: HeldBroker, make: Callable[[], BaseException]
) -> None:
    app = latermq.App()

    @app.listener("orders", group="billing", retry="1s", max_attempts=3)
    async def bill(order: str) -> None:
        raise make()

    await _dies_of_it(latermq_time, app, bill)


@pytest.mark.parametrize("also", [KeyboardInterrupt, None], ids=["interrupt", "it"])
async def test_of_a_thread(
    latermq_time: HeldBroker,
    make: Callable[[], BaseException],
    also: Callable[[], BaseException] | None,
) -> None:
    """No signal reaches a thread: KeyboardInterrupt there is the function's own."""
    app = latermq.App()

    @app.listener("orders", group="billing", retry="1s", max_attempts=3)
    def bill(order: str) -> None:
        raise (also or make)()

    await _dies_of_it(latermq_time, app, bill)


async def test_of_a_batch(latermq_time: HeldBroker, make: Callable[[], BaseException]) -> None:
    app = latermq.App()

    @app.listener(
        "orders", group="billing", retry="1s", max_attempts=3, batch=10, batch_wait="50ms",
        give_back_on=Rare,
    )  # fmt: skip
    async def bill(orders: list[str]) -> None:
        raise make()

    await _dies_of_it(latermq_time, app, bill)


async def test_of_middleware_and_its_hook(
    latermq_time: HeldBroker, make: Callable[[], BaseException]
) -> None:
    class Fails(Middleware):
        async def handle(self, delivery: Delivery, call_next: HandleNext) -> Any:
            await call_next(delivery)
            raise make()

        def settled(self, delivery: Delivery, outcome: Outcome) -> None:
            raise make()

        def __repr__(self) -> str:
            raise KeyError("no name")

    app = latermq.App()
    app.use(Fails())

    @app.listener("orders", group="billing", retry="1s", max_attempts=3)
    async def bill(order: str) -> None:
        pass

    await _dies_of_it(latermq_time, app, bill)


async def test_settled_by_hand(latermq_time: HeldBroker, make: Callable[[], BaseException]) -> None:
    app = latermq.App()

    @app.listener("orders", group="billing", retry="1s", max_attempts=4)
    async def bill(order: str, delivery: Delivery) -> None:
        if delivery.attempt == 1:
            await delivery.nack(make())
        elif delivery.attempt == 2:
            await delivery.retry_in(timedelta(seconds=2), make())
        else:
            await delivery.dead_letter("no more", make())

    async with latermq_time.working(app):
        await bill.send("x")
        await latermq_time.advance("10s")
    (letter,) = latermq_time.dead("billing")
    assert (letter.reason, letter.attempts, letter.text) == ("rejected", 3, "no more")


@pytest.fixture
def broken_log() -> Iterator[None]:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ConnectionError("the log is away")

    handler, log = Broken(), logging.getLogger("latermq")
    log.addHandler(handler)
    yield
    log.removeHandler(handler)


async def test_a_log_that_raises_stops_no_message(
    latermq_time: HeldBroker, broken_log: None
) -> None:
    app = latermq.App()

    @app.listener("orders", group="billing", retry="1s", max_attempts=3)
    async def bill(order: str) -> None:
        raise ValueError("no card")

    await _dies_of_it(latermq_time, app, bill)


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        ([ConnectionError(), ConnectionError()], Outcome.RETURNED),
        ([ConnectionError(), ExceptionGroup("in", [ConnectionError()])], Outcome.RETURNED),
        ([ConnectionError(), ValueError()], Outcome.FAILED),
        ([ConnectionError(), ValueError(), KeyError()], Outcome.DEAD_LETTERED),
    ],
)
async def test_the_strictest_of_a_group_holds(errors: list[Exception], outcome: Outcome) -> None:
    judge = Judge(Rules(give_back_on=ConnectionError, dead_letter_on=LookupError))
    assert judge.verdict(ExceptionGroup("several", errors)).outcome is outcome


async def test_a_rule_may_name_the_group_itself() -> None:
    judge = Judge(Rules(dead_letter_on=ExceptionGroup))
    error = ExceptionGroup("several", [ValueError()])
    assert judge.verdict(error).outcome is Outcome.DEAD_LETTERED


async def test_the_longest_wait_of_a_group_holds() -> None:
    class Busy(Exception):
        def __init__(self, seconds: int) -> None:
            self.retry_in = timedelta(seconds=seconds)

    verdict = Judge(Rules()).verdict(ExceptionGroup("several", [Busy(3), Busy(17), ValueError()]))
    assert verdict.after == timedelta(seconds=17)
