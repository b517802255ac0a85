"""What the operating system says of this process, under the names that every exporter uses.

Read from /proc; where there is none, as on macOS, nothing is told.
"""

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from latermq_broker.observability.exposition import Family

_SELF: Final = Path("/proc/self")
_STAT_UTIME: Final = 11  # fields of stat behind the name in parentheses, from 0
_STAT_STIME: Final = 12
_STAT_VSIZE: Final = 20
_STAT_RSS: Final = 21

CPU: Final = Family(
    "process_cpu_seconds_total", "counter", "Seconds of processor time that the broker has used."
)
RESIDENT: Final = Family(
    "process_resident_memory_bytes",
    "gauge",
    "Memory of the broker that is in RAM, mapped log included.",
)
VIRTUAL: Final = Family(
    "process_virtual_memory_bytes",
    "gauge",
    "Address space of the broker; mapped files count in full.",
)
OPEN_FILES: Final = Family(
    "process_open_fds", "gauge", "File descriptors the broker has open: connections and files."
)
FILES_MAX: Final = Family(
    "process_max_fds", "gauge", "File descriptors the broker may open (the soft limit)."
)


def process_figures() -> Iterator[tuple[Family, float]]:
    """Yield what is known of this process now."""
    try:
        fields = (_SELF / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
        open_files = len(os.listdir(_SELF / "fd"))
    except OSError:
        return
    ticks = os.sysconf("SC_CLK_TCK")
    yield CPU, (int(fields[_STAT_UTIME]) + int(fields[_STAT_STIME])) / ticks
    yield RESIDENT, int(fields[_STAT_RSS]) * os.sysconf("SC_PAGE_SIZE")
    yield VIRTUAL, int(fields[_STAT_VSIZE])
    yield OPEN_FILES, open_files
    yield FILES_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
