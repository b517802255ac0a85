"""Why a broker stops: the first failure, which the others follow from; and that it does end."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from latermq_broker.config.config import ServerConfig
from latermq_broker.errors import FencedError, StoreReadOnlyError
from latermq_broker.pump import event_loop
from latermq_broker.pump.event_loop import Ending, Signals


async def test_the_first_failure_says_why() -> None:
    """A sync that waits for the replicated log fails, too, once another owner is found in it."""
    ending = Ending(ServerConfig(), waited_for=False)
    ending.failed(FencedError("another broker has taken over"))
    ending.failed(StoreReadOnlyError("not in the replicated log"))
    assert isinstance(ending.failure, FencedError)
    assert ending.stop.is_set()


async def test_after_the_log_was_let_go_nothing_fails() -> None:
    ending = Ending(ServerConfig(), waited_for=False)
    ending.let_go()
    ending.failed(StoreReadOnlyError("not in the replicated log"))
    assert ending.failure is None


class EndedError(Exception):
    """The process would have ended, with this code."""


def end(code: int) -> None:
    raise EndedError(code)


async def test_a_process_whose_disk_hangs_ends_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "DISK_S", 0.0)
    monkeypatch.setattr(os, "_exit", end)
    waits = asyncio.Event()

    async def hanging() -> None:
        await waits.wait()

    with pytest.raises(EndedError, match="4"):
        await Ending(ServerConfig(), waited_for=True).join(hanging(), [7], 4)
    waits.set()


async def test_a_process_waits_for_a_disk_that_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "DISK_S", 0.0)
    monkeypatch.setattr(os, "_exit", end)
    over = asyncio.Event()

    class Syncs(list[int]):
        """One after another, each time that it is looked at."""

        def __iter__(self) -> Iterator[int]:
            self[0] += 1
            if self[0] == 3:
                over.set()
            return super().__iter__()

        def __contains__(self, number: object) -> bool:
            return number in list(self)

    await Ending(ServerConfig(), waited_for=True).join(wait_for(over), Syncs([0]), 4)


async def test_a_broker_that_is_alone_waits_for_its_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """With flush = "none" the last sync is of a whole segment."""
    monkeypatch.setattr(event_loop, "DISK_S", 0.0)
    monkeypatch.setattr(os, "_exit", end)
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, over.set)
    await Ending(ServerConfig(), waited_for=False).join(wait_for(over), [7], 4)


async def wait_for(over: asyncio.Event) -> None:
    await over.wait()


def test_a_wish_to_reload_that_comes_too_early_is_heeded_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the log was replayed it ended the process; systemd took that for an end in order."""
    monkeypatch.setattr(event_loop, "has_terminal", lambda: False)
    before = signal.getsignal(signal.SIGHUP)
    wishes: list[str] = []

    async def life(name: str) -> None:
        signals.reload_by(lambda: wishes.append(name))

    try:
        signals = Signals()
        signal.raise_signal(signal.SIGHUP)
        asyncio.run(life("first"))
        signals.between_loops()
        asyncio.run(life("not wished"))
        signals.between_loops()
        signal.raise_signal(signal.SIGHUP)
        asyncio.run(life("second"))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert wishes == ["first", "second"]
