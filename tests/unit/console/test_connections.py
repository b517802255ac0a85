"""Which connection of the console ends when, and which one makes room for another."""

import pytest

from latermq_console.serving import connections as rules
from latermq_console.serving.connections import (
    DEADLINES_S,
    HALF_OPEN,
    IDLE_UNSIGNED_S,
    LONG_IDLE_S,
    Connection,
    Connections,
    Phase,
)
from latermq_text.places import network_of


class Rig:
    """Connections by name, and the names of those that were closed."""

    def __init__(self) -> None:
        self.all = Connections()
        self.closed: list[str] = []
        self.named: dict[str, Connection] = {}

    def come(
        self,
        name: str,
        now_s: float,
        phase: Phase = Phase.HEAD,
        *,
        address: str = "a",
        session: str | None = None,
    ) -> Connection | None:
        connection = self.all.admit(address, now_s)
        if connection is not None:
            connection.close = lambda: self.closed.append(name)
            connection.enter(phase, now_s)
            connection.session = session
            self.named[name] = connection
        return connection


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr(rules, "CONNECTIONS_MAX", 4)
    monkeypatch.setattr(rules, "CONNECTIONS_PER_ADDRESS_MAX", 3)
    monkeypatch.setattr(rules, "CONNECTIONS_PER_SESSION_MAX", 2)
    monkeypatch.setattr(rules, "CROWDED", 2)
    return Rig()


@pytest.mark.parametrize("phase", list(Phase))
def test_each_phase_has_its_deadline_but_for_work(phase: Phase) -> None:
    rig = Rig()
    rig.come("it", 0.0, phase, session="person")
    limit_s = DEADLINES_S.get(phase, 1e9)
    rig.all.sweep(limit_s)
    assert not rig.closed
    rig.all.sweep(limit_s + 0.1)
    assert rig.closed == ([] if phase is Phase.WORK else ["it"])


def test_a_trickle_does_not_move_the_deadline() -> None:
    rig = Rig()
    connection = rig.come("slow", 0.0)
    assert connection is not None
    for second in range(1, 10):
        connection.enter(Phase.HEAD, float(second))
    rig.all.sweep(DEADLINES_S[Phase.HEAD] + 0.1)
    assert rig.closed == ["slow"]


def test_idle_connections_of_strangers_end_sooner() -> None:
    rig = Rig()
    rig.come("stranger", 0.0, Phase.IDLE)
    rig.come("person", 0.0, Phase.IDLE, session="person")
    rig.all.sweep(IDLE_UNSIGNED_S + 0.1)
    assert rig.closed == ["stranger"]


def test_the_oldest_half_open_one_makes_room_and_a_person_last(few: Rig) -> None:
    few.come("person", 0.0, Phase.IDLE, address="b", session="person")
    few.come("idle", 1.0, Phase.IDLE)
    few.come("head", 2.0)
    few.come("body", 3.0, Phase.BODY)
    for number, name in enumerate(("head", "body", "idle")):
        assert few.come(f"more {number}", 10.0 + number, Phase.WORK) is not None
        assert few.closed[-1] == name
    assert few.come("refused", 20.0) is None, "all of the address have a request at work"
    assert few.come("other", 20.0, address="c") is not None
    assert few.closed[-1] == "person"
    assert len(few.all) == 4
    assert few.come("last", 20.0, Phase.WORK, address="c") is not None
    assert few.closed[-1] == "other"
    assert few.come("none", 20.0, address="d") is None


def test_crowded_addresses_lose_before_small_ones(few: Rig) -> None:
    few.come("newcomer", 0.0, address="b")
    for number in range(3):
        few.come(f"crowd {number}", 5.0 + number, Phase.IDLE)
    few.come("another", 9.0, address="c")
    assert few.closed == ["crowd 0"]


def test_a_newcomer_is_not_half_open_at_once(few: Rig) -> None:
    few.come("idle", 0.0, Phase.IDLE)
    few.come("young", 10.0)
    few.come("younger", 10.0)
    few.come("newest", 10.5)
    assert few.closed == ["idle"]
    few.come("next", 11.5)
    assert few.closed == ["idle", "young"]


def test_a_session_has_its_share(few: Rig) -> None:
    stay = []
    for number in range(3):
        connection = few.come(f"tab {number}", float(number), Phase.IDLE)
        assert connection is not None
        stay += [few.all.sign(connection, "person", 5.0) for _ in range(2)]
    assert stay == [True, True, True, True, False, False]
    assert few.closed == [], "no request of it that may be on its way is lost"
    assert few.all.sign(few.named["tab 2"], "person", LONG_IDLE_S + 0.5)
    assert few.closed == ["tab 0"]


def test_who_has_left_is_forgotten_once(few: Rig) -> None:
    connection = few.come("it", 0.0)
    assert connection is not None
    few.all.leave(connection)
    few.all.leave(connection)
    assert len(few.all) == 0
    assert not few.all.make_room(0.0)
    assert not few.all._of_address
    assert Phase.WORK not in HALF_OPEN


def test_addresses_are_customers() -> None:
    assert network_of("10.0.0.7") == "10.0.0.7"
    assert network_of("::ffff:10.0.0.7") == "10.0.0.7"
    assert network_of("2001:db8::1") == network_of("2001:db8::2:3") == "2001:db8::/64"
    assert network_of("fe80::1%eth0") == "fe80::/64"
    assert network_of("unix") == "unix"
