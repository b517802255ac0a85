"""Whose pages work: a few at once, shares of the loop, turns."""

import asyncio
from typing import Any

import pytest

from latermq_console import clock
from latermq_console.serving import gate as rules
from latermq_console.serving.gate import AT_ONCE_MAX, Gate, TooManyRequestsError
from latermq_console.serving.turns import BEGIN_AT_ONCE_MAX, Turns


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [1_000.0]
    monkeypatch.setattr(clock, "monotonic_s", lambda: time[0])
    return time


async def test_a_page_has_a_few_requests_at_once_and_a_bounded_number_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "WAITING_MAX", 3)
    gate, begun, end = Gate(), list[int](), asyncio.Event()

    async def work(number: int) -> int:
        begun.append(number)
        await end.wait()
        return number

    count = AT_ONCE_MAX + 3
    running = [
        asyncio.ensure_future(gate.run("session", "", "/page", work(number)))
        for number in range(count)
    ]
    await asyncio.sleep(0)
    assert begun == list(range(AT_ONCE_MAX))
    monkeypatch.setattr(rules, "WAITING_MAX", 3)
    with pytest.raises(TooManyRequestsError):
        async with gate.turn(("session", "/page"), waiting_max=3):
            pass
    assert await gate.run("session", "", "/other", asyncio.sleep(0, "done")) == "done"
    running[-1].cancel()
    end.set()
    await asyncio.wait(running)
    assert [task.result() for task in running[:-1]] == list(range(count - 1))
    assert not gate._places


async def test_who_uses_more_than_a_share_waits_while_others_ask(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    gate = Gate()

    async def heavy() -> None:
        now[0] += 0.5

    await gate.run("session", "shop", "/heavy", heavy())
    monkeypatch.setattr(asyncio, "sleep", sleep)
    await gate.run("session", "shop", "/heavy", heavy())
    assert slept == [], "nobody else is there"
    await gate.run("another", "root", "/", heavy())
    begun_s, count = now[0], 0
    gate.note("a newcomer")
    while now[0] - begun_s < 10:
        await gate.run("session", "shop", "/heavy", heavy())
        gate.note("a newcomer")
        count += 1
    # What it used alone is not forgiven: two pages more than its share, less the burst.
    assert 0.5 * count / (now[0] - begun_s) <= rules.PAGE_SHARE + 0.05
    assert count >= 2
    assert max(slept) <= rules.PAUSE_S_MAX


async def test_a_measured_page_is_cancelled_and_raises_as_it_would(now: list[float]) -> None:
    gate, seen = Gate(), list[str]()

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = asyncio.ensure_future(gate.run("session", "", "/", waits()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("of the page")

    with pytest.raises(ValueError, match="of the page"):
        await gate.run("session", "", "/", fails())
    assert seen == ["cancelled"]
    assert not gate._places


async def test_accounts_and_the_seen_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "ACCOUNTS_MAX", 8)
    gate = Gate()
    for number in range(30):
        await gate.run("session", "shop", f"/{number}", asyncio.sleep(0))
    assert len(gate._accounts) == len(gate._seen_s) == 8


async def test_requests_begin_by_turns() -> None:
    begun: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.append(scope["name"])
        await asyncio.Event().wait()

    turns = Turns(app, lambda scope: scope["name"])
    crowd = [
        asyncio.ensure_future(turns({"name": "crowd"}, None, None))  # type: ignore[arg-type]
        for _ in range(40)
    ]
    await asyncio.sleep(0)
    assert len(begun) == BEGIN_AT_ONCE_MAX
    crowd[10].cancel()
    person = asyncio.ensure_future(turns({"name": "person"}, None, None))  # type: ignore[arg-type]
    while "person" not in begun:
        await asyncio.sleep(0)
    assert begun.count("crowd") <= 4 * BEGIN_AT_ONCE_MAX
    while begun.count("crowd") < 39:
        await asyncio.sleep(0)
    for task in [*crowd, person]:
        task.cancel()
    await asyncio.gather(*crowd, person, return_exceptions=True)
