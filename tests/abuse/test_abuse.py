"""Every attack against a broker process with a working load: what it may cost, and that it ends.

    make abuse            what every run of the tests has; NATIVE=1: the compiled broker
    make abuse ALL=1      every variation
    make abuse PAGE=1     the figures, into docs/security.md

A family shares a broker, so what one attack leaves behind, the next ones meet. An attack that made
the neighbour wait is tried again: the broker's fault shows each time, the machine's does not.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from abuse.attacks import FAMILIES
from abuse.siege import CONFIG, SMALL, Case, Siege
from support.machine import patient

ALL = os.environ.get("ALL") == "1"
TRIES = 3
CHOSEN = [
    pytest.param(family, case, id=f"{family}-{case.name}")
    for family, cases in FAMILIES.items()
    for case in cases
    if ALL or case.always
]


class Brokers:
    """One at a time, of the family that is attacked."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._family = ""
        self._siege: Siege | None = None

    async def of(self, family: str) -> Siege:
        if self._siege is None or family != self._family or not self._siege.broker.running:
            self.stop()
            self._family = family
            config = CONFIG + (SMALL if family == "rights" else "")
            self._siege = Siege(self._directory / family / "data", config)
            await self._siege.start()
        return self._siege

    def stop(self) -> None:
        if self._siege is not None:
            siege, self._siege = self._siege, None
            siege.stop()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    if os.environ.get("LATERMQ_SERVER_TRANSPORT", "lean") != "lean":
        pytest.skip("limits of the lean transport")
    pytest.importorskip("cryptography")
    found = Brokers(tmp_path_factory.mktemp("abuse"))
    yield found
    found.stop()


@pytest.mark.parametrize(("family", "case"), CHOSEN)
@pytest.mark.timeout(330)
async def test_it_holds(family: str, case: Case, brokers: Brokers) -> None:
    siege = await brokers.of(family)
    async with asyncio.timeout(patient(TRIES * (case.seconds_max + 90))):
        for _ in range(TRIES):
            figures = await siege.endure(case)
            print(figures.line())
            if not figures.is_late(case):
                break
    assert not figures.faults(case)
