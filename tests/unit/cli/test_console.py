"""What a command does where its terminal, or its output, is not what it is used to."""

import json
import sys

import pytest

from latermq_cli.connection import options
from latermq_cli.terminal import console
from latermq_cli.terminal.failures import CommandError, one_line


def test_streams_that_the_shell_closed_are_no_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert not console.stdout_is_terminal()
    assert not console.stderr_is_terminal()
    assert not options.is_interactive()


def test_json_holds_nothing_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"tag": "a\x9b31m\u2028\u202e", "name": "Zürich"}
    console.print_json(value)
    line = capsys.readouterr().out.removesuffix("\n")
    assert line.isprintable()
    assert json.loads(line) == value


def test_a_failure_holds_nothing_that_a_terminal_obeys() -> None:
    line = one_line(CommandError("no topic \x1b[2J\u2028x"))
    assert line == "latermq: no topic \\u001b[2J x"
