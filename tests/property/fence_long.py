"""The ledger of `test_fence.py` for many more seeds, and a table.

make replication-long SEEDS=100000 SEED=1        a quarter of an hour of one core, calm
"""

import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from typing import Final

from support.fence_sim import World
from support.machine import workers

CHUNK: Final = 250  # seeds


def ran(seeds: range) -> tuple[Counter[str], list[str]]:
    """Run some seeds; what happened in all of them, and their faults."""
    total: Counter[str] = Counter()
    faults: list[str] = []
    for seed in seeds:
        try:
            story = asdict(World(seed).run())
        except Exception as error:  # noqa: BLE001  a refusal to go on is a fault of its seed
            faults.append(f"seed {seed}: {error!r}")
            continue
        faults += [f"seed {seed}: {fault}" for fault in story.pop("faults")]
        total.update(story)
    return total, faults


def main() -> int:
    first, count = int(os.environ.get("SEED", "1")), int(os.environ.get("SEEDS", "100000"))
    end = first + count
    chunks = [range(at, min(at + CHUNK, end)) for at in range(first, end, CHUNK)]
    total: Counter[str] = Counter()
    faults: list[str] = []
    with ProcessPoolExecutor(int(os.environ.get("WORKERS") or workers(1))) as pool:
        for counted, broken in pool.map(ran, chunks):
            total += counted
            faults += broken
            for fault in broken:
                print(fault, flush=True)
    print(f"{'seeds':20} {first} to {end - 1}")
    for what, number in [*sorted(total.items()), ("broken promises", len(faults))]:
        print(f"{what:20} {number:12,}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
