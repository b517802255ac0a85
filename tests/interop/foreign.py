"""Official clients of other languages: what they need, how they are built, how they are run.

Each language has a directory beside this file with a program that speaks the lines of
`official_process` (`send` takes `deliver_at_ms`). It is built in `.cache/interop/`: the package
comes from the language's own registry; C++ has none, and takes a checkout of the clients' sources.
"""

import importlib.metadata
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support import built_once
from support.built_once import BUILD_S_MAX as BUILD_S_MAX
from support.built_once import BUILD_TIMEOUT_S
from support.built_once import UnavailableError as UnavailableError

HERE: Final = Path(__file__).parent
CACHE: Final = built_once.CACHE / HERE.name


@dataclass(frozen=True, slots=True)
class Recipe:
    """`build` runs in the copy's directory, `run` from anywhere: `{here}` is that directory.

    sources: the variable of the environment that names a checkout of the client, "" for a package.
    """

    tools: tuple[str, ...]
    build: tuple[tuple[str, ...], ...]
    run: tuple[str, ...]
    version: tuple[str, str]  # a file beside the built program, and a pattern in it
    sources: str = ""


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
    "cpp": Recipe(
        tools=("cmake", "g++", "protoc", "grpc_cpp_plugin"),
        build=(
            ("cmake", "-S", ".", "-B", "build"),
            ("cmake", "--build", "build", "--target", "driver", "--parallel", "2"),
        ),
        run=("{here}/build/driver",),
        version=("build/version", r"(.+)"),
        sources="ROCKETMQ_CLIENTS",
    ),
}


def command(language: str, timeout_s: float = BUILD_TIMEOUT_S) -> list[str]:
    """Return the words that start this language's client, built if it was not yet.

    Raises:
        UnavailableError: as `build` says.
    """
    recipe = RECIPES[language]
    beside = ""
    if recipe.sources:
        named = os.environ.get(recipe.sources, "")
        if not (named and Path(named, language).is_dir()):
            raise UnavailableError(f"{language}: {recipe.sources} names no checkout of the clients")
        beside = built_once.checkout(Path(named))
    here = CACHE / language
    built_once.build(here, HERE / language, recipe.tools, recipe.build, timeout_s, beside)
    return [word.replace("{here}", str(here)) for word in recipe.run]


def version(language: str) -> str:
    """Return the version of the official client that is built."""
    if language == "python":
        return importlib.metadata.version("rocketmq-python-client")
    name, pattern = RECIPES[language].version
    found = re.search(pattern, (CACHE / language / name).read_text(encoding="utf-8"))
    assert found, f"{language}: no version in {name}"
    return found[1]
