"""Hostile files by seed, for some time: what a reader raises that it should not is a finding.

    make hostile                        ten minutes, a seed of its own
    make hostile SECONDS=60 SEED=7      a minute, from the cases of seed 7 on

A finding is printed with its seed and where it was raised. At the end: how many cases, the most
processor time of one, the most memory of all. The exit code is 1 after a finding, 0 without.
"""

import argparse
import logging
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import SystemRandom
from traceback import extract_tb
from types import FrameType
from typing import Final

from hostile.cases import Outcome, directories, run_directory, run_manifest

CPU_S_MAX: Final = 20.0
RSS_MIB_MAX: Final = 512
CASES_PER_SEED: Final = 2  # a directory, and a manifest
FRAMES_SHOWN: Final = 4


class TooLongError(BaseException):
    """No Exception: what reads a directory says those in words of its own."""


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TooLongError(f"more than {CPU_S_MAX:g} s of processor time")


@contextmanager
def bounded() -> Iterator[None]:
    """End what takes more than CPU_S_MAX, by TooLongError."""
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, CPU_S_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def rss_mib() -> int:
    """The most memory that this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=SystemRandom().getrandbits(48))
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    disks = directories()
    said: Counter[str] = Counter()
    findings, seed, worst_s, worst_seed = 0, arguments.seed, 0.0, 0
    print(f"seed {seed}", flush=True)
    until_s = time.monotonic() + arguments.seconds
    while time.monotonic() < until_s:
        began_s = time.process_time()
        try:
            with bounded():
                outcomes: list[Outcome] = [run_directory(disks, seed), run_manifest(seed)]
            for outcome in outcomes:
                said.update(words.split(":")[0] for words in outcome.said)
        except (Exception, TooLongError) as error:  # noqa: BLE001  each is a finding
            findings += 1
            places = [f"{at.filename}:{at.lineno}" for at in extract_tb(error.__traceback__)]
            notes = "; ".join(getattr(error, "__notes__", [f"seed {seed}"]))
            print(f"FINDING {type(error).__name__}: {error}\n  {notes}", flush=True)
            print("  " + "\n  ".join(places[-FRAMES_SHOWN:]), flush=True)
        took_s = time.process_time() - began_s
        if took_s > worst_s:
            worst_s, worst_seed = took_s, seed
        seed += 1
    cases = CASES_PER_SEED * (seed - arguments.seed)
    fat = rss_mib() > RSS_MIB_MAX
    print(
        f"{cases:,} cases, {findings} findings; at most {worst_s:.2f} s of processor time "
        f"(seed {worst_seed}), {rss_mib()} MiB of memory{' TOO MUCH' if fat else ''}"
    )
    return 1 if findings or fat else 0


if __name__ == "__main__":
    sys.exit(main())
