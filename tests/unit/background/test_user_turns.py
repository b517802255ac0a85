"""Whose input goes on next among users: who asks for little never waits for who asks for much."""

import asyncio
from collections import Counter
from typing import Final

import pytest

from latermq_broker.background.user_turns import DIRECT_NS_MAX, WINDOW_NS
from latermq_broker.transport.turns import Turns

MS: Final = 1_000_000


class Loop:
    """Turns with a clock that moves as pieces spend; each run of the loop is one turn."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.had: Counter[str] = Counter()
        self.order: list[str] = []
        self.turns = Turns(now_ms=lambda: self.now_ns // MS, now_ns=lambda: self.now_ns)

    def spend(self, user: str, ns: int) -> None:
        def piece(data: bytes) -> None:
            self.now_ns += ns
            self.had[user] += ns
            self.order.append(user)

        self.turns.users.do(user, piece, b"")

    def ask(self, user: str, ns: int, times: int = 1) -> None:
        """Have a connection of this user with so many pieces to come."""

        def piece(left: int = times) -> None:
            self.spend(user, ns)
            if left > 1:
                self.turns.ask(lambda: piece(left - 1), user=user)

        self.turns.ask(piece, user=user)


async def test_who_had_little_goes_on_at_once() -> None:
    loop = Loop()
    assert loop.turns.users.goes_on("busy")
    loop.spend("busy", DIRECT_NS_MAX)
    assert not loop.turns.users.goes_on("busy")
    assert loop.turns.users.goes_on("other")
    loop.now_ns += WINDOW_NS
    assert loop.turns.users.goes_on("busy")


async def test_who_waits_goes_on_in_order_only() -> None:
    loop = Loop()
    loop.ask("busy", 100_000)
    loop.now_ns += WINDOW_NS
    assert not loop.turns.users.goes_on("busy")
    assert loop.turns.users.goes_on("other")
    await asyncio.sleep(0)
    assert loop.turns.users.goes_on("busy")


async def test_users_share_by_time_however_many_connections_and_however_long_a_piece() -> None:
    loop = Loop()
    for _ in range(64):
        loop.ask("many", 50_000, times=1_000)
    loop.ask("long", 700_000, times=1_000)
    loop.ask("short", 10_000, times=100_000)
    while loop.now_ns < 300 * MS:
        await asyncio.sleep(0)
    shares = [loop.had[user] / loop.now_ns for user in ("many", "long", "short")]
    assert shares == pytest.approx([1 / 3] * 3, rel=0.1)


async def test_nobody_saves_up_while_he_asks_for_nothing() -> None:
    loop = Loop()
    loop.ask("busy", 100_000, times=10_000)
    while loop.now_ns < 50 * MS:
        await asyncio.sleep(0)
    loop.had.clear()
    loop.ask("late", 100_000, times=10_000)
    begun_ns = loop.now_ns
    while loop.now_ns < begun_ns + 20 * MS:
        await asyncio.sleep(0)
    assert loop.had["busy"] / loop.had["late"] == pytest.approx(1, rel=0.1)


async def test_a_user_of_whom_nothing_waits_is_forgotten() -> None:
    loop = Loop()
    for number in range(100):
        loop.spend(f"user-{number}", 10_000)
    loop.now_ns += WINDOW_NS
    assert loop.turns.users.goes_on("other")
    assert not loop.turns.users._callers


async def test_a_piece_that_fails_stops_no_other() -> None:
    loop = Loop()
    failed: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: failed.append(told))

    def fails() -> None:
        raise RuntimeError("of a connection")

    loop.turns.ask(fails, user="one")
    loop.ask("one", 10_000)
    loop.ask("two", 10_000)
    for _ in range(3):
        await asyncio.sleep(0)
    assert sorted(loop.order) == ["one", "two"]
    assert len(failed) == 1
