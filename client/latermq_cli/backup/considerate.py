"""Keeps a backup out of the way of the broker whose files it copies, on the same machine.

A send that meets a busy core or a disk that syncs 16 MiB takes four times as long at its 99th
percentile (`make bench-backup`). So the copy takes the cores when nobody else wants them, and what
it reads, writes and reads again goes by in slices at an even pace. A slice is small: a kernel that
is not preemptible, as a server's often is, lends its core for the whole of a read, and a megabyte
at a time doubled that percentile.
"""

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final

from latermq_cli import clock

SLICE_BYTES: Final = 128 << 10
SYNCED_SLICES: Final = 8  # in one sync of what is written
BEHIND_S_MAX: Final = 0.1  # that is made up for; more at full speed would be no even pace

Rest = Callable[[int], None]  # called with the bytes of each slice that was moved


class Pace:
    """Sleeps after each slice, so that no more bytes a second are moved."""

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._next_s = clock.monotonic_s()

    def rest(self, count: int) -> None:
        """Sleep until `count` more bytes may have been moved."""
        now_s = clock.monotonic_s()
        self._next_s = max(self._next_s, now_s - BEHIND_S_MAX) + count / self._rate
        if self._next_s > now_s:
            clock.sleep(self._next_s - now_s)


@contextmanager
def in_idle_time() -> Iterator[Executor]:
    """Give a thread that runs when nobody else wants its core (Linux: SCHED_IDLE).

    A thread of its own, as not everybody may be asked back from there.
    """
    with ThreadPoolExecutor(1, "backup", initializer=_be_idle) as thread:
        yield thread


def _be_idle() -> None:
    if sys.platform == "linux":
        with suppress(OSError):  # a container may forbid it
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
