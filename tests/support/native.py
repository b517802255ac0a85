"""Which build is tested: the Python that was written, or what mypyc made of it (`make native`)."""

import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import pytest

from latermq_text.version import is_compiled

NATIVE: Final = is_compiled()
if os.environ.get("NATIVE") == "1" and not NATIVE:
    raise RuntimeError("NATIVE=1, and what is found is not compiled")


def refuse_patches() -> None:
    """Skip tests that replace a name of a compiled module: it may be bound there for good."""
    if not NATIVE:
        return
    patched: Callable[..., None] = pytest.MonkeyPatch.setattr

    def setattr(self: pytest.MonkeyPatch, target: Any, *rest: Any, **options: Any) -> None:
        if _is_compiled(_module(target)):
            pytest.skip("what it replaces is compiled")
        patched(self, target, *rest, **options)

    pytest.MonkeyPatch.setattr = setattr  # type: ignore[method-assign]


def _is_compiled(module: str) -> bool:
    return not str(getattr(sys.modules.get(module), "__file__", ".py")).endswith(".py")


def _module(target: Any) -> str:
    """Where it is defined."""
    if isinstance(target, str):  # "package.module.Class.name"
        while target and target not in sys.modules:
            target = target.rpartition(".")[0]
        return str(target)
    if isinstance(target, ModuleType):
        return target.__name__
    return str(getattr(target, "__module__", type(target).__module__))
