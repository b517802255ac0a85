"""Sets the wall clock of processes that are started meanwhile, and of nobody else.

A small library, compiled once, stands before the C library's `clock_gettime`: what it adds to
CLOCK_REALTIME is in a file that the test writes. The monotonic clock is left alone, as a machine's
is when somebody sets its clock.
"""

import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const long long *ahead_s;

__attribute__((constructor)) static void map_offset(void) {
    int fd = open(getenv("WALL_CLOCK_AHEAD"), O_RDONLY);
    void *page = mmap(0, sizeof *ahead_s, PROT_READ, MAP_SHARED, fd, 0);
    if (fd < 0 || page == MAP_FAILED) abort();
    ahead_s = page;
}

int clock_gettime(clockid_t id, struct timespec *at) {
    long result = syscall(SYS_clock_gettime, id, at);
    if (result == 0 && id == CLOCK_REALTIME && ahead_s) at->tv_sec += *ahead_s;
    return result;
}
"""


class WallClock:
    """Sets the clock of the processes that are started with its `environment`."""

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("needs a C compiler to stand before the clock")
        self._ahead = directory / "ahead"
        self.set_ahead(0)
        source, library = directory / "wall_clock.c", directory / "wall_clock.so"
        source.write_text(SOURCE, encoding="ascii")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
        self.environment = {"WALL_CLOCK_AHEAD": str(self._ahead), "LD_PRELOAD": str(library)}

    def preload(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have all processes that are started from now on begin with it."""
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)

    def set_ahead(self, seconds: int) -> None:
        """Set how far they are ahead of this machine's clock; at once, for those that run too."""
        fd = os.open(self._ahead, os.O_RDWR | os.O_CREAT)
        try:
            os.pwrite(fd, struct.pack("=q", seconds), 0)
        finally:
            os.close(fd)
