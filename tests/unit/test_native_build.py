"""What is compiled has nothing that mypyc takes otherwise, and nothing of it is misspelt."""

import ast
import re
from pathlib import Path
from typing import Final

import pytest

import native_build

ROOT: Final = Path(__file__).resolve().parents[2]
TAKEN_OTHERWISE: Final = re.compile(
    r"cached_property|__name__ == .__main__.|except RecursionError|\(mmap\.mmap\)|weakref"
)


def test_what_is_named_is_there() -> None:
    compiled = set(native_build.sources(ROOT))
    assert len(compiled) > 180
    for pure in native_build.PURE:
        found = [path for room in native_build.ROOMS for path in (ROOT / room).rglob("*.py")]
        assert any(str(path).endswith(pure) for path in found), pure
        assert not any(path.endswith(pure) for path in compiled)


def awaits_while_handling(source: str) -> list[int]:
    """List the lines that wait inside `except` or `finally`: there an exception stays behind."""
    tries = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.Try)]
    parts = [part for one in tries for part in (*one.handlers, *one.finalbody)]
    waits = (ast.Await, ast.AsyncFor, ast.AsyncWith)
    return [one.lineno for part in parts for one in ast.walk(part) if isinstance(one, waits)]


def test_nothing_compiled_waits_while_it_handles_an_exception() -> None:
    assert awaits_while_handling("async def f():\n try: g()\n finally:\n  await h()") == [4]
    for name in native_build.sources(ROOT):
        assert not awaits_while_handling((ROOT / name).read_text(encoding="utf-8")), name


def cleans_up_when_dropped(source: str) -> list[int]:
    """List the generators that yield inside `try … finally` or `with`: dropped, they do neither.

    Those of `contextmanager` are gone on with, whatever happens.
    """
    found = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef) or function.decorator_list:
            continue
        blocks = [one for one in ast.walk(function) if isinstance(one, ast.Try | ast.With)]
        for block in blocks:
            if isinstance(block, ast.Try) and not block.finalbody:
                continue
            inside = [each for part in block.body for each in ast.walk(part)]
            found += [each.lineno for each in inside if isinstance(each, ast.Yield | ast.YieldFrom)]
    return found


def test_no_compiled_generator_has_to_clean_up_when_it_is_dropped() -> None:
    assert cleans_up_when_dropped("def f():\n try:\n  yield\n finally:\n  g()") == [3]
    for name in native_build.sources(ROOT):
        assert not cleans_up_when_dropped((ROOT / name).read_text(encoding="utf-8")), name


def test_each_module_is_compiled_once_in_units_of_like_sizes(tmp_path: Path) -> None:
    modules = [tmp_path / f"__native_latermq_m{number}.c" for number in range(100)]
    for number, module in enumerate(modules):
        module.write_text("x" * (number + 1) * 100)
    runtime = tmp_path / "runtime.c"
    names = native_build.joined([*modules, runtime], tmp_path)
    assert names[0] == str(runtime)
    assert len(names) == 1 + native_build.UNITS
    units = [re.findall('"(.+)"', Path(name).read_text()) for name in names[1:]]
    assert sorted(name for unit in units for name in unit) == sorted(each.name for each in modules)
    sizes = [sum((tmp_path / name).stat().st_size for name in unit) for unit in units]
    assert max(sizes) - min(sizes) < 10_000


def test_a_wheel_is_compiled_where_a_compiler_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_build, "missing", str)
    for asked, compiled in (("", True), ("1", True), ("0", False)):
        monkeypatch.setenv(native_build.ASKED, asked)
        assert native_build.compiles() is compiled
    monkeypatch.setattr(native_build, "missing", lambda: "a C compiler (cc)")
    for asked in ("", "0"):
        monkeypatch.setenv(native_build.ASKED, asked)
        assert not native_build.compiles()
    for asked, words in (("1", "a C compiler"), ("yes", "must be 0, 1 or not set")):
        monkeypatch.setenv(native_build.ASKED, asked)
        with pytest.raises(RuntimeError, match=words):
            native_build.compiles()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "a C compiler" in native_build.missing()


def test_nothing_that_is_taken_otherwise_is_compiled() -> None:
    for name in native_build.sources(ROOT):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not TAKEN_OTHERWISE.search(text), name
