"""What `make dist` or `make published` built, and environments with it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from support.machine import patient

ROOT: Final = Path(__file__).resolve().parents[2]
PUBLISHED: Final = os.environ.get("PUBLISHED")  # where, if not what `make dist` built
DIST: Final = ROOT / (PUBLISHED or "dist")
WHEELS: Final = sorted(DIST.glob("*.whl"))


def kind(wheel: Path) -> str:
    return "pure" if wheel.name.endswith("-none-any.whl") else "compiled"


class Environment:
    """A virtual environment with what pip takes for a requirement, and nothing else."""

    def __init__(self, folder: Path, wheel: Path, extras: str = "", *tools: str) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        subprocess.run(
            [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install",
             "--quiet", "--disable-pip-version-check", "--no-require-hashes",
             "--constraint", ROOT / "constraints.txt", f"{wheel}{extras}", *tools], check=True,
        )  # fmt: skip

    def run(
        self, command: str, *words: object, code: int = 0, cwd: Path | None = None,
        **variables: str,
    ) -> str:  # fmt: skip
        """Run a command of it; what it said, on both streams."""
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        given = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        ended = subprocess.run(
            [self.folder / "bin" / command, *map(str, words)], cwd=cwd or self.folder,
            env={**given, "PATH": path, **variables}, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=patient(180),
        )  # fmt: skip
        assert ended.returncode == code, ended.stdout
        return ended.stdout

    def installed(self) -> set[str]:
        found = self.folder.glob("lib/python*/site-packages/*.dist-info")
        return {each.name.partition("-")[0] for each in found}
