"""Whose TLS handshake is next: no address keeps the others out, and no silent one keeps a place."""

import asyncio
from typing import Any, cast

from latermq_broker.config.config import ServerConfig
from latermq_broker.config.server_transport import Http2Config, TlsConfig
from latermq_broker.transport.greetings import Greeting
from latermq_broker.transport.grpc.counts import Counts
from latermq_broker.transport.handshakes import ANSWERED_MAX, REST_MS, STARTS_MAX, Handshakes
from latermq_broker.transport.listener import Listener
from latermq_broker.transport.seats import Seats


def started(shakes: Handshakes[str], now_ms: int = 0) -> list[str]:
    """All that may begin at this time, turn after turn."""
    found: list[str] = []
    while new := shakes.start(now_ms)[0]:
        found += new
    return found


def wait(shakes: Handshakes[str], address: str, count: int) -> list[str]:
    items = [f"{address}-{number}" for number in range(count)]
    for item in items:
        shakes.wait(address, item)
    return items


def test_a_few_begin_in_a_turn_of_the_loop() -> None:
    shakes: Handshakes[str] = Handshakes(100)
    items = wait(shakes, "a", 10)
    assert shakes.start(0) == (items[:STARTS_MAX], [])
    assert shakes.next_ms(0) == 0
    assert started(shakes) == items[STARTS_MAX:]
    assert shakes.next_ms(0) is None


def test_addresses_take_turns() -> None:
    shakes: Handshakes[str] = Handshakes(100)
    wait(shakes, "a", 50)
    wait(shakes, "b", 2)
    assert started(shakes)[:5] == ["a-0", "b-0", "a-1", "b-1", "a-2"]


def test_a_full_house_takes_the_place_of_the_oldest_of_who_has_most() -> None:
    shakes: Handshakes[str] = Handshakes(4)
    wait(shakes, "quiet", 1)
    assert started(shakes) == ["quiet-0"]
    many = wait(shakes, "many", 3)
    assert started(shakes, 1) == many
    shakes.wait("new", "new-0")
    assert shakes.start(REST_MS) == ([], [])  # it had no time to answer yet
    assert shakes.next_ms(REST_MS) == REST_MS + 1
    assert shakes.start(REST_MS + 1) == (["new-0"], ["many-0"])


def test_who_is_alone_gives_way_to_itself() -> None:
    shakes: Handshakes[str] = Handshakes(2)
    wait(shakes, "a", 900)
    begun: list[str] = []
    for now_ms in range(0, 451 * REST_MS, REST_MS):
        begun += started(shakes, now_ms)
    assert begun == [f"a-{number}" for number in range(900)]


def test_clients_of_one_address_are_answered_as_fast_as_they_are() -> None:
    """A thousand of one machine, that does one after the other, are not given up for each other."""
    shakes: Handshakes[str] = Handshakes(200)
    items = wait(shakes, "a", 1_000)
    going: list[str] = []
    done, now_ms = 0, 0
    while done < len(items):
        begun, given_up = shakes.start(now_ms)
        assert given_up == []
        going += begun
        assert len(going) <= ANSWERED_MAX
        shakes.leave("a", going.pop(0))
        done += 1
        now_ms += 5


def test_silent_ones_of_an_address_do_not_hold_up_the_next_for_long() -> None:
    shakes: Handshakes[str] = Handshakes(200)
    items = wait(shakes, "a", ANSWERED_MAX + 2)
    assert started(shakes) == items[:ANSWERED_MAX]
    assert shakes.next_ms(0) == REST_MS
    shakes.wait("b", "b-0")
    assert shakes.next_ms(0) == 0
    assert started(shakes) == ["b-0"]
    assert started(shakes, REST_MS - 1) == []
    assert started(shakes, REST_MS) == items[ANSWERED_MAX:]


def test_places_come_back_however_a_handshake_ends() -> None:
    shakes: Handshakes[str] = Handshakes(2)
    wait(shakes, "a", 4)
    assert started(shakes) == ["a-0", "a-1"]
    shakes.leave("a", "a-0")  # done
    shakes.leave("a", "a-2")  # gone before its turn
    shakes.leave("a", "a-2")
    assert started(shakes) == ["a-3"]
    shakes.leave("a", "a-1")
    shakes.leave("a", "a-3")
    assert not shakes.waiting
    assert shakes.next_ms(0) is None
    wait(shakes, "b", 2)
    assert started(shakes) == ["b-0", "b-1"]


async def test_a_place_that_becomes_free_is_taken_at_once() -> None:
    """Not only when the oldest of those that go on has had its time."""
    nobody = cast(Any, None)
    tls = TlsConfig(handshakes_max=1)
    listener = Listener(ServerConfig(), Http2Config(), tls, None, nobody, Counts())
    turns: list[asyncio.Future[None]] = []
    greetings = [Greeting(nobody, Seats().take("a"), f"a:{number}", 0.0) for number in range(3)]
    for greeting in greetings:
        greeting.turn = asyncio.get_running_loop().create_future()
        turns.append(greeting.turn)
        listener._handshakes.wait("a", greeting)
    listener._shaking.look()
    for begun in (1, 2, 3):
        await asyncio.sleep(0)
        assert [turn.done() for turn in turns] == [True] * begun + [False] * (3 - begun)
        listener._handshakes.leave("a", greetings[begun - 1])
        listener._shaking.look()
