"""What `make docs` adds to the pages of docs/: the SDK's reference, the README and the changelog.

A hook of mkdocs. Every module of `latermq` that says by `__all__` what it offers has a page made of
its docstrings; so a module that is added has one, too.
"""

import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
SDK: Final = ROOT / "client" / "latermq"
ABOVE: Final = {"README.md": "index.md", "CHANGELOG.md": "CHANGELOG.md"}  # as what they are shown
FENCED: Final = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LINK: Final = re.compile(r"(?<!!)\[([^]]*)\]\(([^)\s]+)\)")
OFFERS: Final = re.compile(r"^__all__ = ", re.MULTILINE)
INTRODUCTION: Final = """# Reference

Every public name, by its docstring. What needs an extra of `pip install latermq` says so.

| module | |
|---|---|
"""


def public_modules() -> dict[str, str]:
    """Map the modules that say what they offer to the first line about them, `latermq` first."""
    files = [
        SDK / "__init__.py",
        *sorted(SDK.glob("[a-z]*.py")),
        *sorted(SDK.glob("[a-z]*/__init__.py")),
    ]
    modules = {}
    for path in files:
        text = path.read_text(encoding="utf-8")
        if OFFERS.search(text):
            parts = path.relative_to(SDK.parent).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__")
            modules[name] = text.removeprefix('"""').partition("\n")[0].removesuffix('"""')
    return modules


def page_of(module: str) -> str:
    return f"reference/{module}.md"


def on_config(config: "MkDocsConfig") -> None:
    """Fill the lists of the navigation that need no hand to keep them."""
    decisions = [f"adr/{path.name}" for path in sorted(DOCS.glob("adr/0*.md"))]
    filled: dict[str, list[Any]] = {
        "Reference": ["reference/README.md", *({name: page_of(name)} for name in public_modules())],
        "Decisions": ["adr/README.md", *decisions],
    }

    def fill(entries: list[Any]) -> None:
        for entry in entries:
            for title, below in entry.items() if isinstance(entry, dict) else ():
                if isinstance(below, list):
                    below.extend(filled.get(title, ()))
                    fill(below)

    fill(config.nav or [])


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the pages that are no files of docs/."""
    from mkdocs.structure.files import File

    modules = public_modules()
    rows = [f"| [`{name}`]({name}.md) | {line} |\n" for name, line in modules.items()]
    made = {"reference/README.md": INTRODUCTION + "".join(rows)}
    made |= {page_of(name): f"# {name}\n\n::: {name}\n" for name in modules}
    made |= {page: (ROOT / name).read_text(encoding="utf-8") for name, page in ABOVE.items()}
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Have links lead where the pages are in the site; what has no page there stays as words."""
    source = page.file.src_uri
    home = ROOT if source in ABOVE.values() else (DOCS / source).parent
    parts = FENCED.split(markdown)
    parts[::2] = [LINK.sub(partial(_link, source, home), part) for part in parts[::2]]
    return "".join(parts)


def _link(source: str, home: Path, found: re.Match[str]) -> str:
    words, link = found.groups()
    if "://" in link or link.startswith("#"):
        return found[0]
    path, _, anchor = link.partition("#")
    target = (home / path).resolve()
    if target.is_dir():
        target /= "README.md"
    if target.parent == ROOT and target.name in ABOVE:
        target = DOCS / ABOVE[target.name]
    if not target.is_relative_to(DOCS) or target.suffix not in {".md", ".png"}:
        return words
    way = os.path.relpath(target, (DOCS / source).parent)
    return f"[{words}]({way}{'#' * bool(anchor)}{anchor})"
