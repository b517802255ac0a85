"""What this machine does at present: how many cores the tests get, and how patient they must be.

Measured once, before the first test; workers and what they spawn inherit the figures, so that all
processes of a run agree. `python tests/support/machine.py roomy` tells the Makefile whether two
suites may run side by side.
"""

import math
import os
import subprocess
import sys
import time
from typing import Final

SPIN_S: Final = 0.3
SPINS: Final = 3
STEPS: Final = 1_000_000
CALM_S: Final = 0.04  # for these steps, on the machine that the suites were written on
PATIENCE_MAX: Final = 20.0
ROOMY_CORES: Final = 1.5  # for a suite that computes beside one that waits

_PATIENCE: Final = "LATERMQ_TESTS_PATIENCE"
_CORES: Final = "LATERMQ_TESTS_CORES"


def patient(seconds: float) -> float:
    """Stretch a time-out, in seconds of a calm machine, to what this one needs."""
    return seconds * patience()


def patient_s(seconds: int) -> int:
    """Stretch what an official client takes in whole seconds."""
    return math.ceil(patient(seconds))


def patience() -> float:
    """Tell how many times slower than a calm machine this one is, from 1 to `PATIENCE_MAX`."""
    if _PATIENCE not in os.environ:
        slower = _spin_wall_s() / CALM_S * _usable() / max(cores(), 0.1)
        os.environ[_PATIENCE] = f"{min(max(slower, 1.0), PATIENCE_MAX):.2f}"
    return float(os.environ[_PATIENCE])


def cores() -> float:
    """Tell how many cores' worth of time we get when each core that we may use has work of ours."""
    if _CORES not in os.environ:
        got = sum(_cpu_shares(_usable()))
        os.environ[_CORES] = f"{got:.2f}"
    return float(os.environ[_CORES])


def workers(per_core: int) -> int:
    """Tell how many test processes keep the cores busy, and no more than that."""
    return max(1, round(cores() * per_core))


def _usable() -> int:
    return len(os.sched_getaffinity(0))


def _cpu_shares(count: int) -> list[float]:
    """Have `count` processes compute at once; the share of a core that each got.

    They run this file: multiprocessing would import the main module anew, which may be asking.
    """
    command = [sys.executable, __file__, "spin"]
    spinning = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
    return [float(each.communicate()[0]) for each in spinning]


def _spin_cpu_share() -> float:
    """Compute for `SPIN_S`; the share of a core that it got."""
    began, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < SPIN_S:
        pass
    return (time.process_time() - used) / (time.perf_counter() - began)


def _spin_wall_s() -> float:
    """Time the steps a few times; the slowest counts."""
    slowest_s = 0.0
    for _ in range(SPINS):
        began, total = time.perf_counter(), 0
        for step in range(STEPS):
            total += step & 7
        slowest_s = max(slowest_s, time.perf_counter() - began)
    return slowest_s


if __name__ == "__main__":
    if sys.argv[1:] == ["spin"]:
        print(_spin_cpu_share())
        sys.exit()
    roomy = cores() >= ROOMY_CORES
    print(f"{cores():.1f} cores, {patience():.1f} times slower than calm", file=sys.stderr)
    sys.exit(0 if sys.argv[1:] == ["roomy"] and roomy else 1)
