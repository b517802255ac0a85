"""`@retry`: which calls are made again, when, and for how long."""

import asyncio
from datetime import timedelta

import pytest

from latermq import retry
from support.virtual_loop import virtually


class Busy(Exception):
    def __init__(self, retry_in: object = None) -> None:
        super().__init__("busy")
        self.retry_in = retry_in


class Refused(Busy):
    """One that another call does not mend."""


async def times_s(*raised: Exception, took_s: float = 0.0, **options: object) -> list[float]:
    """Call a function that raises these, one after the other; tell when each call began."""
    loop = asyncio.get_running_loop()
    began_s, times, left = loop.time(), [], list(raised)

    @retry(**options)  # type: ignore[arg-type]
    async def call() -> None:
        times.append(round(loop.time() - began_s, 3))
        await asyncio.sleep(took_s)
        if left:
            raise left.pop(0)

    try:
        await call()
    except Busy:
        times.append(-1.0)
    return times


@virtually
async def test_the_waits_and_the_tries() -> None:
    assert await times_s(Busy(), Busy()) == [0, 1, 6]
    assert await times_s(Busy(), Busy(), tries=2) == [0, 1, -1]


@virtually
async def test_some_exceptions_are_given_up_at_once() -> None:
    times = await times_s(Busy(), Refused(), Busy(), on=Busy, give_up_on=Refused)
    assert times == [0, 1, -1]


@virtually
async def test_no_call_begins_after_the_time_is_over() -> None:
    assert await times_s(Busy(), Busy(), within="5s") == [0, 1, -1]
    assert await times_s(Busy(), Busy(), within=timedelta(seconds=7)) == [0, 1, 6]
    assert await times_s(Busy(), Busy(), took_s=3, within="4s") == [0, -1], "calls take time, too"


@virtually
async def test_an_exception_says_how_long_to_wait() -> None:
    assert await times_s(Busy(17), Busy("1m"), Busy()) == [0, 17, 77, 107]
    doubled = await times_s(Busy(17), retry_in=lambda error: error.retry_in * 2)
    assert doubled == [0, 34]
    assert await times_s(Busy(17), within="10s") == [0, -1]
    assert await times_s(Busy(999_999_999)) == [0, 12 * 3_600]  # 12 h at most


def test_the_same_where_nothing_awaits() -> None:
    calls = []

    @retry("fixed 1ms", on=Busy, give_up_on=Refused, within="1m")
    def call() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise Busy
        if len(calls) == 2:
            return "done"
        raise Refused

    assert call() == "done"
    with pytest.raises(Refused):
        call()
    assert len(calls) == 3


@pytest.mark.parametrize("within", ["0s", timedelta(0), "soon"])
def test_what_is_no_time(within: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        retry(within=within)  # type: ignore[arg-type]
