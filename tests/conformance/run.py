"""HTTP/2 conformance of the lean transport, by tools that are not ours.

    python tests/conformance/run.py

h2spec (strict) in clear text and over TLS, on one port, against a server with one plain route. A
tool that is neither installed nor can be built here is reported as skipped, and fails nothing.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from latermq_broker.config import ServerConfig
from latermq_broker.config_transport import TlsConfig
from latermq_broker.errors import ConfigError
from latermq_broker.transport.lean import LeanServer

ROOT: Final = Path(__file__).resolve().parents[2]
TOOLS: Final = ROOT / ".cache" / "bin"
H2SPEC: Final = "github.com/summerwind/h2spec/cmd/h2spec@latest"
BUILD_TIMEOUT_S: Final = 300
RUN_TIMEOUT_S: Final = 300
SUMMARY: Final = re.compile(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed")
PLAIN: Final = {b"/": b"LaterMQ " * 8}
NOT_HERE: Final = (
    ("gRPC interop client", "needs a TestService, which the broker does not have"),
    ("connectconformance", "needs a ConformanceService, which the broker does not have"),
)


def main() -> int:
    failed = False
    h2spec = tool("h2spec", H2SPEC)
    with tempfile.TemporaryDirectory() as directory:
        for name, tls, flags in (("clear text", False, []), ("TLS", True, ["-t", "-k"])):
            case = f"h2spec, strict, {name}"
            if h2spec is None:
                say(case, "skipped: neither h2spec nor Go is installed")
                continue
            try:
                with served(Path(directory), tls) as port:
                    failed |= not run_h2spec(case, h2spec, port, flags)
            except ConfigError as error:
                say(case, f"skipped: {error}")
    for case, why in NOT_HERE:
        say(case, f"skipped: {why}")
    return 1 if failed else 0


def run_h2spec(case: str, h2spec: str, port: int, flags: list[str]) -> bool:
    command = [h2spec, "--strict", "--host", "127.0.0.1", "--port", str(port), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    found = SUMMARY.search(done.stdout)
    passed = done.returncode == 0 and found is not None and found[1] == found[2]
    say(case, found[0] if found else "no summary")
    if not passed:
        print(done.stdout, done.stderr, sep="\n")
    return passed


def tool(name: str, module: str) -> str | None:
    """A program's path: installed, or built now; None where that cannot be done."""
    found = shutil.which(name) or shutil.which(name, path=str(TOOLS))
    go = shutil.which("go")
    if found or not go:
        return found
    TOOLS.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"GOBIN": str(TOOLS)}
    try:
        subprocess.run(
            [go, "install", module], env=environment, check=True, capture_output=True,
            timeout=BUILD_TIMEOUT_S,
        )  # fmt: skip
    except (subprocess.SubprocessError, OSError) as error:
        say(name, f"cannot be built: {error}")
    return shutil.which(name, path=str(TOOLS))


@contextmanager
def served(directory: Path, tls: bool) -> Iterator[int]:
    """A server in a thread of its own; its port. Raises ConfigError: it cannot have TLS."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:

        async def start() -> LeanServer:
            config = ServerConfig(listen="127.0.0.1:0")
            server = LeanServer(
                {}, config, tls=TlsConfig(enabled=tls), data_dir=directory, plain=PLAIN
            )
            await server.start()
            return server

        server = asyncio.run_coroutine_threadsafe(start(), loop).result()
        yield int(server.address.rpartition(":")[2])
        asyncio.run_coroutine_threadsafe(server.drain(0), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def say(case: str, result: str) -> None:
    print(f"{case:<32} {result}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
