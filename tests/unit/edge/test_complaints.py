"""What strangers do does not fill the log."""

from latermq_broker.observability import complaints
from latermq_broker.observability.complaints import PAUSE_MS, Complaints
from latermq_text.places import network_of

NOW_MS = 1_700_000_000_000
PEER = "192.0.2.1:4711"


def peer(number: int) -> str:
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:1"


def test_one_line_of_a_kind_about_an_address_in_a_minute() -> None:
    log = Complaints()
    assert log.due(PEER, "refused", NOW_MS)
    assert not log.due("192.0.2.1:4712", "refused", NOW_MS + PAUSE_MS - 1)
    assert log.due(PEER, "braked", NOW_MS)
    assert log.due("192.0.2.2:4711", "refused", NOW_MS)
    assert log.due(PEER, "refused", NOW_MS + PAUSE_MS)


def test_so_many_lines_of_all_in_a_minute() -> None:
    log = Complaints()
    told = [log.due(peer(number), "refused", NOW_MS) for number in range(1_000)]
    assert told == [True] * complaints.LINES_MAX + [False] * (1_000 - complaints.LINES_MAX)
    assert log.due(peer(1_000), "refused", NOW_MS + PAUSE_MS)


def test_a_clock_that_is_set_back_silences_nobody() -> None:
    log = Complaints()
    assert log.due(PEER, "refused", NOW_MS)
    assert log.due(PEER, "refused", NOW_MS - PAUSE_MS)


def test_addresses_are_bounded() -> None:
    log = Complaints()
    minutes = 1 + complaints.ADDRESSES_MAX // complaints.LINES_MAX
    for number in range(minutes * complaints.LINES_MAX):
        log.due(peer(number), "refused", NOW_MS + number // complaints.LINES_MAX * PAUSE_MS)
    assert len(log._told_ms) == complaints.ADDRESSES_MAX


def test_a_host_is_one_address_however_many_it_has() -> None:
    assert network_of("[2001:db8::1]") == network_of("[2001:db8::ffff:2]")
    assert network_of("[2001:db8::1]") != network_of("[2001:db8:0:1::1]")
    assert network_of("[::ffff:192.0.2.1]") == network_of("192.0.2.1")
    assert network_of("[fe80::1%eth0]") == network_of("[fe80::2]")
    assert network_of("") == ""
