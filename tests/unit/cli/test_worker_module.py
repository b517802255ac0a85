"""`latermq worker MODULE:APP` and what a user's module does at its top: 2, one line, where."""

import socket
import sys
from pathlib import Path

import pytest

from latermq_cli.terminal.failures import RefusedError
from latermq_cli.worker import _loaded, worker

MODULES = {
    "raises": ("import os\nURL = os.environ['NOT_SET_AT_ALL']\n", "line 2"),
    "exits": ("import sys\n\nsys.exit('bye')\n", "line 3"),
    "misspelled": ("x = 1\ndef f(:\n", "line 2"),
    "circling": ("import other_circle\n", "other_circle.py, line 1"),
    "odd": (
        "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd\n", "line 3"
    ),
    "many_lines": ("raise RuntimeError('one\\ntwo')\n", "line 1"),
    "imports": ("\nimport nothing_of_this_name\n", "line 2"),
    "lazy": ("def __getattr__(name):\n    raise KeyError(name)\n", "line 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_raises_is_told_with_its_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    text, where = MODULES[name]
    module = f"{name}_of_a_user"
    (tmp_path / f"{module}.py").write_text(text)
    (tmp_path / "other_circle.py").write_text("from circling_of_a_user import app\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    with pytest.raises(RefusedError) as refused:
        _loaded(f"{module}:app")
    said = str(refused.value)
    assert where in said
    assert str(tmp_path) in said
    assert "\n" not in said


@pytest.mark.parametrize("name", ["./good.py:app", ".good:app", "good.:app", "a b:app", "/x:app"])
def test_a_path_is_no_module(name: str) -> None:
    with pytest.raises(RefusedError, match="is no module's name"):
        _loaded(name)


@pytest.mark.parametrize(
    ("options", "ca", "said"),
    [
        (("--health", "127.0.0.1:{taken}"), "", "health: cannot listen on 127.0.0.1:{taken}: "),
        ((), "/nowhere/ca.pem", "/nowhere/ca.pem: No such file or directory"),
    ],
)
def test_what_is_not_there_for_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], ca: str, said: str
) -> None:
    text = (
        "import latermq\napp = latermq.App('127.0.0.1:9')\n"
        "@app.listener('orders', group='billing')\nasync def bill(order: bytes): ...\n"
    )
    (tmp_path / "shop_of_a_user.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["", *sys.path])
    monkeypatch.setenv("LATERMQ_CA", ca)
    monkeypatch.setattr("latermq_cli.worker._log_to_stderr", lambda *_, **__: None)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken = listening.getsockname()[1]
        words = [each.format(taken=taken) for each in ("shop_of_a_user:app", *options)]
        with pytest.raises(RefusedError) as refused:
            worker.main(words, standalone_mode=False)
    assert str(refused.value).startswith(said.format(taken=taken))
