"""Make the stubs in `proto/latermq_proto` from the .proto files, or check that they are current.

    python proto/generate.py            # write them
    python proto/generate.py --check    # exit 1 and name the files that differ

The compiler is pinned: generated code refuses runtimes older than itself, so it has to be as old
as the oldest protobuf we support. It lives in an environment of its own, made on first use under
`.cache/`, because no other tool here can be pinned that far back. What protoc writes assumes the
default descriptor pool and top-level packages; `rewrite` moves both into `latermq_proto`.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from hashlib import sha256
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
COMPILER: Final = HERE / "compiler.txt"
PACKAGE: Final = HERE / "latermq_proto"
ENVIRONMENT: Final = HERE.parent / ".cache" / "proto-venv"
OWN_ROOTS: Final = ("apache", "latermq")
WELL_KNOWN: Final = ("google/protobuf/duration.proto", "google/protobuf/timestamp.proto")
GENERATED: Final = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py")

# `from apache.rocketmq.v2 import x_pb2 as …`, and the two well-known types, not protobuf itself.
STUB_IMPORT: Final = re.compile(
    r"^from ((?:apache|latermq)\.[\w.]+|google\.protobuf) import (\w+_pb2) as ", re.MULTILINE
)
MODULE_NAME: Final = re.compile(
    r"(BuildTopDescriptorsAndMessages\(DESCRIPTOR, ')(?=apache\.|latermq\.|google\.)"
)
# Enum values are plain ints at run time; the stubs would only take the enum's class or its name.
ENUM_ARGUMENT: Final = re.compile(r"_Union\[([\w.]+), str\]")
DEFAULT_POOL: Final = "_descriptor_pool.Default()"
POOL_IMPORT: Final = "from google.protobuf import descriptor_pool as _descriptor_pool\n"


def compiler() -> Path:
    """Return the Python of the pinned compiler's environment, building it when it is not there."""
    python = ENVIRONMENT / "bin" / "python"
    mark = ENVIRONMENT / f"made-of-{sha256(COMPILER.read_bytes()).hexdigest()[:16]}"  # written last
    if not mark.exists():
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
        subprocess.run(
            [
                python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                "--require-hashes", "--requirement", COMPILER,
            ],
            check=True,
        )  # fmt: skip
        mark.touch()
    return python


def compile_protos(python: Path, target: Path) -> None:
    """Run protoc over our files and the well-known types they use, into `target`."""
    sources = sorted(
        path.relative_to(HERE).as_posix()
        for root in OWN_ROOTS
        for path in HERE.glob(f"{root}/**/*.proto")
    )
    outputs = [f"--python_out={target}", f"--pyi_out={target}"]
    protoc: list[str | Path] = [python, "-W", "ignore", "-m", "grpc_tools.protoc", f"-I{HERE}"]
    subprocess.run([*protoc, *outputs, *sources, *WELL_KNOWN], check=True)
    subprocess.run([*protoc, f"--grpc_python_out={target}", *sources], check=True)
    for stub in target.rglob("*_pb2_grpc.py"):
        if "class " not in stub.read_text(encoding="utf-8"):
            stub.unlink()  # a file without a service has nothing to call


def rewrite(text: str) -> str:
    """Return one generated module moved into `latermq_proto` and its private pool."""

    def import_ours(match: re.Match[str]) -> str:
        package, module = match.group(1), match.group(2)
        return f"from latermq_proto.{package} import {module} as "

    text = STUB_IMPORT.sub(import_ours, text)
    text = ENUM_ARGUMENT.sub(r"_Union[\1, str, int]", text)
    text = MODULE_NAME.sub(r"\1latermq_proto.", text)
    if DEFAULT_POOL in text:
        text = text.replace(POOL_IMPORT, "from latermq_proto._pool import POOL as _POOL\n")
        text = text.replace(DEFAULT_POOL, "_POOL")
    assert "_descriptor_pool" not in text  # a use that this script does not know
    return text


def generate(target: Path) -> None:
    """Fill `target` with every generated file and the package markers between them."""
    compile_protos(compiler(), target)
    for pattern in GENERATED:
        for path in target.rglob(pattern):
            path.write_text(rewrite(path.read_text(encoding="utf-8")), encoding="utf-8")
            for folder in path.relative_to(target).parents[:-1]:
                (target / folder / "__init__.py").touch()


def differences(fresh: Path, committed: Path) -> list[str]:
    """Return the relative names of generated files that are missing, stale or left over."""
    names = {
        path.relative_to(root).as_posix()
        for root in (fresh, committed)
        for pattern in GENERATED
        for path in root.rglob(pattern)
    }

    def content(root: Path, name: str) -> bytes | None:
        path = root / name
        return path.read_bytes() if path.exists() else None

    return sorted(name for name in names if content(fresh, name) != content(committed, name))


def main(arguments: list[str]) -> int:
    """Return 0, or with --check 1 when a committed file is not what would be generated."""
    parser = argparse.ArgumentParser(description="Make the protobuf stubs, or check them.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on drift")
    check: bool = parser.parse_args(arguments).check
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        generate(fresh)
        stale = differences(fresh, PACKAGE)
        if check:
            for name in stale:
                print(f"stale: proto/latermq_proto/{name}", file=sys.stderr)
            if stale:
                print("run `make proto` and commit the result", file=sys.stderr)
            return 1 if stale else 0
        for name in stale:
            if not (fresh / name).exists():
                os.remove(PACKAGE / name)
        shutil.copytree(fresh, PACKAGE, dirs_exist_ok=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
