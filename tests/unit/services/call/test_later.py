"""An answer that is not there yet: settled once, told once, and never lost."""

import asyncio
import logging

import pytest

from latermq_broker.deferred import Later


def test_the_listener_is_told_at_once_and_once() -> None:
    later: Later[int] = Later()
    told: list[int | None] = []
    later.listen(lambda settled: told.append(settled.value))
    assert not told
    later.give(1)
    later.give(2)
    later.fail(ValueError("too late"))
    assert (told, later.result()) == ([1], 1)


def test_who_listens_to_a_settled_one_is_told_now() -> None:
    later = Later("made with it")
    later.release()
    told: list[str | None] = []
    later.listen(lambda settled: told.append(settled.value))
    assert told == ["made with it"]


def test_an_error_is_kept_for_whoever_asks() -> None:
    later: Later[int] = Later()
    later.fail(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        later.result()


def test_a_rescue_turns_an_error_into_a_value_or_another_error() -> None:
    saved: Later[str] = Later()
    saved.rescue(str)
    saved.fail(ValueError("told"))
    assert saved.result() == "told"

    def worse(error: BaseException) -> str:
        raise KeyError("worse") from error

    lost: Later[str] = Later()
    lost.rescue(worse)
    lost.fail(ValueError("no"))
    with pytest.raises(KeyError):
        lost.result()


@pytest.mark.parametrize("early", [True, False])
def test_steps_follow_one_another_also_when_one_is_later_still(early: bool) -> None:
    first: Later[int] = Later()
    second: Later[str] = Later()
    if early:
        first.give(1)
        second.give("b")
    made = first.then(lambda _: second).mapped(lambda text: text + "c")
    if not early:
        first.give(1)
        assert not made.settled
        second.give("b")
    assert made.result() == "bc"


def test_an_error_passes_through_the_steps_and_a_step_may_raise() -> None:
    first: Later[int] = Later()
    steps: list[int] = []
    made = first.mapped(steps.append)
    first.fail(ValueError("no"))
    assert isinstance(made.error, ValueError)
    assert not steps
    inner: Later[int] = Later()
    inner.fail(KeyError("inner"))
    outer: Later[int] = Later()
    through = outer.then(lambda _: inner)
    outer.give(1)
    assert isinstance(through.error, KeyError)
    other: Later[int] = Later()
    broken = other.mapped(lambda value: 1 // value)
    other.give(0)
    assert isinstance(broken.error, ZeroDivisionError)


def test_a_listener_that_fails_stops_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    later: Later[int] = Later()
    later.listen(lambda settled: 1 // (settled.value or 0))  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR):
        later.give(0)
    assert "a listener failed" in caplog.text


async def test_it_can_be_awaited_before_and_after() -> None:
    later: Later[int] = Later()
    waiting = asyncio.ensure_future(_awaited(later))
    await asyncio.sleep(0)
    assert not waiting.done()
    later.give(3)
    assert await waiting == 3
    assert await _awaited(later) == 3


async def test_who_awaits_it_may_go_away() -> None:
    later: Later[int] = Later()
    waiting = asyncio.ensure_future(_awaited(later))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    later.give(3)
    assert waiting.cancelled()


async def _awaited(later: Later[int]) -> int:
    return await later
