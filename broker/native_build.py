"""Compiles what the broker spends its time in, with mypyc: from the same source, by the same types.

    pip wheel .                       compiled where a C compiler and Python's headers are
    LATERMQ_NATIVE=1 pip wheel .      or not at all
    LATERMQ_NATIVE=0 pip wheel .      pure Python

Both do the same, and pass the same tests (`make native-test`). docs/adr/0020 has what mypyc does
differently.
"""

import io
import os
import shlex
import shutil
import sysconfig
import tempfile
from contextlib import chdir, redirect_stdout
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ASKED: Final = "LATERMQ_NATIVE"
COMPILERS: Final = ("mypy==2.4.1", "pybind11>=3", "setuptools>=80", "types-protobuf")
ROOMS: Final = (  # folders whose .py files are compiled, those below included
    "broker/latermq_broker/store",
    "broker/latermq_broker/delivery",
    "broker/latermq_broker/schedule",
    "broker/latermq_broker/engine",
    "broker/latermq_broker/services",
    "broker/latermq_broker/catalog",
    "broker/latermq_broker/transport",
    "proto/latermq_h2",
)
MODULES: Final = (
    "broker/latermq_broker/clock.py",
    "broker/latermq_broker/deferred.py",
    "broker/latermq_broker/errors.py",
    "broker/latermq_broker/pump/commit_waits.py",
    "broker/latermq_broker/pump/disk_work.py",
    "broker/latermq_broker/pump/pump.py",
    "broker/latermq_broker/pump/standstill.py",
)
PURE: Final = (  # stay as they are
    "__init__.py",
    "store/directory.py",  # leaves a `with` by `break`
    "store/files.py",  # a subclass of mmap
    "schedule/run_merge.py",
    "store/offline/inspect.py",  # for operators, and run with `python -m`
    "store/offline/repair.py",
    "store/offline/scrub.py",
    "transport/grpcio.py",  # coroutines; the reference, not what is fast
    "transport/lean.py",
    "services/wire/wire_stored.py",  # cached properties: compiled, they are computed each time
    # generators that await
    "services/auth/guard.py",
    "services/standard/health.py",
    "services/call/late_elements.py",
    "services/call/lasting.py",
    "services/standard/reflection.py",
    "services/clients/session.py",
    "services/clients/telemetry.py",
)
PLAIN: Final = (  # folders that stay as they are: what operators ask for
    "broker/latermq_broker/services/admin",
    "broker/latermq_broker/services/scheduling",
    "broker/latermq_broker/services/v1",
)
SEARCHED: Final = ("broker", "client", "proto")  # for imports
OPTIONS: Final = ("--config-file=", "--explicit-package-bases", "--ignore-missing-imports",
                  "--follow-imports=silent")  # fmt: skip
LIBRARY: Final = "latermq_native"
MODULE_PREFIX: Final = "__native_latermq_"  # of the C files of modules
UNITS: Final = 24  # files that C compilers get
UNSUPPORTED: Final = "Unsupported"  # a warning of mypyc
SUFFIX: Final = ".so"


def sources(root: Path) -> list[str]:
    """List what is compiled, below `root`."""
    files = [path for room in ROOMS for path in sorted((root / room).rglob("*.py"))]
    names = [str(path.relative_to(root)) for path in files]
    return [
        *MODULES,
        *(name for name in names if not (name.endswith(PURE) or name.startswith(PLAIN))),
    ]


def missing() -> str:
    """Name what a compiled wheel needs and this machine lacks; "" when nothing."""
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"a C compiler ({compiler})"
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return "" if headers.exists() else f"Python's headers ({headers})"


def compiles() -> bool:
    """Decide whether the wheel is compiled. RuntimeError: it must be, and cannot."""
    asked = os.environ.get(ASKED, "")
    if asked not in {"", "0", "1"}:
        raise RuntimeError(f"{ASKED}={asked}: must be 0, 1 or not set")
    lacking = missing()
    if asked == "1" and lacking:
        raise RuntimeError(f"{ASKED}=1, and {lacking} is missing")
    return asked != "0" and not lacking


def joined(sources: list[Path], directory: Path) -> list[str]:
    """Join the C of modules to few files, as each begins with a megabyte of declarations.

    They are of like sizes, so that cores that take one each are done together.
    """
    modules = [each for each in sources if each.name.startswith(MODULE_PREFIX)]
    units: list[list[Path]] = [[] for _ in range(UNITS)]
    sizes = [0] * UNITS
    for module in sorted(modules, key=lambda each: each.stat().st_size, reverse=True):
        least = sizes.index(min(sizes))
        units[least].append(module)
        sizes[least] += module.stat().st_size
    names = [str(each) for each in sources if each not in modules]
    for number, unit in enumerate(units):
        path = directory / f"unit_{number}.c"
        path.write_text("".join(f'#include "{each.name}"\n' for each in unit), encoding="utf-8")
        names.append(str(path))
    return names


def compile_all(root: Path, target: Path) -> list[Path]:
    """Make the library and the modules in `target`/lib, each where its package would be."""
    from mypyc.build import mypycify  # here, not above: what a pure wheel needs none of
    from pybind11.setup_helpers import ParallelCompile, naive_recompile
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    os.environ["MYPYPATH"] = os.pathsep.join(SEARCHED)
    with chdir(root), ParallelCompile(needs_recompile=naive_recompile):
        with redirect_stdout(io.StringIO()) as said:
            extensions = mypycify(
                [*OPTIONS, f"--cache-dir={target / 'cache'}", *sources(root)],
                group_name=LIBRARY,
                multi_file=True,
                opt_level="2",
                debug_level="0",
                target_dir=str(target / "c"),
            )
        faults = [line for line in said.getvalue().splitlines() if UNSUPPORTED in line]
        if faults:  # it goes on without what it names
            raise RuntimeError("\n".join(faults))
        library = max(extensions, key=lambda extension: len(extension.sources))
        library.sources = joined([Path(each) for each in library.sources], target / "c")
        command = build_ext(Distribution({"name": LIBRARY, "ext_modules": extensions}))
        command.parallel = True  # beside it, 230 modules that only ask the library
        command.build_lib = str(target / "lib")
        command.build_temp = str(target / "objects")
        command.ensure_finalized()
        command.run()
    return sorted((target / "lib").rglob(f"*{SUFFIX}"))


class NativeBuild(BuildHookInterface[Any]):
    def dependencies(self) -> list[str]:
        return list(COMPILERS) if compiles() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # what is edited must be what runs
            return
        if not compiles():
            why = missing() or f"{ASKED}=0"
            self.app.display_warning(f"a wheel of pure Python, at half the speed: {why}")
            return
        target = Path(self._directory.name)
        for path in compile_all(Path(self.root), target):
            build_data["force_include"][str(path)] = str(path.relative_to(target / "lib"))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    @cached_property
    def _directory(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="latermq-native-")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if "_directory" in vars(self):
            self._directory.cleanup()
