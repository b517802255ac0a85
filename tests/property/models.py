"""All models by random seeds, on all cores, for some time; what one finds is a finding.

    make models                        ten minutes, a seed of its own
    make models SECONDS=3600 SEED=7    an hour, the hunts of seed 7
    make models REPEAT="property.test_anew_model:AnewMachine 6.170.15 AXic…"

`make test` runs the same models derandomized, so that it has one outcome on every machine; here
each hunt has other examples, and none is shrunk. A finding is printed with its seed, with
Hypothesis's record of the one example that failed, and with the command that repeats it. The exit
code is 1 after a finding, 0 without.
"""

import argparse
import logging
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib import import_module
from inspect import signature
from multiprocessing import get_context
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final, NamedTuple

from hypothesis import is_hypothesis_test
from hypothesis.stateful import RuleBasedStateMachine

from property.hunt import Hunted, hunt, hunt_property, repeat

HERE: Final = Path(__file__).parent
SEED_BITS: Final = 64
HUNTS_PER_PROCESS: Final = 16  # then its memory is given back
GRACE_S: Final = 120.0  # for the examples that were begun when the time was over


class Model(NamedTuple):
    """A machine, or a test made by `@given`, by the names of its module and its own."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


class Finding(NamedTuple):
    model: Model
    seed: int
    hunted: Hunted


def models_in(module_name: str) -> list[Model]:
    """List the machines of a module that are run as a test, and its property tests."""
    members = vars(import_module(module_name))
    cases = {case for case in members.values() if isinstance(case, type)}
    found = []
    member: Any
    for name, member in members.items():
        if not isinstance(member, type):
            # One with arguments left is given fixtures by pytest, which alone can run it.
            is_model = is_hypothesis_test(member) and not signature(member).parameters
        else:
            machine: Any = member
            is_model = issubclass(member, RuleBasedStateMachine) and machine.TestCase in cases
        if is_model:
            found.append(Model(module_name, name))
    return sorted(found)


def all_models() -> list[Model]:
    names = sorted(path.stem for path in HERE.glob("test_*.py"))
    return [model for name in names for model in models_in(f"property.{name}")]


def look(model: Model, seed: int, seconds: float) -> Finding:
    """Hunt in one model, with as many examples as its test has, for so long at most."""
    module = import_module(model.module)
    member: Any = getattr(module, model.name)
    until_s = time.monotonic() + seconds
    if is_hypothesis_test(member):
        hunted = hunt_property(member, seed, 1_000, until_s)
    else:
        how = member.TestCase.settings
        hunted = hunt(member, seed, how.max_examples, how.stateful_step_count, until_s)
    return Finding(model, seed, hunted)


def hunts(models: list[Model], seed: int) -> Iterator[tuple[Model, int]]:
    """Yield (model, seed of its hunt) for ever: all models, in another order each round."""
    random = Random(seed)
    while True:
        for model in random.sample(models, len(models)):
            yield model, random.getrandbits(SEED_BITS)


def run(models: list[Model], seed: int, seconds: float, workers: int) -> int:
    """Hunt until the time is over; print each finding; return how many kinds there were."""
    print(f"models: seed {seed}, {len(models)} models, {seconds:.0f} s, {workers} at a time")
    until_s = time.monotonic() + seconds
    found: set[tuple[Model, str]] = set()
    examples = rounds = 0
    pending: dict[Future[Finding], tuple[Model, int]] = {}
    with ProcessPoolExecutor(
        workers,
        mp_context=get_context("spawn"),
        max_tasks_per_child=HUNTS_PER_PROCESS,
        initializer=logging.disable,
    ) as pool:
        for model, hunt_seed in hunts(models, seed):
            left_s = until_s - time.monotonic()
            if left_s > 0:
                pending[pool.submit(look, model, hunt_seed, left_s)] = (model, hunt_seed)
            if len(pending) < workers and left_s > 0:
                continue
            if not pending:
                break
            done, _ = wait(pending, return_when=FIRST_COMPLETED, timeout=max(left_s, 0) + GRACE_S)
            for future in done:
                finding = _result(future, *pending.pop(future))
                rounds += 1
                examples += finding.hunted.examples
                kind = (finding.model, finding.hunted.error)
                if finding.hunted.error and kind not in found:
                    found.add(kind)
                    print(told(finding, seed), flush=True)
            if not done:
                print(
                    f"models: an example takes longer than {GRACE_S:.0f} s: {[*pending.values()]}"
                )
                for process in (pool._processes or {}).values():
                    process.kill()
                return len(found) + 1
    print(f"models: {rounds} hunts, {examples} examples, {len(found)} findings (seed {seed})")
    return len(found)


def _result(future: "Future[Finding]", model: Model, seed: int) -> Finding:
    """Return what a hunt found; a hunt whose process broke is a finding, too."""
    error = future.exception()
    if error is not None:
        return Finding(model, seed, Hunted(0, f"{type(error).__name__}: {error}"))
    return future.result()


def told(finding: Finding, seed: int) -> str:
    model, hunt_seed, hunted = finding
    lines = [
        f"FOUND by {model}, seed {seed}, in hunt {hunt_seed}, example {hunted.examples}:",
        f"  {hunted.error}",
    ]
    if hunted.record[0]:
        version, record = hunted.record
        lines += [
            f"  record (Hypothesis {version}): {record}",
            f'  repeat: make models REPEAT="{model} {version} {record}"',
        ]
    lines.append(f'  or the whole hunt: make models REPEAT="{model} {hunt_seed}"')
    return "\n".join(lines)


def again(words: list[str]) -> str:
    """Repeat one record, or one hunt; return how it fails."""
    module, name = words[0].split(":")
    if len(words) == 3:
        return repeat(getattr(import_module(module), name), (words[1], words[2]))
    return look(Model(module, name), int(words[1]), float("inf")).hunted.error


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make models")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, help="0 to 2^64 - 1; without it a new one")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--modules", nargs="*", help="of these modules only")
    parser.add_argument("--repeat", nargs="+", metavar="WORD", help="MODEL VERSION RECORD, or SEED")
    asked = parser.parse_args(words)
    if asked.repeat:
        error = again(asked.repeat)
        print(f"{asked.repeat[0]}: {error or 'holds, or the record no longer fits'}")
        return 1 if error else 0
    seed = SystemRandom().getrandbits(SEED_BITS) if asked.seed is None else asked.seed
    models = [model for name in asked.modules or () for model in models_in(name)] or all_models()
    return 1 if run(models, seed, asked.seconds, asked.workers) else 0


if __name__ == "__main__":
    logging.disable()
    sys.exit(main())
