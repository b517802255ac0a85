"""Figures as text: Prometheus' own format, version 0.0.4, or OpenMetrics 1.0.0.

The two differ in how a counter's family is called, and in the last line.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from latermq_broker.engine.state.figures import Histogram

PLAIN_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
OPEN_END: Final = "# EOF\n"
COUNTER_HEAD: Final = re.compile(r"^(# (?:HELP|TYPE) \w+)_total ", re.MULTILINE)

Labels = Mapping[str, str]


class Family(NamedTuple):
    """What is said of all series of one name before them.

    Attributes:
        name: of a counter, with `_total`.
        help: a sentence that needs no other page to be understood.
    """

    name: str
    kind: str  # counter, gauge, histogram
    help: str

    def head(self) -> str:
        """Return the lines before its series."""
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n"


def as_openmetrics(pieces: Iterable[str]) -> Iterator[str]:
    """Yield a page of Prometheus' own format as OpenMetrics; no head is in two pieces."""
    for piece in pieces:
        # Most have no counter's head, and looking for one word is much faster than for lines.
        yield COUNTER_HEAD.sub(r"\1 ", piece) if "_total " in piece else piece
    yield OPEN_END


def label_text(labels: Labels) -> str:
    """Return what stands between the braces."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def sample(name: str, labels: str, value: float) -> str:
    """Return the line of one series; `labels` as `label_text` makes them."""
    braces = f"{{{labels}}}" if labels else ""
    return f"{name}{braces} {number(value)}\n"


def histogram_lines(name: str, labels: str, seen: Histogram) -> str:
    """Return the lines of one histogram, whose values are milliseconds, in seconds."""
    comma = "," if labels else ""
    lines: list[str] = []
    count = 0
    for bound, more in zip(_bounds(seen.bounds), seen.counts, strict=True):
        count += more
        lines.append(f'{name}_bucket{{{labels}{comma}le="{bound}"}} {count}\n')
    lines.append(sample(f"{name}_sum", labels, seen.total / 1_000))
    lines.append(sample(f"{name}_count", labels, count))
    return "".join(lines)


def column(family: Family, labels: Sequence[str], values: Iterable[float]) -> str:
    """Return a family with one value for each set of labels."""
    name = family.name
    lines = [
        f"{name}{{{each}}} {number(value)}\n" for each, value in zip(labels, values, strict=True)
    ]
    return family.head() + "".join(lines)


def number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(round(value, 9))


@cache
def _bounds(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*(number(bound / 1_000) for bound in bounds), "+Inf")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
