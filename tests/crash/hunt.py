"""Simulate histories until one breaks a promise; tell which, and how.

python -m crash.hunt FIRST_SEED HISTORIES
"""

import logging
import sys
from traceback import extract_tb

from support.simulation import Simulation

LIVES = 25  # of a history
IMAGE_SHARE = 0.045


def hunt(first: int, histories: int) -> str:
    for seed in range(first, first + histories):
        simulation = Simulation(seed, image_share=IMAGE_SHARE)
        try:
            simulation.run(LIVES)
        except Exception as error:  # noqa: BLE001  whatever it is, it was looked for
            broken = [*simulation.ledger.violations, *str(error).splitlines()]
            what = next((line for line in broken if " in life " in line), "")
            place = extract_tb(error.__traceback__)[-1].line or ""
            return f"seed {seed} | {type(error).__name__}: {what or str(error) or place}"
    return f"not in {histories} histories | "


def main() -> None:
    logging.disable()
    print(hunt(int(sys.argv[1]), int(sys.argv[2])))


if __name__ == "__main__":
    main()
