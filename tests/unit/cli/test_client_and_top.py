"""`latermq client`, `latermq top`, and listings that go on."""

from collections.abc import Iterator
from typing import Any

import pytest

from latermq._connection.status import error_of
from latermq._values.endpoints import Endpoints
from latermq_broker.delivery.failure import Failure
from latermq_broker.services.clients.session import ClientKind, Session
from latermq_cli import clock
from latermq_cli.clients.top import HELP, KEY_REST_S, REACH, Top, _run, keys_of, typed_in
from latermq_cli.connection.connection import Connection
from latermq_cli.terminal.failures import CommandError
from latermq_h2.grpc_code import GrpcCode
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.latermq.v1 import client_pb2
from support.cli_rig import CliRig


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    rig = CliRig(monkeypatch, columns=80)
    yield rig
    rig.close()


def connect(rig: CliRig, client_id: str, group: str) -> None:
    session = Session(
        client_id=client_id,
        kind=ClientKind.PUSH_CONSUMER,
        group=group,
        topics=frozenset({"orders"}),
        settings=v2.Settings(),
        language="JAVA",
        version="5.2.0",
        seen_ms=rig.now_ms,
        peer="192.0.2.1:4711",
    )
    rig.sessions.put(session)


def test_who_holds_what(rig: CliRig) -> None:
    assert rig.ok("client", "list") == "no clients\n"
    rig.send_message("m-1")
    rig.send_message("m-2")
    rig.receive("billing", count=2, lease_ms=3_600_000)
    connect(rig, "client-1", "billing")
    header, row = rig.ok("client", "list", "--group", "billing").splitlines()
    assert header.split()[:4] == ["CLIENT", "KIND", "GROUP", "HOLDS"]
    assert row.split()[:4] == ["client-1", "push", "billing", "2"]
    assert len(row) <= 80
    shown = rig.ok("client", "show", "client-1")
    assert "  holds     2 messages" in shown
    assert "JAVA 5.2.0" in shown
    assert shown.splitlines()[-1].split()[:3] == ["billing", "orders", "2"]
    assert rig.json("client", "list")["clients"][0]["held_count"] == 2
    assert rig.json("client", "show", "client-1")["held"][0]["group"] == "billing"
    assert rig.ok("client", "kick", "client-1", "--yes") == (
        "client client-1 kicked; 2 messages released\n"
    )
    assert "holds no message" in rig.missing("client", "show", "nobody")


def test_who_holds_without_a_session_is_found_by_group(rig: CliRig) -> None:
    rig.send_message("m-1")
    rig.receive("billing", lease_ms=3_600_000)
    _, row = rig.ok("client", "list", "--group", "billing").splitlines()
    assert row.split() == ["client-1", *"--1----"]
    with Connection("127.0.0.1:8081") as broker:
        screen = Top(broker)
        screen.lines(80, 24)
        screen.press("enter")
        lines = screen.lines(80, 24)
    assert [line.split() for line in lines if "client-1" in line] == [["client-1", "1", "-"]]
    assert "nowhere" in rig.missing("client", "list", "--group", "nowhere")


def test_pending_names_the_client(rig: CliRig) -> None:
    rig.send_message("m-1")
    rig.receive("billing", lease_ms=3_600_000)
    (held,) = rig.json("pending", "list")["messages"]
    assert (held["kind"], held["client_id"], held["message_id"]) == ("in_flight", "client-1", "m-1")


def test_pending_suits_a_terminal_of_80_columns(rig: CliRig) -> None:
    rig.make_group(wait_ms=60_000)
    rig.send_message("m-1")
    rig.fail(Failure("TimeoutError", "the bank did not answer in 30 s"))
    lines = rig.ok("pending", "list").splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[:3] == ["DUE", "IN", "KIND"]
    assert "client-1" in lines[1]


def test_a_listing_goes_on_until_it_is_ended(rig: CliRig, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(clock, "sleep", sleep)
    rig.send_message("m", wait_ms=3_600_000)
    assert rig.ok("pending", "list", "--watch", "0.5").count("delayed") == 3
    assert waits == [0.5, 0.5, 0.5]
    waits.clear()
    assert len(rig.ok("group", "list", "--watch", "--json").splitlines()) == 3
    assert waits == [2.0, 2.0, 2.0]
    for seconds in ("0", "nan", "inf", "soon"):
        assert "--watch" in rig.refused("group", "list", "--watch", seconds)
    assert "--every" in rig.refused("top", "--every", "nan")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("pending blocked ordered", "no message group is blocked"),
        ("limit list", "no limits"),
        ("user list", "no users yet"),
        ("acl list", "no rights"),
        ("client show client-1", "client client-1"),
    ],
)
def test_what_changes_can_be_watched(
    rig: CliRig, monkeypatch: pytest.MonkeyPatch, words: str, text: str
) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    rig.ok("group", "create", "ordered", "--fifo")
    connect(rig, "client-1", "billing")
    monkeypatch.setattr(clock, "sleep", sleep)
    assert rig.ok(*words.split(), "--watch").count(text) == 2
    assert waits == [2.0, 2.0]


def test_a_listing_goes_on_while_the_broker_is_away(
    rig: CliRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    unary, rounds = rig.transport.unary, 0

    async def away(*_: object) -> bytes:
        raise error_of(GrpcCode.DEADLINE_EXCEEDED, "", Endpoints.parse("rig:1"))

    def sleep(_: float) -> None:
        nonlocal rounds
        rounds += 1
        monkeypatch.setattr(rig.transport, "unary", away if rounds == 1 else unary)
        if rounds == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(clock, "sleep", sleep)
    rig.make_group("billing")
    result = rig.run("group", "list", "--watch")
    assert (result.exit_code, result.stdout.count("billing")) == (0, 2)
    assert result.stderr.count("did not answer in time") == 1
    monkeypatch.setattr(rig.transport, "unary", away)
    assert "did not answer in time" in rig.refused("group", "list", "--watch", code=1)


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"", []),
        (b"jjk", ["down", "down", "up"]),
        (b"\x1b[B\x1b[B\r", ["down", "down", "enter"]),
        (b"\x1b", ["back"]),
        (b"\x1b\x1b[A", ["back", "up"]),
        (b"s\x1b[5~q", ["sort", "quit"]),  # page up means nothing, and is no "5"
        (b"\x1b[1;5Bx", []),
        (b"\x1bOAj", ["down"]),
        (b"\x1b[B" * 300, ["down"] * 300),
    ],
)
def test_keys_that_come_together_are_taken_one_by_one(typed: bytes, keys: list[str]) -> None:
    assert keys_of(typed) == keys


@pytest.mark.parametrize(
    ("pieces", "keys"),
    [
        ([b"\x1b", b"[B"], ["down"]),
        ([b"\x1b", b"[", b"B"], ["down"]),
        ([b"j\x1b[1;", b"5", b"B"], ["down"]),
        ([b"\x1b", b"[A", b"q"], ["up"]),  # the last one is read the next time
        ([b"\x1b"], ["back"]),
        ([b"\x1b", b""], ["back"]),  # the terminal is gone
        ([], []),
    ],
)
def test_a_key_that_comes_in_pieces_is_one_key(pieces: list[bytes], keys: list[str]) -> None:
    waits = []

    def wait(timeout_s: float) -> bool:
        waits.append(timeout_s)
        return bool(pieces)

    assert keys_of(typed_in(wait, lambda: pieces.pop(0), 2.0)) == keys
    assert set(waits[1:]) <= {KEY_REST_S}


def test_keys_that_came_together_are_all_pressed(rig: CliRig) -> None:
    two_groups(rig)
    with Connection("127.0.0.1:8081") as broker:
        screen = Top(broker)
        screen.lines(80, 24)
        chosen = screen._names[1]
        typed = iter([["down", "enter"], ["back", "sort", "quit", "sort"]])
        _run(screen, 1.0, lambda _: next(typed))
        assert screen.sort == "ready"
        assert screen.inside == ""
        screen.press("enter")
        assert screen.inside == chosen


def two_groups(rig: CliRig) -> None:
    rig.make_group("fine")
    rig.make_group("billing")
    rig.send_message("m-1")
    for delivered in rig.receive("fine"):
        rig.engine.ack("fine", [delivered.handle], rig.now_ms)
    rig.fail(Failure("TimeoutError", "the bank did not answer"))
    rig.advance(90_000)
    rig.send_message("m-2")


def test_the_worst_is_on_top_and_can_be_looked_into(rig: CliRig) -> None:
    two_groups(rig)
    rig.die("m-3")
    connect(rig, "client-1", "billing")
    with Connection("127.0.0.1:8081") as broker:
        screen = Top(broker)
        lines = screen.lines(80, 24)
        assert len(lines) == 24
        assert lines[-1] == HELP
        assert max(map(len, lines)) <= 80
        assert lines[0].endswith("groups by behind")
        assert lines[4].split()[:3] == ["GROUP", "READY", "BEHIND"]
        for sort in ("ready", "failing", "dead", "behind"):
            screen.press("sort")
            assert screen.lines(80, 24)[0].endswith(f"groups by {sort}")
        screen.press("sort")
        names = [line[2:].split()[0] for line in screen.lines(80, 24)[5:7]]
        assert set(names) == {"fine", "billing"}
        while not screen.lines(80, 24)[5 + screen._chosen].startswith("> billing"):
            screen.press("down")
        screen.press("enter")
        text = "\n".join(screen.lines(80, 24))
        assert "group billing" in text
        assert "client-1" in text
        assert "orders" in text
        screen.press("back")
        assert screen.lines(80, 24)[0].endswith("groups by ready")
        assert screen.press("up")
        assert not screen.press("quit")


def test_a_small_screen_shows_what_is_chosen(rig: CliRig) -> None:
    for number in range(20):
        rig.make_group(f"group-{number:02}")
    with Connection("127.0.0.1:8081") as broker:
        screen = Top(broker)
        screen.lines(80, 12)
        for _ in range(15):
            screen.press("down")
        lines = screen.lines(80, 12)
        assert len(lines) == 12
        assert sum(line.startswith("> ") for line in lines) == 1


def test_of_many_groups_a_screen_asks_for_those_it_may_show(rig: CliRig) -> None:
    for number in range(200):
        rig.make_group(f"group-{number:03}")
    rig.make_group("last")
    rig.send_message("m-1")
    rig.fail(group="last")
    with Connection("127.0.0.1:8081") as broker:
        screen = Top(broker)
        assert screen.lines(80, 24)[5].startswith("> last")
        assert len(screen._names) == 24 - 6 + REACH
        for _ in range(300):  # down to the end, a screen after the other
            screen.press("down")
            lines = screen.lines(80, 24)
        assert len(screen._names) == 201
        assert next(line for line in lines if line.startswith("> ")).startswith("> group-199")


def test_top_without_a_terminal(rig: CliRig) -> None:
    two_groups(rig)
    assert "not a terminal; pass --once or --json" in rig.refused("top")
    text = rig.ok("top", "--once")
    assert "billing" in text
    assert HELP not in text
    assert {group["name"] for group in rig.json("top")["groups"]} == {"fine", "billing"}


def test_top_goes_on_while_the_broker_is_away(
    rig: CliRig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended, when it was wanted most: as the broker was started again."""
    unary = rig.transport.unary

    async def away(*_: object) -> bytes:
        raise error_of(GrpcCode.DEADLINE_EXCEEDED, "", Endpoints.parse("rig:1"))

    def pressed() -> Iterator[list[str]]:
        monkeypatch.setattr(rig.transport, "unary", away)
        yield []
        yield []  # away for two looks
        monkeypatch.setattr(rig.transport, "unary", unary)
        yield []
        yield ["quit"]

    two_groups(rig)
    with Connection("127.0.0.1:8081") as broker:
        typed = pressed()
        _run(Top(broker), 1.0, lambda _: next(typed))
        screens = capsys.readouterr().out.split(HELP)[:-1]
        assert [screen.count("did not answer in time") for screen in screens] == [0, 1, 1, 0]
        assert all("billing" in screen for screen in screens)
        monkeypatch.setattr(rig.transport, "unary", away)
        with pytest.raises(CommandError, match="did not answer in time"):
            _run(Top(broker), 1.0, lambda _: ["quit"])


def test_a_group_that_was_deleted_leads_back(
    rig: CliRig, capsys: pytest.CaptureFixture[str]
) -> None:
    def pressed() -> Iterator[list[str]]:
        yield ["enter"]
        rig.ok("group", "delete", "billing", "--yes")
        yield []
        yield ["up"]
        yield ["quit"]

    rig.make_group("billing")
    rig.make_group("fine")
    with Connection("127.0.0.1:8081") as broker:
        screen, typed = Top(broker), pressed()
        _run(screen, 1.0, lambda _: next(typed))
    shown = capsys.readouterr().out.split(HELP)[:-1]
    assert "group billing" in shown[1]
    assert "billing" in next(line for line in shown[2].splitlines() if "(code 404" in line)
    assert "> fine" in shown[2]
    assert "(code 404" not in shown[3]


def test_who_is_not_told_of_clients_sees_the_rest_of_a_group(
    rig: CliRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients are for admins; looking into a group ended the command of everybody else."""
    unary = rig.transport.unary

    async def guarded(path: str, *rest: Any) -> bytes:
        if not path.endswith("/ListClients"):
            return await unary(path, *rest)
        answer = client_pb2.ListClientsResponse()
        answer.status.code, answer.status.message = v2.FORBIDDEN, "only an admin may"
        return answer.SerializeToString()

    two_groups(rig)
    monkeypatch.setattr(rig.transport, "unary", guarded)
    with Connection("127.0.0.1:8081") as broker:
        screen = Top(broker)
        screen.inside = "billing"
        text = "\n".join(screen.lines(100, 24))
    assert "clients: only an admin may (code 40300)" in text
    assert "orders" in text
    assert "no dead letters" in text


def test_what_is_deleted_names_those_who_read_it(rig: CliRig) -> None:
    rig.make_group("billing")
    rig.send("one")
    connect(rig, "worker@1", "billing")
    assert rig.run("group", "delete", "billing", "--yes").stderr == (
        "read by 1 live consumer, served nothing until it is created: worker@1 (billing)\n"
    )
    told = rig.json("topic", "delete", "orders", "--yes")
    assert told["live_consumers"] == ["worker@1 (billing)"]
