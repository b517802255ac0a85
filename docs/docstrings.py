"""How `make docs` reads our docstrings.

`Fields:` are attributes, "one, other: …" are two parameters, and what a method for threads does not
say, its twin says: `latermq.sync` takes it from there when it is imported.
"""

import inspect
import re
from importlib import import_module
from typing import Any, Final

import griffe

FIELDS: Final = re.compile(r"^Fields:$", re.MULTILINE)
SHARED: Final = re.compile(r"^( +)(\w+(?:, \w+)+)(: .*(?:\n\1 +.*)*)", re.MULTILINE)
SECTION: Final = re.compile(r"^(?:Args|Fields|Attributes):\n(?: +.*\n?|\n)+", re.MULTILINE)

TWINS: Final = ("sync.client", "sync.consumers")


class Docstrings(griffe.Extension):
    """Rewrites docstrings before they are parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = SECTION.sub(_apart, obj.docstring.value)
            obj.docstring.value = FIELDS.sub("Attributes:", text)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for module in TWINS if pkg.name == "latermq" else ():
            real = import_module(f"latermq.{module}")
            for kind in pkg[module].classes.values():
                if kind.is_alias:  # imported, and maybe for its type alone
                    continue
                for name, member in kind.members.items():
                    text = inspect.getdoc(getattr(getattr(real, kind.name), name, None))
                    if text and member.docstring is None and not name.startswith("_"):
                        member.docstring = griffe.Docstring(text, parent=member)
                        self.on_instance(obj=member)


def _apart(section: re.Match[str]) -> str:
    def each(shared: re.Match[str]) -> str:
        indent, names, about = shared.groups()
        return "\n".join(f"{indent}{name}{about}" for name in names.split(", "))

    return SHARED.sub(each, section[0])
