"""What a command does where its terminal, or its output, is not what it is used to."""

import sys

import pytest

from latermq_broker.cli import console, options


def test_streams_that_the_shell_closed_are_no_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert not console.stdout_is_terminal()
    assert not console.stderr_is_terminal()
    assert not options.is_interactive()
