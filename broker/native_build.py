"""Compiles what the broker spends its time in, with mypyc: from the same source, by the same types.

    HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 pip wheel .        needs a C compiler and Python's headers

With that variable hatchling calls `NativeBuild`; without it the wheel is pure Python. Both do the
same, and pass the same tests (`make native-test`). docs/adr/0020 has what mypyc does differently.
"""

import io
import os
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from mypyc.build import mypycify
from pybind11.setup_helpers import ParallelCompile, naive_recompile
from setuptools import Distribution
from setuptools.command.build_ext import build_ext

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
    "broker/latermq_broker/deferred.py",
    "broker/latermq_broker/errors.py",
    "broker/latermq_broker/pump/pump.py",
)
PURE: Final = (  # stay as they are
    "__init__.py",
    "delivery/leases/lease.py",  # attributes made by a function: `Delivery`
    "store/directory.py",  # leaves a `with` by `break`
    "store/files.py",  # a subclass of mmap
    "schedule/run_merge.py",
    "transport/grpcio.py",  # coroutines; the reference, not what is fast
    "transport/lean.py",
    "services/wire/wire_stored.py",  # cached properties: compiled, they are computed each time
    # generators that await
    "services/auth/guard.py",
    "services/standard/health.py",
    "services/call/late_elements.py",
    "services/standard/reflection.py",
    "services/clients/session.py",
    "services/clients/telemetry.py",
)
PLAIN: Final = (  # folders below that stay as they are: what operators ask for, not what is fast
    "broker/latermq_broker/services/admin",
    "broker/latermq_broker/services/v1",
    "broker/latermq_broker/store/offline",
)
SEARCHED: Final = ("broker", "client", "proto")  # for imports
OPTIONS: Final = ("--config-file=", "--explicit-package-bases", "--ignore-missing-imports",
                  "--follow-imports=silent")  # fmt: skip
LIBRARY: Final = "latermq_native"
UNSUPPORTED: Final = "Unsupported"  # a warning of mypyc
SUFFIX: Final = ".so"


def sources(root: Path) -> list[str]:
    """What is compiled, below `root`."""
    files = [path for room in ROOMS for path in sorted((root / room).rglob("*.py"))]
    names = [str(path.relative_to(root)) for path in files]
    return [
        *MODULES,
        *(name for name in names if not (name.endswith(PURE) or name.startswith(PLAIN))),
    ]


def compile_all(root: Path, target: Path) -> list[Path]:
    """The library and the modules made in `target`/lib, each where its package would be."""
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
        command = build_ext(Distribution({"name": LIBRARY, "ext_modules": extensions}))
        command.build_lib = str(target / "lib")
        command.build_temp = str(target / "objects")
        command.ensure_finalized()
        command.run()
    return sorted((target / "lib").rglob(f"*{SUFFIX}"))


class NativeBuild(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # what is edited must be what runs
            return
        self._made = tempfile.TemporaryDirectory(prefix="latermq-native-")
        target = Path(self._made.name)
        for path in compile_all(Path(self.root), target):
            build_data["force_include"][str(path)] = str(path.relative_to(target / "lib"))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._made.cleanup()
