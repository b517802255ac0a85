"""What leaves by standard output is text, whoever wrote it; a terminal obeys ours alone."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

import click
import pytest

from latermq_cli.terminal import console
from latermq_cli.terminal.output import Output, guarded_output, let_through, obeyed, unmarked
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.latermq.v1 import broker_pb2, dead_letter_pb2
from support.cli_rig import CliRig

ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    rig = CliRig(monkeypatch)
    yield rig
    rig.close()


@contextmanager
def door() -> Iterator[io.StringIO]:
    with redirect_stdout(io.StringIO()) as written, guarded_output():
        yield written


def test_a_strangers_text_is_escaped_and_lines_stay() -> None:
    with door() as written:
        click.echo(f"Zürich\t{ESCAPE}\nnext", color=True)
    text = written.getvalue()
    assert text.startswith("Zürich\t\\u001b]0;owned\\u0007\\u001b[2J")
    assert text.endswith("\nnext\n")
    assert all(line.replace("\t", "").isprintable() for line in text.split("\n"))


def test_only_what_we_mark_is_obeyed() -> None:
    with door() as written:
        click.echo(obeyed("\x1b[1m") + f"a{ESCAPE}" + obeyed("\x1b[0m"))
        text = written.getvalue()
        assert text.startswith("\x1b[1ma\\u001b]0;")
        assert text.endswith("\x1b[0m\n")
        assert text.count("\x1b") == 2
        click.echo("\x1b0123456789abcdef:1b5b324a;")  # nobody knows the mark
        assert written.getvalue().count("\x1b") == 2


def test_styles_are_marked_and_take_no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "stdout_is_terminal", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    styled = console.styled(f"bold{ESCAPE}", bold=True)
    assert unmarked(styled) == f"bold{ESCAPE}"
    with door() as written:
        sys.stdout.write(styled)
    assert written.getvalue().count("\x1b") == 2
    assert written.getvalue().startswith("\x1b[1mbold")


def test_a_users_own_program_writes_what_it_likes() -> None:
    with door() as written:
        let_through()
        click.echo("\x1b[31mred", color=True)
    assert written.getvalue() == "\x1b[31mred\n"


def test_bytes_of_a_terminal_without_utf_8_are_escaped() -> None:
    raw = io.BytesIO()
    Output(raw).write(b"a\x1b[2J\n\tb")
    assert raw.getvalue() == b"a\\u001b[2J\n\tb"


def test_a_hostile_brokers_words_reach_no_terminal(
    cli: CliRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker's answers as whoever answers at its address may give them."""
    letter = dead_letter_pb2.DeadLetter(
        group="billing", queue_offset=0, message_id=ESCAPE, signature=f"{ESCAPE}; rm -rf ~\nx",
        reason=ESCAPE, origin_topic=ESCAPE, state=dead_letter_pb2.DEAD, body=ESCAPE.encode(),
    )  # fmt: skip
    told = broker_pb2.GetBrokerResponse()
    told.status.CopyFrom(v2.Status(code=v2.OK))
    told.broker.name = told.broker.version = ESCAPE
    shown = dead_letter_pb2.ListDeadLettersResponse(letters=[letter])
    shown.status.CopyFrom(v2.Status(code=v2.OK))
    raw = cli.transport._rig.raw

    def answered(path: str, request: bytes, call: object) -> bytes:
        if path.endswith("/GetBroker"):
            return told.SerializeToString()
        if path.endswith("/ListDeadLetters"):
            return shown.SerializeToString()
        return raw(path, request, call)  # type: ignore[arg-type]

    monkeypatch.setattr(cli.transport._rig, "raw", answered)
    for words in (("broker", "show"), ("dead", "show", "billing", "--offset", "0")):
        result = cli.run(*words)
        assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(result.output), words
        assert "x:" not in result.output.splitlines()
    assert "--signature '" in result.output or result.exit_code
