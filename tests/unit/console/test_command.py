"""What `latermq console` refuses before it opens anything."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from latermq_console.command import console


def run(*words: str, **environment: str) -> tuple[int, str]:
    done = CliRunner().invoke(console, words, env=environment)
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--listen", "nonsense"], "is not HOST:PORT"),
        (["--certificate", __file__], "go together"),
        (["--certificate", "/not/there"], "does not exist"),
        (["--endpoint", "a:b:c:d"], "a:b:c:d"),
        (["--prometheus", "localhost:9090"], "such as http://127.0.0.1:9090"),
    ],
)
def test_what_is_asked_wrongly(words: list[str], why: str) -> None:
    code, said = run(*words)
    assert code == 2
    assert why in said


def test_half_of_who_it_is() -> None:
    code, said = run(LATERMQ_ACCESS_KEY="root")
    assert code == 2
    assert "LATERMQ_ACCESS_KEY and LATERMQ_SECRET_KEY go together" in said


def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "none.pem"
    file.write_text("nothing")
    code, said = run("--ca", str(file), "--listen", "127.0.0.1:0")
    assert code == 2
    assert "none.pem" in said


def test_it_is_not_said_to_serve_with_a_certificate_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "none.pem"
    file.write_text("nothing")
    words = ["--certificate", str(file), "--private-key", str(file), "--listen", "127.0.0.1:0"]
    code, said = run(*words)
    assert code != 0
    assert "console on https" not in said
    assert "cannot serve" in said
