"""Connections with input left: one after the other, and others in between."""

import asyncio

from latermq_broker.transport.turns import STRANGERS_MS_MAX, TURN_MS_MAX, Turns


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


async def test_each_gets_a_piece_and_all_together_a_part_of_a_turn() -> None:
    clock, order = Clock(), []
    turns = Turns(clock)

    def piece(name: str, pieces: int) -> None:
        order.append(name)
        clock.now_ms += 1
        if pieces > 1:
            turns.ask(lambda: piece(name, pieces - 1))

    for name in "abc":
        turns.ask(lambda name=name: piece(name, 3))  # type: ignore[misc]
    seen = []
    while len(turns):
        await asyncio.sleep(0)  # the rest of the loop's turn
        seen.append(len(order))
    assert "".join(order) == "abcabcabc"
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) <= (
        TURN_MS_MAX
    )


async def test_a_users_connection_goes_first_and_a_stranger_has_its_piece() -> None:
    clock, order = Clock(), []
    turns = Turns(clock)

    def piece(name: str, *, known: bool) -> None:
        order.append(name)
        clock.now_ms += TURN_MS_MAX
        if len(order) < 12:
            turns.ask(lambda: piece(name, known=known), user="U" if known else "")

    for name in "abc":
        turns.ask(lambda name=name: piece(name, known=False))  # type: ignore[misc]
    turns.ask(lambda: piece("U", known=True), user="U")
    while len(order) < 12:
        await asyncio.sleep(0)
    assert "".join(order) == "UaUbUcUaUbUc"


async def test_one_that_fails_does_not_stop_the_others() -> None:
    turns, done = Turns(Clock()), []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: done.append("failed"))

    def fails() -> None:
        raise ValueError("no")

    turns.ask(fails)
    turns.ask(lambda: done.append("other"))
    while len(turns):
        await asyncio.sleep(0)
    assert done == ["failed", "other"]


async def test_strangers_take_turns_by_address() -> None:
    clock, order = Clock(), []
    turns = Turns(clock)
    for name in "aaaab":
        turns.ask(lambda name=name: order.append(name), address=name)  # type: ignore[misc]
    await asyncio.sleep(0)
    assert "".join(order) == "abaaa"


async def test_newcomers_come_one_in_a_turn_beside_whoever_asks() -> None:
    clock, order = Clock(), []
    turns = Turns(clock)

    def piece(name: str, *, known: bool) -> None:
        order.append(name)
        clock.now_ms += TURN_MS_MAX
        if len(order) < 9:
            turns.ask(lambda: piece(name, known=known), user="U" if known else "")

    turns.ask(lambda: piece("U", known=True), user="U")
    turns.ask(lambda: piece("s", known=False))
    for _ in range(3):
        turns.ask_in(lambda: order.append("n"))
    while len(turns):
        await asyncio.sleep(0)
    assert "".join(order[:9]) == "UsnUsnUsn"


async def test_strangers_have_a_part_of_the_time_of_all() -> None:
    clock = Clock()
    turns, order = Turns(clock), []

    def piece() -> None:
        order.append(clock.now_ms)
        clock.now_ms += STRANGERS_MS_MAX

    for _ in range(3):
        turns.ask(piece)
    assert not turns.is_crowded
    await asyncio.sleep(0)
    assert len(order) == 1
    for _ in range(3):
        turns.ask(piece)
    assert turns.is_crowded
