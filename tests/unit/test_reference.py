"""Every public name of the SDK says what it is: `make docs` makes the reference of docstrings."""

import ast
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
SDK: Final = ROOT / "client" / "latermq"
PARTS: Final = {  # `latermq` hands out what they have; `latermq demo` is a program
    "client", "codes", "delivery", "demo", "lite_consumers", "message", "producer",
    "push_consumer", "simple_consumer", "transaction",
}  # fmt: skip


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODULES: Final[dict[str, str]] = loaded(ROOT / "docs" / "pages.py").public_modules()


def public_members(kind: type) -> Iterator[str]:
    """Yield what a class of ours offers, inherited from classes of ours or its own."""
    for owner in kind.__mro__:
        if owner.__module__.startswith("latermq"):
            for name, member in vars(owner).items():
                called = inspect.isfunction(member) or isinstance(
                    member, property | staticmethod | classmethod
                )
                if called and not name.startswith("_"):
                    yield name


def described(module: str, name: str) -> bool:
    """Tell whether a value has a docstring below it, where a module of `module`'s assigns it."""
    top = SDK.joinpath(*module.split(".")[1:])
    for path in [*top.rglob("*.py"), top.with_suffix(".py")]:
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8")
        if re.search(rf"^{name}\b.* = ", text, re.MULTILINE):
            body = ast.parse(text).body
            for node, after in pairwise(body):
                targets = [getattr(node, "target", None), *getattr(node, "targets", ())]
                if any(isinstance(one, ast.Name) and one.id == name for one in targets):
                    return isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    return False


def undocumented(module: str) -> Iterator[str]:
    home = importlib.import_module(module)
    for name in home.__all__:
        value = getattr(home, name)
        if inspect.ismodule(value):
            continue
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            if not described(module, name):
                yield f"{module}.{name}"
            continue
        about = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
        if not about or about.startswith(f"{name}("):  # what a dataclass says of itself
            yield f"{module}.{name}"
        if inspect.isclass(value) and not issubclass(value, Enum):
            for part in public_members(value):
                if not inspect.getdoc(getattr(value, part)):  # its own, or of what it overrides
                    yield f"{module}.{name}.{part}"


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_documented(module: str) -> None:
    assert sorted(set(undocumented(module))) == []


def test_every_module_says_what_it_offers() -> None:
    packages = {path.parent for path in SDK.glob("*/__init__.py")}
    names = {path.stem for path in {*SDK.glob("*.py"), *packages} if path.name[0] != "_"}
    silent = {name for name in names if f"latermq.{name}" not in MODULES}
    assert silent == PARTS, "__all__ gives a module its page in the reference"


def test_what_a_module_imports_for_its_type_alone_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`make docs` stopped at it: there is no such name in the module that runs."""

    def docstring(text: str, parent: object) -> SimpleNamespace:
        return SimpleNamespace(value=text)

    griffe = ModuleType("griffe")
    vars(griffe).update(Extension=object, Object=object, Module=object, Docstring=docstring)
    monkeypatch.setitem(sys.modules, "griffe", griffe)
    close = SimpleNamespace(docstring=None)
    of_client = SimpleNamespace(
        Client=SimpleNamespace(name="Client", is_alias=False, members={"send": close}),
        Admin=SimpleNamespace(name="Admin", is_alias=True, members={"call": close}),
    )

    class Package(dict[str, SimpleNamespace]):
        name = "latermq"

    package = Package()
    package["sync.client"] = SimpleNamespace(classes=vars(of_client))
    package["sync.consumers"] = SimpleNamespace(classes={})
    docstrings = loaded(ROOT / "docs" / "docstrings.py").Docstrings()
    monkeypatch.setattr(docstrings, "on_instance", lambda obj: None, raising=False)
    docstrings.on_package(pkg=package)
    assert close.docstring.value.startswith("Store one message")
