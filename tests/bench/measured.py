"""What a case measured, several times over; the median stands."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

HIGHER: Final = "higher is better"
LOWER: Final = "lower is better"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One case.

    value: the median of `runs`, in `unit`.
    details: further medians, e.g. {"p99 ms": 3.2}; shown behind the value.
    bound: what is promised of the value, "" for nothing.
    prototype: what the throw-away prototype of the design took, "" where it was not measured.
    why: where ours is slower.
    text: Markdown of its own, shown below the tables.
    """

    case: str
    what: str
    unit: str
    better: str
    runs: tuple[float, ...]
    details: Mapping[str, float] = field(default_factory=dict)
    bound: str = ""
    holds: bool | None = None
    prototype: str = ""
    why: str = ""
    text: str = ""

    @property
    def value(self) -> float:
        return statistics.median(self.runs)

    def as_json(self, mode: str) -> dict[str, Any]:
        return {
            "case": self.case,
            "mode": mode,
            "unit": self.unit,
            "better": self.better,
            "value": self.value,
            "runs": list(self.runs),
            "details": dict(self.details),
        }


# Cases that are measured together: their names, and how.
Group: TypeAlias = tuple[tuple[str, ...], Callable[[], Iterator[Result]]]


def repeated(
    count: int, measure: Callable[[], Mapping[str, float]]
) -> dict[str, tuple[float, ...]]:
    """Measure `count` times; all values by name."""
    runs = [measure() for _ in range(count)]
    return {name: tuple(run[name] for run in runs) for name in runs[0]}


def medians(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(runs) for name, runs in values.items()}


def percentile(ordered: Sequence[float], share: float) -> float:
    """Of sorted values: the smallest that at least `share` of them do not exceed."""
    index = -int(-len(ordered) * share // 1) - 1
    return ordered[max(0, min(len(ordered) - 1, index))]
