"""A simulated disk that loses power, tears writes and fails calls, under a broker that lives on.

LATERMQ_CRASH_SEED=7 pytest tests/crash/test_simulated.py
python -m support.simulation 7      one history again, with PYTHONPATH=tests
"""

import os
from collections import Counter
from typing import Final

import pytest

from support.simulation import Simulation

HISTORIES: Final = 45
LIVES: Final = 25  # of each
IMAGES_MIN: Final = 2_000  # of all
FIRST_SEED: Final = int(os.environ.get("LATERMQ_CRASH_SEED", "0"))
PARTS: Final = 9


def test_a_seed_is_one_history() -> None:
    once, again = Simulation(FIRST_SEED), Simulation(FIRST_SEED)
    for simulation in (once, again):
        simulation.run(5)
    assert once.files.disk.snapshot() == again.files.disk.snapshot()
    assert once.images == again.images


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_life_keeps_the_promises_of_those_before(part: int) -> None:
    faults: Counter[str] = Counter()
    images = 0
    for seed in range(FIRST_SEED + part, FIRST_SEED + HISTORIES, PARTS):
        simulation = Simulation(seed, image_share=0.045)
        simulation.run(LIVES)
        faults.update(simulation.faults)
        images += simulation.images
    print(images, "images", dict(faults))
    assert images >= IMAGES_MIN // PARTS
    assert sum(faults.values()) >= LIVES * HISTORIES // PARTS
