"""Attempts to sign in: how many begin, who waits, and who goes next."""

import asyncio

import pytest

from latermq_console import clock
from latermq_console.serving import attempts as rules
from latermq_console.serving.attempts import (
    ADDRESS_BURST,
    ADDRESS_EVERY_S,
    AT_ONCE_MAX,
    KEY_BURST,
    KEY_EVERY_S,
    WAITING_PER_LANE_MAX,
    Attempts,
    Pace,
    TooManyAttemptsError,
)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [1_000.0]
    monkeypatch.setattr(clock, "monotonic_s", lambda: time[0])
    monkeypatch.setattr(rules, "LOOK_S", 0.0)
    return time


class Signing:
    """People and guessers: what became of each attempt, by what it was called."""

    def __init__(self) -> None:
        self.attempts = Attempts()
        self.became: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, name: str, address: str, key: str, *, right: bool = False) -> None:
        self._tasks.append(asyncio.ensure_future(self._sign_in(name, address, key, right)))

    async def _sign_in(self, name: str, address: str, key: str, right: bool) -> None:
        try:
            async with self.attempts.turn(address, key) as attempt:
                attempt.right = right
                self.became[name] = "tried"
        except TooManyAttemptsError:
            self.became[name] = "refused"

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def count(self, became: str) -> int:
        return sum(each == became for each in self.became.values())


async def test_of_many_guesses_at_once_few_are_tried(now: list[float]) -> None:
    signing = Signing()
    for number in range(240):
        signing.begin(f"guess {number}", "a", "root")
    await signing.settle()
    assert signing.count("tried") == KEY_BURST
    assert signing.count("refused") == 240 - KEY_BURST - WAITING_PER_LANE_MAX
    signing.begin("neighbour", "a", "shop", right=True)
    signing.begin("elsewhere", "b", "root", right=True)
    signing.begin("person", "a", "root", right=True)
    await signing.settle()
    assert (signing.became["neighbour"], signing.became["elsewhere"]) == ("tried", "tried")
    assert "person" not in signing.became
    now[0] += KEY_EVERY_S
    await signing.settle()
    assert signing.became["person"] == "tried", "the newest goes first"
    await signing.settle()
    assert signing.count("tried") == KEY_BURST + 3 + WAITING_PER_LANE_MAX - 1, "its key is clean"
    await signing.stop()


async def test_guesses_at_many_keys_of_one_address_are_paced_too(now: list[float]) -> None:
    signing = Signing()
    for number in range(240):
        signing.begin(f"guess {number}", "a", f"user-{number}")
    await signing.settle()
    assert signing.count("tried") == ADDRESS_BURST
    signing.begin("person", "a", "shop", right=True)
    await signing.settle()
    now[0] += ADDRESS_EVERY_S
    await signing.settle()
    assert signing.became["person"] == "tried"
    await signing.stop()


async def test_right_secrets_of_many_behind_one_address_wait_for_nothing(now: list[float]) -> None:
    signing = Signing()
    for number in range(10 * ADDRESS_BURST):
        signing.begin(str(number), "proxy", f"user-{number}", right=True)
        await signing.settle()
    assert signing.count("tried") == 10 * ADDRESS_BURST
    await signing.stop()


async def test_an_attempt_whose_turn_does_not_come_is_refused(now: list[float]) -> None:
    signing = Signing()
    for number in range(KEY_BURST + 1):
        signing.begin(str(number), "a", "root")
    await signing.settle()
    signing.attempts._pace.begin("a", "root", now[0] + 100.0)  # others were before it
    now[0] += rules.WAIT_S_MAX + 1
    await signing.settle()
    assert signing.became[str(KEY_BURST)] == "refused"


async def test_cancelled_attempts_leave_room(now: list[float]) -> None:
    attempts = Attempts()

    async def hold(key: str) -> None:
        async with attempts.turn(f"from {key}", key):
            await asyncio.Event().wait()

    held = [asyncio.ensure_future(hold(str(number))) for number in range(AT_ONCE_MAX + 1)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (attempts._under_way, len(attempts._waiting)) == (AT_ONCE_MAX, 1)
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    assert (attempts._under_way, attempts._waiting) == (0, [])
    if attempts._looking is not None:
        await attempts._looking


def test_lanes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "LANES_MAX", 4)
    pace = Pace()
    for number in range(20):
        pace.begin(f"address {number}", "root", 0.0)
    assert len(pace._empty_s) == 4
