"""How a process that a benchmark starts finds these tests, and the build that is measured."""

import json
import os
import subprocess
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parents[1]


def environment() -> dict[str, str]:
    """Ours, with the tests in front of what is searched for imports."""
    searched = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(searched)}


def figures_of(sends: "subprocess.Popen[str]") -> dict[str, float]:
    """Ask a process that sends for its figures since the last time."""
    assert sends.stdin is not None
    assert sends.stdout is not None
    sends.stdin.write("\n")
    sends.stdin.flush()
    line = sends.stdout.readline()
    if not line:
        raise RuntimeError("the sends have ended")
    figures: dict[str, float] = json.loads(line)
    return figures
