"""How the command line behaves as a whole: help, errors, exit codes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from latermq_broker.catalog.schedules import Schedule
from latermq_cli.connection.connection import checked_endpoint
from latermq_cli.root import latermq
from latermq_cli.terminal.commands import CommandGroup, RootGroup
from latermq_cli.terminal.failures import CommandError, RefusedError, error_of
from support.cli_rig import CliRig

NO_BROKER = (
    ("backup", "list"), ("backup", "verify"), ("cluster", "adopt"), ("cluster", "verify")
)  # fmt: skip
HEAVY = ("grpc", "google", "latermq_proto", "asyncio", "xxhash")


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    rig = CliRig(monkeypatch)
    yield rig
    rig.close()


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


def leaf(words: tuple[str, ...]) -> click.Command:
    command: click.Command = latermq
    for word in words:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return command


ALL = [words for words in commands(latermq) if words[0] not in ("serve", "demo")]
LEAVES = [words for words in ALL if not isinstance(leaf(words), click.Group)]


def asks(words: tuple[str, ...]) -> bool:
    return words[0] != "log" and any(each.name == "yes" for each in leaf(words).params)


DESTRUCTIVE = [words for words in LEAVES if asks(words)]


def test_the_words_of_the_design_are_there() -> None:
    wanted = (
        "serve demo bench send receive|topic create|topic list|topic show|topic delete|topic alter|"
        "group create|group list|group show|group delete|group reset|group alter|pending list|"
        "pending count|pending expedite|pending postpone|pending cancel|dead list|dead show|"
        "dead redrive|dead drop|log dump|log verify|bench send|bench receive|bench roundtrip"
    )
    there = {" ".join(words) for words in commands(latermq)}
    for words in wanted.split("|"):
        assert words in there or set(words.split()) <= there, words


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_explains_itself(rig: CliRig, words: tuple[str, ...]) -> None:
    text = rig.ok(*words, "--help")
    assert text.startswith("Usage: latermq")


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_has_an_example_and_json(rig: CliRig, words: tuple[str, ...]) -> None:
    text = rig.ok(*words, "--help")
    assert f"  latermq {' '.join(words)}" in text.partition("Examples:")[2]
    assert "--json" in text
    offline = words[0] in ("config", "log", "restore") or words in NO_BROKER
    if not offline:
        assert "LATERMQ_ENDPOINT" in text
        assert "127.0.0.1:8081" in text


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; from latermq_cli.root import latermq\n"
        "try: latermq(['--help'])\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_nothing_said_shows_the_help(rig: CliRig) -> None:
    result = rig.run()
    assert (result.exit_code, "Commands:" in result.stdout) == (0, True)


def test_a_wrong_word_is_one_line_and_exit_code_2(rig: CliRig) -> None:
    assert rig.refused("shop") == "latermq: No such command 'shop'; see `latermq --help`"
    line = rig.refused("topic", "create")
    assert line == "latermq: Missing argument 'NAME'; see `latermq topic create --help`"
    assert "--colour" in rig.refused("topic", "list", "--colour")


def test_a_misspelled_word_is_told_its_neighbour(rig: CliRig) -> None:
    line = rig.refused("serv")
    assert line == "latermq: No such command 'serv', did you mean 'serve'; see `latermq --help`"
    line = rig.refused("topic", "lst")
    assert line == "latermq: No such command 'lst', did you mean 'list'; see `latermq topic --help`"
    assert "no such option" in rig.refused("--sere").lower()


@pytest.mark.parametrize(
    "endpoint",
    ["", "localhost", ":8081", "h:x", "h:0", "h:70000", "http://h:1", "::1:8081", "[::1:8081",
     "a b:1", "h:1,h:2", "h:\u0663"],
)  # fmt: skip
def test_what_is_no_endpoint(rig: CliRig, endpoint: str) -> None:
    assert "is not an endpoint" in rig.refused("topic", "list", "--endpoint", endpoint) or (
        "a port is" in rig.refused("topic", "list", "--endpoint", endpoint)
    )


def test_a_file_that_is_no_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = CliRig(monkeypatch)
    notes = tmp_path / "notes.txt"
    notes.write_text("no certificate")
    line = rig.refused("topic", "list", "--ca", str(notes))
    assert line == f"latermq: --ca {notes} holds no certificate in PEM"
    line = rig.refused("topic", "list", "--ca", "/nope")
    assert line == "latermq: cannot read --ca /nope: No such file or directory"
    rig.close()


def test_a_key_that_no_header_holds(rig: CliRig) -> None:
    for key in ("schlüssel", "a\nb"):
        line = rig.refused("topic", "list", "--access-key", key, "--secret-key", "s")
        assert line == f"latermq: access key {key!r} is no name of a user"


def test_an_empty_name_is_not_the_working_directory(rig: CliRig) -> None:
    for word in ("verify", "dump", "repair"):
        assert "the name of a directory is empty" in rig.refused("log", word, "")
    assert "cannot read" in rig.refused("serve", "--config", "")
    line = rig.refused("serve", "--data-dir", "")
    assert line == "latermq: server.data_dir: must not be empty"


def test_endpoints() -> None:
    assert checked_endpoint("127.0.0.1:8081") == ("127.0.0.1", 8081)
    assert checked_endpoint("[::1]:8081") == ("::1", 8081)


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (40000, 2),
        (40402, 3),
        (40403, 3),
        (42800, 2),
        (50100, 2),
        (42900, 1),
        (50001, 1),
        (50000, 1),
    ],
)
def test_whose_fault_a_status_is(code: int, exit_code: int) -> None:
    assert error_of(code, "why").exit_code == exit_code


def root(action: object) -> RootGroup:
    @click.command()
    def act() -> None:
        if isinstance(action, BaseException):
            raise action
        click.get_current_context().exit(4)

    group = RootGroup("latermq")
    group.add_command(act)
    return group


@pytest.mark.parametrize(
    ("action", "exit_code", "line"),
    [
        (CommandError("it\nfailed"), 1, "latermq: it failed\n"),
        (RefusedError("no"), 2, "latermq: no\n"),
        (KeyboardInterrupt(), 130, "\nlatermq: interrupted\n"),
        (ValueError("Value out of range: 5000000000"), 2, "latermq: 5000000000 is too large a "),
        (OSError(38, "not a socket"), 1, "latermq: unexpected OSError: [Errno 38] not a socket ("),
        (BrokenPipeError(32, "a socket's"), 1, "latermq: unexpected RuntimeError: BrokenPipeError"),
        (ValueError("a bug"), 1, "latermq: unexpected ValueError: a bug (LATERMQ_TRACEBACK=1 "),
        (UnicodeEncodeError("utf-8", "t\udcff", 1, 2, "no"), 2, "latermq: 't\\udcff' is not UTF-8"),
        (None, 4, ""),
    ],
)
def test_every_end_has_its_code_and_line(action: object, exit_code: int, line: str) -> None:
    result = CliRunner().invoke(root(action), ["act"])
    assert result.exit_code == exit_code
    assert result.stderr.startswith(line)
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "environment", [{}, {"PYTHONUNBUFFERED": "1"}, {"PYTHONIOENCODING": "ascii"}], ids=str
)
@pytest.mark.parametrize("words", [[], ["--help"], ["serve", "--print-config"]], ids=" ".join)
def test_a_full_disk_under_the_output_is_one_line(
    words: list[str], environment: dict[str, str]
) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "latermq_broker", *words],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env={**os.environ, "PYTHONUNBUFFERED": "", **environment},
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "latermq: cannot write: No space left on device\n"


def test_with_json_an_error_is_an_object(rig: CliRig) -> None:
    told = json.loads(rig.missing("group", "show", "nobody", "--json"))
    assert told == {
        "error": "consumer group not found: nobody (code 40403)",
        "exit_code": 3,
        "code": 40403,
    }
    told = json.loads(rig.refused("topic", "list", "--json", "--limit", "0"))
    assert (told["exit_code"], told["code"]) == (2, 0)
    assert "--limit" in told["error"]


def test_how_to_reach_a_broker_is_told_once(rig: CliRig) -> None:
    page = rig.ok("--help")
    for option in ("--endpoint", "--access-key", "--secret-key", "--tls", "--ca", "--insecure"):
        assert option in page
    page = rig.ok("topic", "list", "--help")
    assert "--endpoint" in page
    assert "--access-key" not in page
    assert max(map(len, page.splitlines())) <= 80


def test_a_bug_shows_its_traceback_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATERMQ_TRACEBACK", "1")
    result = CliRunner().invoke(root(ValueError("a bug")), ["act"])
    assert isinstance(result.exception, ValueError)


def test_commands_are_listed_in_the_order_they_were_given() -> None:
    group = CommandGroup("group")
    for name in ("b", "a"):
        group.add_command(click.Command(name, help=f"Help of {name}."))
    text = CliRunner().invoke(group, ["--help"]).stdout
    assert "Help of b." in text


def test_what_takes_away_for_good_is_this() -> None:
    assert {" ".join(words) for words in DESTRUCTIVE} == {
        "topic delete",
        "group delete",
        "group reset",
        "user delete",
        "client kick",
        "pending commit",
        "pending cancel",
        "dead drop",
        "schedule remove",
        "schedule prune",
    }


@pytest.mark.parametrize("words", DESTRUCTIVE, ids=" ".join)
def test_what_takes_away_for_good_wants_a_yes(rig: CliRig, words: tuple[str, ...]) -> None:
    """Asked at a terminal; where there is none only --yes is one."""
    rig.die("m-1")
    rig.engine.schedules.put(
        Schedule(name="old", topic="orders", every_ms=60_000), rig.now_ms, app="billing"
    )
    rig.engine.declarers.declare("billing", "worker", ["old"], rig.now_ms)
    rig.engine.declarers.end("billing", "worker", rig.now_ms)
    more = {"group reset": ["billing", "--topic", "orders", "--to", "now"]}
    more |= {"topic delete": ["orders"], "dead drop": ["billing", "--all"], "schedule prune": []}
    wanted = [*words, *more.get(" ".join(words), ["billing"])]
    line = rig.refused(*wanted)
    assert line.startswith("latermq: ")
    assert line.endswith("? stdin is not a terminal; pass --yes")
    help_text = " ".join(rig.ok(*words, "--help").split())
    assert "Asks first, unless --yes." in help_text
    assert "Do not ask. Needed where stdin is not a terminal." in help_text
    rig.ok("topic", "show", "orders")
    rig.ok("group", "show", "billing")
    rig.ok("schedule", "show", "old")
    assert "m-1" in rig.ok("dead", "list", "billing")
