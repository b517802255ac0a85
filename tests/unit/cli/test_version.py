"""`latermq --version`, installed or not."""

import pytest
from click.testing import CliRunner

from latermq_cli.root import latermq
from latermq_text import version as versions


@pytest.mark.parametrize(
    ("version", "compiled", "said"),
    [
        ("1.2", False, "1.2"),
        ("1.2", True, "1.2, compiled"),
        ("", False, "from a directory that was never installed"),
    ],
)
def test_it_says_what_it_is(
    monkeypatch: pytest.MonkeyPatch, version: str, compiled: bool, said: str
) -> None:
    monkeypatch.setattr(versions, "own_version", lambda: version)
    monkeypatch.setattr(versions, "is_compiled", lambda: compiled)
    ended = CliRunner().invoke(latermq, ["--version"])
    assert (ended.exit_code, ended.output) == (0, f"latermq {said}\n")
