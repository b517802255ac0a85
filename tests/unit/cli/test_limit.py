"""`latermq limit`: set, show, list, unset."""

from collections.abc import Iterator

import pytest

from support.cli_rig import CliRig


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    rig = CliRig(monkeypatch)
    yield rig
    rig.close()


def test_the_life_of_a_limit(rig: CliRig) -> None:
    assert "no limits" in rig.ok("limit", "list")
    made = rig.ok("limit", "set", "client", "*", "--sends", "5000", "--bytes", "20M")
    assert made == "each client by itself (*): 5,000 messages/s, 20,971,520 bytes/s\n"
    rig.ok("limit", "set", "client", "*", "--parked-polls", "7")
    made = rig.ok("limit", "set", "group", "billing", "--in-flight", "1")
    assert made == "group billing: 1 message in flight\n"
    rig.ok("limit", "set", "group", "billing", "--in-flight", "10")
    rig.ok("limit", "set", "client", "c-1", "--sends", "3")
    shown = rig.ok("limit", "show", "client", "c-1")
    assert shown == "client c-1: 7 parked polls, 3 messages/s, 20,971,520 bytes/s\n"
    assert rig.ok("limit", "show", "group", "other") == "group other: no limits\n"
    listed = rig.json("limit", "list")["limits"]
    assert [(one["scope"], one["name"]) for one in listed] == [
        ("client", "*"), ("client", "c-1"), ("group", "billing"),
    ]  # fmt: skip
    lines = rig.ok("limit", "list").splitlines()
    assert len(lines) == 4
    rig.ok("limit", "unset", "client", "c-1")
    assert "5,000 messages/s" in rig.ok("limit", "show", "client", "c-1")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("set", "client", "*"), "say what to limit"),
        (("set", "client", "*", "--sends", "0"), "0 is not in the range x>=1"),
        (("set", "client", "*", "--bytes", "much"), "is not a size"),
        (("set", "topic", "*", "--sends", "1"), "'topic' is not one of"),
        (("set", "client", "*", "--in-flight", "1"), "in_flight is a limit of a group"),
        (("set", "group", "*", "--sends", "1"), "sends_per_s is a limit of a client"),
        (("set", "group", "a b", "--in-flight", "1"), "group"),
        (("set", "client", "é", "--sends", "1"), "client id 'é' is none that a client can have"),
        (("set", "client", " c", "--sends", "1"), "client id ' c' is none that a client can have"),
        (("set", "client", "a\tb", "--sends", "1"), "is none that a client can have"),
    ],
)
def test_what_is_refused(rig: CliRig, words: tuple[str, ...], text: str) -> None:
    assert text in rig.refused("limit", *words)


def test_what_is_not_set(rig: CliRig) -> None:
    line = rig.missing("limit", "unset", "group", "billing")
    assert "no limit of group billing is set" in line
