"""What else is on a disk, and grows: the fault of a disk that fills."""

import shutil
import threading
from pathlib import Path
from typing import Final, Self

from support.machine import patient

STEP_BYTES: Final = 1 << 19
STEP_S: Final = patient(0.7)


class Ballast:
    """Grows from entering it on until `free_bytes` are free, and is gone when it is left."""

    def __init__(self, disk: Path, free_bytes: int) -> None:
        self._disk = disk
        self._file = disk / "ballast"
        self.free_bytes = free_bytes
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._grow)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._file.unlink()

    def free_percent(self) -> float:
        usage = shutil.disk_usage(self._disk)
        return usage.free / usage.total * 100

    def _grow(self) -> None:
        with self._file.open("wb", buffering=0) as file:
            while not self._over.wait(STEP_S):
                room = shutil.disk_usage(self._disk).free - self.free_bytes
                if room > 0:
                    file.write(bytes(min(room, STEP_BYTES)))
