"""Official clients of other languages: what they need, how they are built, how they are run.

Each language has a directory beside this file with a program that speaks the lines of
`official_process` (`send` takes `deliver_at_ms`). It is copied to `.cache/interop/` and built
there, once: the package comes from the language's own registry, unmodified, and nothing is written
into the source tree. Tests run in several processes: one of them builds, the others wait for it.
"""

import fcntl
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.machine import patient

HERE: Final = Path(__file__).parent
CACHE: Final = HERE.parents[1] / ".cache" / "interop"
BUILT: Final = ".built"  # beside a copy that is built: the digest of the sources it is built from
BUILD_S_MAX: Final = 600.0  # on a calm machine
BUILD_TIMEOUT_S: Final = patient(BUILD_S_MAX)
SAID_CHARACTERS_MAX: Final = 300


class UnavailableError(Exception):
    """This machine cannot build or run the client; the text says why."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """`build` runs in the copy's directory, `run` from anywhere: `{here}` is that directory."""

    tools: tuple[str, ...]
    build: tuple[tuple[str, ...], ...]
    run: tuple[str, ...]
    version: tuple[str, str]  # a file beside the built program, and a pattern in it


RECIPES: Final = {
    "node": Recipe(
        tools=("node", "npm"),
        build=(("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"),),
        run=("node", "{here}/client.js"),
        version=("node_modules/rocketmq-client-nodejs/package.json", r'"version": "([^"]+)"'),
    ),
    "go": Recipe(
        tools=("go",),
        build=(("go", "build", "-mod=mod", "-o", "client", "."),),
        run=("{here}/client",),
        version=("go.mod", r"rocketmq-clients/golang/v5 v(\S+)"),
    ),
    "java": Recipe(
        tools=("java", "javac", "mvn"),
        build=(
            ("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"),
            ("javac", "-cp", "lib/*", "-d", "classes", "Client.java"),
        ),
        run=("java", "-Duser.home={here}", "-cp", "{here}/classes:{here}/lib/*", "Client"),
        version=("pom.xml", r"rocketmq-client-java</artifactId>\s*<version>([^<]+)"),
    ),
    "rust": Recipe(
        tools=("cargo",),
        build=(("cargo", "build", "--quiet", "--release"),),
        run=("{here}/target/release/client",),
        version=("Cargo.toml", r'rocketmq = "=([^"]+)"'),
    ),
}


def command(language: str, timeout_s: float = BUILD_TIMEOUT_S) -> list[str]:
    """The words that start this language's client, built if it was not yet.

    Raises:
        UnavailableError: a tool is missing, or the build failed or took longer than `timeout_s`.
    """
    recipe, here = RECIPES[language], CACHE / language
    for tool in recipe.tools:
        if shutil.which(tool) is None:
            raise UnavailableError(f"{language}: no {tool} on this machine")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{language}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _bring_up_to_date(language, here, recipe, timeout_s)
    return [word.replace("{here}", str(here)) for word in recipe.run]


def _bring_up_to_date(language: str, here: Path, recipe: Recipe, timeout_s: float) -> None:
    digest, built = _digest(HERE / language), here / BUILT
    if built.exists() and built.read_text() == digest:
        return
    shutil.copytree(HERE / language, here, dirs_exist_ok=True)
    for words in recipe.build:
        _build(words, here, timeout_s)
    built.write_text(digest)


def version(language: str) -> str:
    """Of the official client that is built."""
    if language == "python":
        return importlib.metadata.version("rocketmq-python-client")
    name, pattern = RECIPES[language].version
    found = re.search(pattern, (CACHE / language / name).read_text(encoding="utf-8"))
    assert found, f"{language}: no version in {name}"
    return found[1]


def _digest(sources: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(sources.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _build(words: tuple[str, ...], here: Path, timeout_s: float) -> None:
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
