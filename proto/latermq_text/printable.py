r"""Text that a terminal, a log viewer or a line-wise reader takes for text and nothing else.

Control characters of C0 and C1 drive terminals, U+2028 and U+2029 end lines for some readers, and
bidirectional overrides show text in another order than it has. All of them are written as `\u….`
"""

import re
from typing import Final

NAME_CHARACTERS_SHOWN_MAX: Final = 255  # no name that we take is longer, %DLQ%group included

_BEYOND_ASCII: Final = re.compile(r"[^ -~]+")


def shortened(name: str) -> str:
    """Cut what is too long to be a name: it is told back to who sent it, and stands in the log."""
    if len(name) <= NAME_CHARACTERS_SHOWN_MAX:
        return name
    return f"{name[:NAME_CHARACTERS_SHOWN_MAX]}… ({len(name)} characters)"


def escaped(text: str) -> str:
    r"""Write everything that is not printable as `\uXXXX`, as JSON does.

    Valid JSON on one line stays valid and means the same: outside its strings all is printable.
    """
    return text if text.isprintable() else _BEYOND_ASCII.sub(_escaped_run, text)


def _escaped_run(run: re.Match[str]) -> str:
    """Escape what is not printable in a run of characters beyond printable ASCII."""
    text = run[0]
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else _escaped_one(ch) for ch in text)


def _escaped_one(ch: str) -> str:
    """Escape one character; beyond U+FFFF as two surrogates, the only way JSON knows."""
    units = ch.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
