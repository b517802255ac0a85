"""A disk that hangs for one process: what it calls waits until the disk is mended, or it ends.

A thread that waits so cannot be told to stop, as one that hangs in the kernel.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).with_name("hanging_disk.c")


class HangingDisk:
    """Skips the test where there is no C compiler.

    Args:
        directory: for what is compiled, and what says that it hangs.
    """

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler")
        library = directory / "hanging_disk.so"
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self._said = directory / "hangs"
        self.prefix: Final = ("env", f"LD_PRELOAD={library}", f"HANGING_DISK={self._said}")

    def hang(self, call: str) -> None:
        """Have `fdatasync` or `pwrite` not return."""
        said = self._said.with_suffix(".new")
        said.write_text(call, encoding="utf-8")
        os.replace(said, self._said)

    def mend(self) -> None:
        self._said.unlink()
