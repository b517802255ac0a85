"""Charts as numbers for SVG: no script draws them, and no style is inline."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from markupsafe import Markup

SPARK_WIDE: Final = 120
SPARK_HIGH: Final = 28
MARGIN: Final = 2


class Bar(NamedTuple):
    """A bar of a histogram: its place, and what it says."""

    x: float
    y: float
    wide: float
    high: float
    label: str


class Span(NamedTuple):
    """A stretch of a timeline: kind names its colour."""

    x: float
    wide: float
    kind: str
    label: str


def paths(values: Sequence[float | None], wide: float, high: float) -> tuple[str, str]:
    """Return the paths of a line through `values`, left to right, and of the area below it.

    Where a value is not known the line has a gap. Both are "" where no two are known.
    """
    if sum(value is not None for value in values) < 2:
        return "", ""
    top = max(value for value in values if value is not None) or 1.0
    step = wide / (len(values) - 1)
    room = high - 2 * MARGIN
    line, area = "", ""
    numbered = enumerate(values)
    for known, stretch in groupby(numbered, key=lambda each: each[1] is not None):
        if not known:
            continue
        points = [
            (index * step, high - MARGIN - max(0.0, value or 0.0) / top * room)
            for index, value in stretch
        ]
        (first, _), (last, level) = points[0], points[-1]
        if len(points) == 1:  # or it could not be seen
            points.append((last + 1, level))
        drawn = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        line += f"M{drawn} "
        area += f"M{drawn} L{last:.1f} {high} L{first:.1f} {high} Z "
    return line.rstrip(), area.rstrip()


def spark(values: Sequence[float | None], label: str, kind: str = "") -> Markup:
    """Return a small line as an element, read out as `label`."""
    line, area = paths(values, SPARK_WIDE, SPARK_HIGH)
    if not line:
        return Markup('<span class="spark none" aria-hidden="true"></span>')
    return Markup(
        '<svg class="spark {}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}"><path class="area" d="{}"/><path class="line" d="{}"/></svg>'
    ).format(kind, SPARK_WIDE, SPARK_HIGH, label, area, line)


def spark_bars(values: Sequence[float], label: str, kind: str = "") -> Markup:
    """Return a small histogram as an element, read out as `label`."""
    rects = Markup("").join(
        Markup('<rect class="bar" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
            bar.x, bar.y, bar.wide, bar.high
        )
        for bar in bars(values, [""] * len(values), SPARK_WIDE, SPARK_HIGH)
        if bar.high
    )
    return Markup(
        '<svg class="spark {}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg>'
    ).format(kind, SPARK_WIDE, SPARK_HIGH, label, rects)


def bars(values: Sequence[float], labels: Sequence[str], wide: float, high: float) -> list[Bar]:
    """Return the bars of a histogram; what is above 0 is never too small to be seen."""
    top = max(values, default=0) or 1
    step = wide / max(1, len(values))
    made = []
    for index, (value, label) in enumerate(zip(values, labels, strict=True)):
        tall = max(2.0, value / top * high) if value else 0.0
        made.append(Bar(index * step, high - tall, max(1.0, step - 1), tall, label))
    return made


def buckets(instants: Sequence[int], begin_ms: int, end_ms: int, count: int) -> list[int]:
    """Count instants into `count` equal stretches of time; what lies outside is left out."""
    tally = [0] * count
    width = max(1, end_ms - begin_ms)
    for ms in instants:
        if begin_ms <= ms < end_ms:
            tally[(ms - begin_ms) * count // width] += 1
    return tally


def spans(
    stretches: Sequence[tuple[int, int, str, str]], begin_ms: int, end_ms: int, wide: float
) -> list[Span]:
    """Return stretches of (from, to, kind, label) as parts of a line of that width."""
    whole = max(1, end_ms - begin_ms)
    made = []
    for start, stop, kind, label in stretches:
        x = (start - begin_ms) / whole * wide
        length = max(3.0, (stop - start) / whole * wide)
        made.append(Span(max(0.0, min(x, wide - length)), length, kind, label))
    return made
