"""`latermq broker show`."""

from collections.abc import Iterator
from typing import Any

import pytest

from latermq_broker.store.files import Space
from latermq_cli.broker import what_goes_when
from latermq_proto.latermq.v1 import broker_pb2
from support.cli_rig import CliRig


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    rig = CliRig(monkeypatch)
    yield rig
    rig.close()


def test_it_tells_how_the_broker_is(rig: CliRig) -> None:
    rig.send_message("m-1")
    rig.make_group()
    rig.receive()
    rig.engine.store.disk.look(Space(free=60 << 30, total=100 << 30))
    shown = rig.ok("broker", "show")
    for words in (
        "broker latermq-0",
        "alone: nobody else keeps its log",
        "0 delayed, 0 in backoff, 0 ready again, 1 in flight, 0 half",
        "oldest record 20",
        "1 MiB in 1 segment of 1 MiB, flush async",
        "60 GiB of 100 GiB free",
        "1 sent, 0 came due, 1 delivered, 0 acknowledged",
        "dropped 0 segments, 0 bytes; 0 messages expired, 0 unread",
    ):
        assert words in shown, shown
    assert "clock" not in shown
    assert "dedup" not in shown
    for _ in range(3):
        rig.ok("send", "orders", "hello", "--dedup-id", "order-17")
    assert "1 id remembered, 81 bytes of 256 KiB; 2 not stored again" in rig.ok("broker", "show")


def test_it_tells_what_is_not_as_it_should_be(rig: CliRig) -> None:
    rig.engine.store.disk.look(Space(free=1 << 20, total=100 << 30))
    rig.engine.wall.ahead_ms = -3_600_000
    shown = rig.ok("broker", "show")
    assert "full: 1 MiB of 100 GiB free, 5 GiB needed; sends are refused" in shown
    assert "the wall clock is 1h behind the broker's own time" in shown


def test_as_json(rig: CliRig) -> None:
    rig.send_message("m-1")
    told = rig.json("broker", "show")
    assert told["name"] == "latermq-0"
    assert told["log"]["segments"] == 1
    assert told["log"]["end"] > told["log"]["start"] == 0
    assert told["disk"]["state"] == "fine"
    assert told["totals"]["messages_sent"] == 1
    assert told["waiting"]["delayed"] == 0
    assert told["retention"]["segments_dropped"] == 0
    assert told["retention"]["entries_expired_early"] == 0


@pytest.mark.parametrize(
    ("seen", "lines"),
    [
        (
            {"retention_ms": 259_200_000, "dead_letter_retention_ms": 1_209_600_000},
            ["messages go after 3d once every group has read them; unread when the disk is nearly "
             "full, the oldest first", "dead letters go after 14d"],
        ),
        (
            {"retention_ms": 3_600_000, "unread_retention_ms": 7_200_000},
            ["messages go after 1h once every group has read them; unread after 2h, the oldest "
             "first", "dead letters are kept for ever"],
        ),
        (
            {"retention_ms": 3_600_000, "unread_retention_ms": 3_600_000,
             "retention_bytes": 1 << 30, "kept_unread_bytes": 1 << 20,
             "kept_for_group": "g", "kept_for_topic": "t"},
            ["messages go after 1h, read or not",
             "beyond 1 GiB of log the oldest go, read or not", "dead letters are kept for ever",
             "1 MiB are old and kept: group g has not read all of t"],
        ),
        (
            {"retention_ms": 3_600_000, "unread_retention_ms": 3_600_000,
             "kept_longer_bytes": 1 << 20, "kept_for_topic": "t", "topics_with_own_retention": 1,
             "unread_going_soon": 2},
            ["messages go after 1h, read or not", "dead letters are kept for ever",
             "1 MiB are older and kept: topic t keeps its messages longer",
             "1 topic with a retention of their own: `latermq topic show` says which",
             "2 groups and topics will soon lose messages unread: see the log"],
        ),
        ({}, ["messages are kept for ever", "dead letters are kept for ever"]),
    ],
)  # fmt: skip
def test_what_goes_when(seen: dict[str, Any], lines: list[str]) -> None:
    assert what_goes_when(broker_pb2.BrokerRetention(**seen)) == lines


def test_reconnect_says_whom_it_told(rig: CliRig) -> None:
    assert rig.ok("broker", "reconnect", "--all") == "told 0 clients to reconnect\n"
    assert rig.json("broker", "reconnect", "--all") == {"told": 0, "out_of_reach": 0}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "either CLIENT_ID or --all"),
        (("c-1", "--all"), "either CLIENT_ID or --all"),
    ],
)
def test_reconnect_of_nobody(rig: CliRig, words: tuple[str, ...], text: str) -> None:
    result = rig.run("broker", "reconnect", *words)
    assert result.exit_code == 2
    assert text in result.stderr
    assert "Traceback" not in result.stderr
    assert "client c-1 is not connected" in rig.missing("broker", "reconnect", "c-1")
