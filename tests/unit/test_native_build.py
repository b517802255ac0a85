"""What is compiled has nothing that mypyc takes otherwise, and nothing of it is misspelt."""

import re
from pathlib import Path
from typing import Final

import native_build
from latermq_broker.schedule.minutes import Minutes
from support.native import small_limits
from support.small_runs import small_runs

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


def test_nothing_that_is_taken_otherwise_is_compiled() -> None:
    for name in native_build.sources(ROOT):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not TAKEN_OTHERWISE.search(text), name


def test_limits_that_tests_make_small_become_small_in_both_builds() -> None:
    with small_limits() as assign:
        small_runs(assign)
        minutes = Minutes()
        for packed in range(5):
            minutes.add(7, packed)
        assert len(minutes.freeze()) == 1
