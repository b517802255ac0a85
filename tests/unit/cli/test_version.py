"""`latermq --version`, installed or not."""

import pytest
from click.testing import CliRunner

from latermq_broker.cli import root


@pytest.mark.parametrize(
    ("version", "said"), [("1.2", "1.2"), ("", "from a directory that was never installed")]
)
def test_it_says_what_it_is(monkeypatch: pytest.MonkeyPatch, version: str, said: str) -> None:
    monkeypatch.setattr(root, "own_version", lambda: version)
    ended = CliRunner().invoke(root.latermq, ["--version"])
    assert (ended.exit_code, ended.output) == (0, f"latermq {said}\n")
