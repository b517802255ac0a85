"""What README and guide say, of the wheel: by their tests, which the sdist brings."""

import shutil
import tarfile
from pathlib import Path
from typing import Final

import pytest

from support.published import DIST, Environment

PAGES: Final = ("test_readme.py", "test_first_worker.py", "test_guide.py")
EXTRAS: Final = "[test,idempotency,redis,otel]"
TOOLS: Final = (  # what the examples need, and what runs them
    "aiosqlite", "anyio", "django", "fastapi", "flask", "flask-sqlalchemy", "httpx", "hypothesis",
    "opentelemetry-sdk", "pydantic", "pytest-timeout", "pytest-xdist", "sqlalchemy[asyncio]",
)  # fmt: skip


@pytest.mark.timeout(300)
def test_readme_and_guide_hold_for_what_is_installed(wheel: Path, tmp_path: Path) -> None:
    """Beside it there is no other copy of the packages."""
    [archive] = DIST.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        sources.extractall(tmp_path, filter="data")
    [project] = tmp_path.iterdir()
    for name in ("broker", "client", "proto"):
        shutil.rmtree(project / name)
    reader = Environment(tmp_path / "reader", wheel, EXTRAS, *TOOLS)
    assert str(reader.folder) in reader.run("python", "-c", "import latermq; print(latermq)")
    pages = [f"tests/integration/{name}" for name in PAGES]
    said = reader.run("python", "-m", "pytest", "-q", "--numprocesses=auto", *pages, cwd=project)
    assert " passed" in said
    assert "skipped" not in said
