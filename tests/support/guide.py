"""The examples of README and guide: every fenced block, for the tests that run them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
README: Final = ROOT / "README.md"
GUIDE: Final = ROOT / "docs" / "guide"
PAGES: Final = (README, *sorted(GUIDE.glob("*.md")))
FENCE: Final = re.compile(r"^ *```(\w*) *$")
FILE: Final = re.compile(r"# (\w+\.py)\n")


class Example(NamedTuple):
    """A fenced block of a page."""

    page: Path
    language: str  # "" where the page names none
    text: str

    @property
    def begins(self) -> str:
        """Return its first line, which no other block of its page has."""
        return self.text.partition("\n")[0]

    @property
    def file(self) -> str:
        """Return the module that it is by its first line; "": it is part of none."""
        named = FILE.match(self.text)
        return named[1] if named else ""


def examples(page: Path) -> Iterator[Example]:
    """Yield a page's blocks from its first line on."""
    language, inside, lines = "", False, [""]
    for line in page.read_text(encoding="utf-8").splitlines(keepends=True):
        fence = FENCE.match(line.rstrip("\n"))
        if fence is None:
            lines.append(line)
        elif inside:
            yield Example(page, language, "".join(lines))
            inside = False
        else:
            language, inside, lines = fence[1], True, []


def modules(page: Path) -> dict[str, str]:
    """Return a page's files of Python by their names."""
    named = [each for each in examples(page) if each.language == "python" and each.file]
    assert len({each.file for each in named}) == len(named), f"{page.name} names a file twice"
    return {each.file: each.text for each in named}


def commands(page: Path) -> list[list[str]]:
    """Return the words of each `latermq …` of a page, as a shell would split them."""
    lines = [
        shlex.split(line, comments=True)
        for each in examples(page)
        if each.language == "sh"
        for line in each.text.splitlines()
    ]
    assert {words[0] for words in lines} == {"latermq"}, page.name
    return [words[1:] for words in lines]
