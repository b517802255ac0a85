"""Fill in the hashes of those versions that have none: `make hashes`.

Asks pip which wheel it would take on each platform below, and for a source archive where there is
no wheel; pip says so without installing anything. Where two far ends take one pure wheel, they are
enough. Versions that have hashes are left alone.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PINNED: Final = ("constraints.txt", "proto/compiler.txt")
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS: Final = (
    *(
        [f"manylinux_2_{minor}_{machine}" for minor in (17, 24, 26, 27, 28, 34)]
        for machine in ("x86_64", "aarch64")
    ),
    ["manylinux1_x86_64", "manylinux2010_x86_64"],  # older names: pip does not take them as well
    *([f"musllinux_1_{minor}_{machine}" for minor in (1, 2)] for machine in ("x86_64", "aarch64")),
    *([f"macosx_14_0_{machine}"] for machine in ("x86_64", "arm64")),
)
FOR_ALL: Final = "-none-any.whl"  # one wheel, for every Python and platform


def report(*arguments: str) -> dict[str, str]:
    """Map the files that such a `pip install` would take to their hashes; {}: there are none."""
    with tempfile.TemporaryDirectory() as nowhere:
        command = [
            sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
            "--dry-run", "--ignore-installed", "--no-deps", "--target", nowhere, "--report", "-",
        ]  # fmt: skip
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        return {}
    infos = [each["download_info"] for each in json.loads(done.stdout)["install"]]
    return {info["url"]: f"sha256:{info['archive_info']['hashes']['sha256']}" for info in infos}


def hashes_of(pin: str) -> list[str]:
    """Raises SystemExit: pip knows no file of this version."""

    def wheels(python: str, platform: Sequence[str]) -> dict[str, str]:
        names = [f"--platform={name}" for name in platform]
        return report("--only-binary=:all:", f"--python-version={python}", *names, pin)

    found = wheels(PYTHONS[0], PLATFORMS[0]) | wheels(PYTHONS[-1], PLATFORMS[-1])
    if not (len(found) == 1 and next(iter(found)).endswith(FOR_ALL)):
        for python, platform in product(PYTHONS, PLATFORMS):
            found |= wheels(python, platform)
    found = found or report("--no-build-isolation", f"--no-binary={pin.split('==')[0]}", pin)
    if not found:
        raise SystemExit(f"{pin}: pip finds no file of it")
    return sorted(set(found.values()))


def fill_in(file: Path) -> None:
    """Rewrite a file of versions. Raises SystemExit as `hashes_of` does."""
    entries = re.sub(r" \\\n", " ", file.read_text(encoding="utf-8")).splitlines()
    lines: list[str] = []
    for entry in entries:
        pin, *hashes = entry.split(" --hash=") if "==" in entry else [entry]
        pin, hashes = pin.rstrip(), [each.strip() for each in hashes]
        if "==" in pin and not pin.startswith("#") and not hashes:
            print(f"{pin} …", file=sys.stderr)
            hashes = hashes_of(pin)
        lines.append(" \\\n    --hash=".join([pin, *hashes]))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    for name in PINNED:
        fill_in(ROOT / name)


if __name__ == "__main__":
    main()
