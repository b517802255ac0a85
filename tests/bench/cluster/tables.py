"""Medians, bounds and rows of `make bench-cluster`, made of what was measured."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from bench.suite import shown


class Sends(NamedTuple):
    """What one load took; CPU is in microseconds a send."""

    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float  # of the brokers that answered
    kafka_us: float = 0.0
    standby_us: float = 0.0


class Bound(NamedTuple):
    """A promise: how many times something may be something else."""

    what: str
    times: tuple[float, ...]  # round by round
    most: float

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def kept(self) -> bool:
        return self.median <= self.most

    def cells(self) -> tuple[str, str]:
        """Return the factor and what was promised, for a table."""
        mark = "✓" if self.kept else "✗"
        return spread(self.times), f"≤ {self.most:g} {mark}"

    def line(self) -> str:
        """Say whether it was kept."""
        word = "kept" if self.kept else "NOT KEPT"
        return f"{self.what}: {spread(self.times)} times, promised {self.most:g}: {word}"


def medians(rounds: Sequence[Sends]) -> Sends:
    """Return the median of each figure."""
    return Sends(*map(statistics.median, zip(*rounds, strict=True)))


def factors(rounds: Sequence[Sends], beside: Sequence[Sends]) -> tuple[float, ...]:
    """Return how many times the CPU a send was the other's, in each round: machines drift."""
    return tuple(one.cpu_us / other.cpu_us for one, other in zip(rounds, beside, strict=True))


def spread(times: Sequence[float]) -> str:
    """Write the median, and in brackets the least and the most if there are any."""
    text = f"{statistics.median(times):.2f}"
    return text if len(set(times)) == 1 else f"{text} ({min(times):.2f} … {max(times):.2f})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    assert all(len(row) == len(head) for row in rows), "a row has another number of cells"
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def send_cells(name: str, sends: Sends) -> list[str]:
    """Return the cells that each row of sends begins with."""
    figures = (sends.per_second, sends.p50_ms, sends.p99_ms, sends.cpu_us)
    return [name, *map(shown, figures)]


def bounds(
    rounds: Mapping[str, Sequence[Sends]], beside: str, promised: Mapping[str, float], what: str
) -> dict[str, Bound]:
    """Return what is promised of these variants beside another one.

    Args:
        promised: how many times its CPU each may take.
        what: the load, for who reads the bound alone.
    """
    return {
        name: Bound(
            f"{what}: CPU, {name} beside {beside}", factors(rounds[name], rounds[beside]), most
        )
        for name, most in promised.items()
    }
