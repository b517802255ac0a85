"""The package as a user of mypy sees it: installed, strictly, without our configuration."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import latermq
from support.machine import patient

HERE: Final = Path(__file__).parent
CACHE: Final = HERE.parents[2] / ".mypy_cache" / "typed_user"
PUBLIC_MAX: Final = 26


def checked(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={CACHE}"]
    return subprocess.run(
        [*command, str(file)],
        capture_output=True,
        text=True,
        check=False,
        cwd=file.parent,
        timeout=patient(200),
    )


@pytest.mark.timeout(patient(450))
def test_a_typed_user_is_understood(tmp_path: Path) -> None:
    done = checked(HERE / "typed_user.py")
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "wrong_user.py"
    wrong.write_text("import latermq\n\nlatermq.sync.connect().send('orders', 'text')\n")
    told = checked(wrong).stdout
    assert re.search(r'has incompatible type "str"; expected "bytes"', told), (
        "and it is not all Any"
    )


def test_the_public_names_are_few_and_there() -> None:
    assert len(latermq.__all__) <= PUBLIC_MAX
    assert all(hasattr(latermq, name) for name in latermq.__all__)


def test_a_public_name_brings_only_its_module() -> None:
    asked = "import sys, latermq; latermq.errors; print('latermq.client' in sys.modules)"
    asked += "; latermq.connect; print('latermq.client' in sys.modules, 'Tls' in dir(latermq))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        latermq.nothing  # type: ignore[attr-defined]  # noqa: B018
