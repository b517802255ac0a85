"""Places of connections that say nothing: nobody keeps others out, an IPv6 network is one."""

import pytest

from latermq_text.places import Places, network_of


def test_a_newcomer_takes_the_place_of_the_oldest_of_who_has_most() -> None:
    places: Places[str] = Places(4)
    assert places.take("10.0.0.2", "quiet") is None
    for number in range(3):
        assert places.take("10.0.0.1", f"many-{number}") is None
    assert places.take("10.0.0.3", "new") == "many-0"
    assert places.take("10.0.0.1", "many-3") == "many-1"
    assert places.count == 4


def test_a_place_comes_back_once() -> None:
    places: Places[str] = Places(1)
    places.take("::1", "a")
    places.leave("::1", "a")
    places.leave("::1", "a")
    assert places.count == 0
    assert places.take("::1", "b") is None
    assert places.take("10.0.0.1", "c") == "b"
    places.leave("::1", "b")
    assert places.count == 1


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("127.0.0.7", "127.0.0.7"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("somewhere", "somewhere"),
    ],
)
def test_whose_an_address_is(host: str, network: str) -> None:
    assert network_of(host) == network
