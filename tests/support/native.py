"""Which build is tested: the Python that was written, or what mypyc made of it (`make native`)."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

import pytest

from latermq_broker.store import store


def is_compiled(module: str) -> bool:
    return str(getattr(sys.modules.get(module), "__file__", "")).endswith(".so")


NATIVE: Final = is_compiled(store.__name__)


def refuse_patches() -> None:
    """Skip tests that replace a name of a compiled module: it is bound there for good."""
    if not NATIVE:
        return
    patched: Callable[..., None] = pytest.MonkeyPatch.setattr

    def setattr(self: pytest.MonkeyPatch, target: Any, *rest: Any, **options: Any) -> None:
        if is_compiled(_module(target)):
            pytest.skip("what it replaces is compiled")
        patched(self, target, *rest, **options)

    pytest.MonkeyPatch.setattr = setattr  # type: ignore[method-assign]


@contextmanager
def small_limits() -> Iterator[Callable[[object, str, object], None]]:
    """What makes limits small for a while, so that short lives meet them; compiled ones stay."""
    with pytest.MonkeyPatch.context() as patch:
        yield (lambda *_: None) if NATIVE else patch.setattr


def _module(target: Any) -> str:
    """Where it is defined."""
    if isinstance(target, str):  # "package.module.Class.name"
        while target and target not in sys.modules:
            target = target.rpartition(".")[0]
        return str(target)
    if isinstance(target, ModuleType):
        return target.__name__
    return str(getattr(target, "__module__", type(target).__module__))
