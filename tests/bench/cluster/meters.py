"""What processes take, read from outside."""

import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

PROPORTIONAL: Final = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)
LOOK_S: Final = 0.02
CLOCK_OF_PROCESS: Final = 2  # Linux: the clock of a process's CPU time, beside its number


def used_s(pids: Iterable[int]) -> float:
    """Return the CPU time that processes have used, to the nanosecond: /proc has steps of 10 ms."""
    return sum(time.clock_gettime(~pid << 3 | CLOCK_OF_PROCESS) for pid in pids)


def proportional_mib(pid: int) -> float:
    """Return the memory of a process, of pages that several have its part only."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    match = PROPORTIONAL.search(text)
    assert match is not None, text
    return int(match[1]) / 1_024


def wait(holds: Callable[[], bool], what: str, timeout_s: float, look_s: float = LOOK_S) -> None:
    """Wait until it holds. Raises RuntimeError: it took too long."""
    until_s = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > until_s:
            raise RuntimeError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(look_s)
