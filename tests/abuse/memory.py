"""What a process holds, and the most it held since it was last asked to forget."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

MIB: Final = 1 << 20
SAMPLE_S: Final = 0.02


def status_mib(pid: int, name: str) -> float:
    """A line of /proc/PID/status, such as VmRSS."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1_024
    raise LookupError(f"process {pid} has no {name}")


class Peak:
    """The most resident memory of a process while the block runs.

    The kernel keeps it, where it lets us reset it; samples stand in where it does not.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._most_mib = 0.0
        self._kernel_keeps = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    @property
    def mib(self) -> float:
        if self._kernel_keeps:
            with suppress(OSError, LookupError):  # gone: what was seen by then
                self._most_mib = max(self._most_mib, status_mib(self._pid, "VmHWM"))
        return self._most_mib

    def __enter__(self) -> Self:
        with suppress(OSError):
            Path(f"/proc/{self._pid}/clear_refs").write_text("5", encoding="ascii")
            self._kernel_keeps = True
        self._most_mib = status_mib(self._pid, "VmRSS")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            with suppress(OSError, LookupError):
                self._most_mib = max(self._most_mib, status_mib(self._pid, "VmRSS"))
