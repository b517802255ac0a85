"""What tests need from other languages' registries: made once in `.cache`, by their own tools.

A directory of sources is copied there and built; packages come unmodified, and nothing is written
into the source tree. Tests run in several processes: one of them builds, the others wait for it.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from support.machine import patient

CACHE: Final = Path(__file__).parents[2] / ".cache"
BUILT: Final = ".built"  # beside a copy that is built: the digest of what it is built from
BUILD_S_MAX: Final = 600.0  # on a calm machine
BUILD_TIMEOUT_S: Final = patient(BUILD_S_MAX)
SAID_CHARACTERS_MAX: Final = 300

Words = tuple[str, ...]


class UnavailableError(Exception):
    """This machine cannot build or run it; the text says why."""


def build(
    here: Path,
    sources: Path,
    tools: Sequence[str],
    commands: Sequence[Words],
    timeout_s: float = BUILD_TIMEOUT_S,
    beside: str = "",
) -> None:
    """Have the sources built in `here`, a directory of the cache, if they were not yet.

    Args:
        commands: run there, after the sources were copied.
        beside: what else they are built from, as `checkout` names it.
    Raises:
        UnavailableError: a tool is missing, or a command failed or took longer than `timeout_s`.
    """
    for tool in tools:
        if shutil.which(tool) is None:
            raise UnavailableError(f"{here.name}: no {tool} on this machine")
    here.parent.mkdir(parents=True, exist_ok=True)
    with here.with_name(f"{here.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        digest, mark = _digest(sources, beside), here / BUILT
        if not (mark.exists() and mark.read_text() == digest):
            shutil.copytree(sources, here, dirs_exist_ok=True)
            for words in commands:
                _run(words, here, timeout_s)
            mark.write_text(digest)


def checkout(path: Path) -> str:
    """Name a directory of sources and what is checked out there, if git knows it."""
    words = ("git", "-C", str(path), "rev-parse", "HEAD")
    try:
        head = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:  # no git
        head = ""
    return f"{path.resolve()} {head.strip()}"


def _digest(sources: Path, beside: str) -> str:
    digest = hashlib.sha256(beside.encode())
    for path in sorted(sources.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _run(words: Words, here: Path, timeout_s: float) -> None:
    """Raises UnavailableError with the end of what it said."""
    try:
        subprocess.run(
            words,
            cwd=here,
            env={**os.environ, "NO_UPDATE_NOTIFIER": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{words[0]}: not done after {timeout_s:.0f} s") from error
    except subprocess.CalledProcessError as error:
        said = str(error.stdout).strip()[-SAID_CHARACTERS_MAX:]
        raise UnavailableError(f"{' '.join(words[:2])} failed: {said}") from error
