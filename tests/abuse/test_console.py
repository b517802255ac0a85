"""Every attack against a console process with a signed-in person: what it may cost, and its end.

An attack that made the person wait is tried again: the console's fault shows each time, the
machine's does not.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from abuse.console.attacks import CASES
from abuse.console.siege import Case, ConsoleSiege, is_late
from abuse.siege import FRESH_MS_MAX, PEAK_MIB_MAX, SLOWER_MAX, Figures
from support.machine import patient

TRIES = 3


class Held:
    """The console that is attacked; another one after one that ended."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._siege: ConsoleSiege | None = None
        self._lives = 0

    async def siege(self) -> ConsoleSiege:
        if self._siege is None or not self._siege.running:
            self.stop()
            self._lives += 1
            self._siege = ConsoleSiege(self._directory / str(self._lives) / "data")
            await self._siege.start()
        return self._siege

    def stop(self) -> None:
        if self._siege is not None:
            siege, self._siege = self._siege, None
            siege.stop()


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    pytest.importorskip("uvicorn")
    found = Held(tmp_path_factory.mktemp("console"))
    yield found
    found.stop()


def faults(case: Case, figures: Figures) -> list[str]:
    """Return what was promised of the case and does not hold."""
    found = {
        f"peak RSS {figures.peak_mib:.0f} MiB": figures.peak_mib > PEAK_MIB_MAX,
        f"not back after {figures.back_s:.0f} s: {figures.why_not_back}": bool(
            figures.why_not_back
        ),
        f"a person's p99 {figures.p99_ms:.0f} ms, calm {figures.calm_p99_ms:.0f}": (
            figures.p99_ms > SLOWER_MAX * figures.calm_p99_ms
        ),
        f"newcomers wait for {figures.fresh_ms:.0f} ms": figures.fresh_ms > FRESH_MS_MAX,
        f"{figures.failed} of the person's requests failed": figures.failed > 0,
    }
    return [text for text, broken in found.items() if broken]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.timeout(330)
async def test_it_holds(case: Case, held: Held) -> None:
    siege = await held.siege()
    async with asyncio.timeout(patient(TRIES * (case.seconds_max + 60))):
        for _ in range(TRIES):
            figures = await siege.endure(case)
            print(figures.line(), figures.why_not_back)
            if not is_late(figures):
                break
    assert not faults(case, figures)
