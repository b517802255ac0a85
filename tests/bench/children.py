"""How a process that a benchmark starts finds these tests, and the build that is measured."""

import os
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parents[1]


def environment() -> dict[str, str]:
    """Ours, with the tests in front of what is searched for imports."""
    searched = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(searched)}
