"""Which new connection is served next: rates, addresses in turn, who leaves a full door."""

import pytest

from latermq_broker.config.server_transport import Http2Config
from latermq_broker.errors import ConfigError
from latermq_broker.transport import door
from latermq_broker.transport.door import CROWD, WAITING_MAX, Door, Rate, Rates

FREE = Rate(0, 1)


class Here:
    """A door in memory, and who has left it."""

    def __init__(self, per_address: Rate = FREE, overall: Rate = FREE) -> None:
        self.left: set[str] = set()
        self.door: Door[str] = Door(Rates(per_address, overall), self.left.__contains__)

    def come(self, address: str, count: int) -> list[str]:
        items = [f"{address}-{self.door.count + number}" for number in range(count)]
        for item in items:
            self.door.wait(address, item)
        return items

    def served(self, now_ms: int) -> list[str]:
        found: list[str] = []
        while started := self.door.start(now_ms)[0]:
            found += started
        return found


def addresses(items: list[str]) -> str:
    return "".join(item[0] for item in items)


def test_a_rate_has_a_burst_and_comes_back() -> None:
    rate = Rate(10, 3)
    for _ in range(3):
        assert rate.wait_ms("a", 0) == 0
        rate.take("a", 0)
    assert 100 <= rate.wait_ms("a", 0) <= 101
    assert rate.wait_ms("b", 0) == 0
    assert rate.wait_ms("a", 101) == 0
    rate.take("a", 101)
    assert 99 <= rate.wait_ms("a", 101) <= 100


def test_over_any_time_no_more_come_than_burst_and_rate_give() -> None:
    rate, came = Rate(100, 50), 0
    for now_ms in range(0, 10_000, 3):
        while not rate.wait_ms("a", now_ms):
            rate.take("a", now_ms)
            came += 1
    assert 1_048 <= came <= 1_050


def test_a_rate_forgets_names_at_rest_and_0_is_no_bound() -> None:
    rate = Rate(1_000, 10)
    for now_ms in range(10_000):
        rate.take(str(now_ms), now_ms)
    assert len(rate) < 20
    for _ in range(1_000):
        FREE.take("a", 0)
    assert FREE.wait_ms("a", 0) == 0
    assert len(FREE) == 0


def test_addresses_take_turns_however_many_come_from_one() -> None:
    here = Here()
    here.come("a", 500)
    here.come("b", 2)
    assert addresses(here.served(0))[:5] == "ababa"
    assert here.door.next_ms(0) is None


def test_what_is_beyond_an_addresss_rate_waits_and_keeps_nobody_out() -> None:
    here = Here(per_address=Rate(10, 2))
    here.come("a", 5)
    assert addresses(here.served(0)) == "aa"
    here.come("b", 1)
    assert addresses(here.served(0)) == "b"
    next_ms = here.door.next_ms(0)
    assert next_ms is not None
    assert 100 <= next_ms <= 102
    assert here.served(next_ms - 2) == []
    assert addresses(here.served(next_ms)) == "a"
    assert addresses(here.served(1_000)) == "aa"
    assert here.door.count == 0


def test_an_address_that_waits_for_its_rate_gains_nothing_by_coming_again() -> None:
    here = Here(per_address=Rate(10, 1))
    [_, second] = here.come("a", 2)
    here.served(0)
    here.door.leave("a", second)
    here.come("a", 1)
    assert here.served(0) == []
    assert addresses(here.served(101)) == "a"
    assert here.door.next_ms(101) is None


def test_all_together_have_a_rate() -> None:
    here = Here(overall=Rate(10, 3))
    for address in "abcde":
        here.come(address, 1)
    assert addresses(here.served(0)) == "abc"
    assert here.door.next_ms(0) in (100, 101)
    assert addresses(here.served(101)) == "d"


def test_in_a_crowd_whose_client_has_left_is_closed_and_costs_no_turn() -> None:
    here = Here(per_address=Rate(1, 2))
    items = here.come("a", CROWD + 3)
    here.left.update(items[:-1])
    started, leavers = here.door.start(0)
    assert leavers == items[: len(leavers)]
    assert started == [items[len(leavers)]]
    assert here.door.count == CROWD - 1


def test_one_that_is_alone_is_served_whatever_it_did() -> None:
    here = Here()
    [item] = here.come("a", 1)
    here.left.add(item)
    assert here.door.start(0) == ([item], [])


def test_a_full_door_gives_up_the_oldest_of_a_crowd_beyond_its_rate() -> None:
    here = Here(per_address=Rate(1, 1))
    many = here.come("a", WAITING_MAX - 1)
    here.come("b", 1)
    assert here.door.is_full
    assert here.door.make_room(0) is None  # none is beyond its rate yet: the backlog waits
    assert here.served(0)[0] == many[0]
    assert here.door.make_room(0) == many[1]
    assert here.door.make_room(0, "b") is None
    assert here.door.make_room(0, "c") is None


def test_a_full_door_gives_up_who_has_left() -> None:
    here = Here()
    many = here.come("a", WAITING_MAX)
    assert here.door.make_room(0) is None
    here.left.add(many[0])
    assert here.door.make_room(0) == many[0]
    assert not here.door.is_full


def test_leaving_twice_counts_once() -> None:
    here = Here()
    [item] = here.come("a", 1)
    here.door.leave("a", item)
    here.door.leave("a", item)
    assert here.door.count == 0
    assert here.door.next_ms(0) is None


def test_the_settings_bound_it() -> None:
    rates = Rates.of(Http2Config(connects_per_address_burst=2, connects_per_address_per_s=1))
    for _ in range(2):
        assert rates.per_address.wait_ms("a", 0) == 0
        rates.per_address.take("a", 0)
    assert rates.per_address.wait_ms("a", 0) > 900
    free = Rates.of(Http2Config(connects_per_s=0, connects_per_address_per_s=0))
    assert free.overall.wait_ms(door._ALL, 0) == 0
    with pytest.raises(ConfigError, match=r"http2\.connects_burst: must be at least 1"):
        Http2Config(connects_burst=0)
