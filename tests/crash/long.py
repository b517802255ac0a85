"""Crashes for hours: simulated histories and real brokers killed, until ROUNDS rounds are done.

    make crash-long ROUNDS=10000 SEED=1

A round is one life of a broker and its end. Of every twenty, nineteen are simulated
(`support/simulation.py`) and one is a real process that gets kill -9 (`test_kill.py`). Each history
has a seed of its own; what is done is kept in a file, so that the same command goes on where it was
stopped. Prints one table; exit code 1 when a promise was broken, with the seed and its command.
"""

import json
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from crash.test_kill import FLUSHES, kill_history
from support.broker_nursery import Nursery
from support.ledger import Ledger
from support.simulation import Simulation

LIVES: Final = 25  # of one history
KILLED_SHARE: Final = 20  # one history of so many is of real processes
KEPT: Final = Path(os.environ.get("CRASH_LOG", ".cache/crash-long.jsonl"))

WORDS: Final = {1: "lost or altered", 2: "refused, yet there", 3: "duplicated", 4: "wrong attempt",
                5: "early", 6: "out of order", 7: "half seen or lost",
                10: "durable, yet cut off"}  # fmt: skip

Result = dict[str, Any]


def simulated(seed: int) -> Result:
    simulation = Simulation(seed)
    result: Result = {}
    try:
        simulation.run(LIVES)
    finally:
        result |= told(simulation.ledger)
        result["faults"] = dict(simulation.faults)
        result["images"] = simulation.images
    return result


def killed(seed: int) -> Result:
    flush = FLUSHES[seed // KILLED_SHARE % len(FLUSHES)]
    with tempfile.TemporaryDirectory(prefix="latermq-crash-") as directory, Nursery() as nursery:
        data_dir = Path(directory) / "data"
        crashes = kill_history(data_dir, flush, random.Random(seed), LIVES, nursery)
    faults = {f"process: {name}": count for name, count in crashes.ends.items()}
    return {**told(crashes.ledger), "faults": faults, "images": 0}


def told(ledger: Ledger) -> Result:
    return {"sends": len(ledger.messages), "deliveries": len(ledger.progress)}


def run(kind: str, seed: int) -> Result:
    """One history, and what came of it; a failure is a result, too."""
    began = time.monotonic()
    work: Callable[[int], Result] = killed if kind == "killed" else simulated
    try:
        result = work(seed)
        result["failed"] = ""
    except AssertionError as error:
        result = {"failed": f"{error}\n{traceback.format_exc()}"[-4_000:]}
    return {"kind": kind, "seed": seed, "rounds": LIVES, **result,
            "seconds": time.monotonic() - began}  # fmt: skip


def kept(first: int, last: int) -> list[Result]:
    if not KEPT.exists():
        return []
    lines = KEPT.read_text(encoding="utf-8").splitlines()
    return [one for one in map(json.loads, lines) if first <= one["seed"] < last]


def table(results: list[Result]) -> str:
    faults: Counter[str] = Counter()
    rounds: Counter[str] = Counter()
    for one in results:
        faults.update(one.get("faults", {}))
        rounds[one["kind"]] += one["rounds"]
    failed = [one for one in results if one["failed"]]
    broken = {
        words: sum(one["failed"].count(f"I{number} in life") for one in failed)
        for number, words in WORDS.items()
    }
    other = sum(1 for one in failed if " in life " not in one["failed"])
    seeds = sorted(one["seed"] for one in results)
    lines = [
        f"rounds               {sum(rounds.values()):>8}   simulated {rounds['simulated']}, "
        f"processes killed {rounds['killed']}",
        f"power-loss images    {sum(one.get('images', 0) for one in results):>8}   "
        "each recovered, checked and drained on the side",
        f"messages sent        {sum(one.get('sends', 0) for one in results):>8}",
        *(f"{name:<28} {count:>8}" for name, count in sorted(faults.items())),
        *(f"{words:<28} {count:>8}" for words, count in broken.items()),
        f"{'any other failure':<28} {other:>8}",
        f"seconds                      {sum(one['seconds'] for one in results):>8.0f}",
        f"seeds                        {seeds[0]} to {seeds[-1]}",
    ]
    return "\n".join(lines)


def main() -> int:
    rounds = int(os.environ.get("ROUNDS", "10000"))
    seed = int(os.environ.get("SEED", "1"))
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    last = seed + -(-rounds // LIVES)
    results = kept(seed, last)
    done = {one["seed"] for one in results}
    with KEPT.open("a", encoding="utf-8") as log:
        for number in range(seed, last):
            if number in done:
                continue
            result = run("simulated" if number % KILLED_SHARE else "killed", number)
            print(json.dumps(result), file=log, flush=True)
            results.append(result)
            if result["failed"]:
                print(f"seed {number} ({result['kind']}) failed:\n{result['failed']}", flush=True)
            elif sys.stdout.isatty():
                print(f"\r{len(results) * LIVES} of {rounds} rounds", end="", flush=True)
    print("\n" + table(results))
    return 1 if any(one["failed"] for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())
