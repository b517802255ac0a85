"""HTTP/2 conformance of the lean transport, by tools that are not ours.

    python tests/conformance/run.py

h2spec (strict) in clear text and over TLS, on one port, against a server with one plain route; the
interop client of grpc-go against a TestService; connectconformance against a ConformanceService. A
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

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from conformance.interop_service import METHODS  # noqa: E402
from latermq_broker.config.config import ServerConfig  # noqa: E402
from latermq_broker.config.server_transport import TlsConfig  # noqa: E402
from latermq_broker.errors import ConfigError  # noqa: E402
from latermq_broker.transport.lean import LeanServer  # noqa: E402

TOOLS: Final = ROOT / ".cache" / "bin"
H2SPEC: Final = "github.com/summerwind/h2spec/cmd/h2spec@latest"
BUILD_TIMEOUT_S: Final = 300
RUN_TIMEOUT_S: Final = 300
SUMMARY: Final = re.compile(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed")
PLAIN: Final = {b"/": b"LaterMQ " * 8}
INTEROP: Final = "google.golang.org/grpc/interop/client@latest"
INTEROP_CASES: Final = (
    "empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong",
    "empty_stream", "timeout_on_sleeping_server", "cancel_after_begin",
    "cancel_after_first_response", "status_code_and_message", "special_status_message",
    "unimplemented_method", "unimplemented_service", "custom_metadata",
)  # fmt: skip
CONNECT: Final = "connectrpc.com/conformance/cmd/connectconformance@latest"
CONNECT_SERVER: Final = Path(__file__).with_name("connect_server.py")
CONNECT_CONFIG: Final = Path(__file__).with_name("connect.yaml")
CONNECT_SUMMARY: Final = re.compile(r"(\d+) passed, (\d+) failed")


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
    failed |= not run_interop(tool("client", INTEROP, installed=False))
    failed |= not run_connect(tool("connectconformance", CONNECT))
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


def run_interop(client: str | None) -> bool:
    """Every case in clear text and over TLS, each in a process of its own."""
    if client is None:
        say("gRPC interop", "skipped: Go is not installed, or the client cannot be built")
        return True
    passed = True
    with tempfile.TemporaryDirectory() as directory, served(Path(directory), tls=True) as port:
        certificate = Path(directory) / "tls" / "certificate.pem"
        over_tls = ["-use_tls", "-use_test_ca", "-ca_file", str(certificate)]
        for name, flags in (("clear text", []), ("TLS", over_tls)):
            failed = [
                case
                for case in INTEROP_CASES
                if subprocess.run(
                    [client, "-server_host=localhost", f"-server_port={port}",
                     f"-test_case={case}", *flags],
                    capture_output=True, timeout=RUN_TIMEOUT_S,
                ).returncode
            ]  # fmt: skip
            count = len(INTEROP_CASES)
            text = f"{count - len(failed)} of {count} cases passed {' '.join(failed)}"
            say(f"gRPC interop, {name}", text.strip())
            passed &= not failed
    return passed


def run_connect(connectconformance: str | None) -> bool:
    """Its cases for gRPC servers: three encodings, clear text, TLS, client certificates."""
    if connectconformance is None:
        say("connectconformance", "skipped: neither it nor Go is installed, or it cannot be built")
        return True
    command = [connectconformance, "--mode", "server", "--conf", str(CONNECT_CONFIG)]
    command += ["--max-servers", "2", "--", sys.executable, str(CONNECT_SERVER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    found = CONNECT_SUMMARY.search(done.stdout + done.stderr)
    say("connectconformance, gRPC server", found[0] if found else "no summary")
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n")
    return done.returncode == 0 and found is not None


def tool(name: str, module: str, *, installed: bool = True) -> str | None:
    """A program's path: installed, or built now; None where that cannot be done.

    Args:
        installed: what the machine has under that name is it.
    """
    found = shutil.which(name) if installed else None
    found = found or shutil.which(name, path=str(TOOLS))
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
            config = ServerConfig(listen="127.0.0.1:0", data_dir=str(directory))
            server = LeanServer(METHODS, config, tls=TlsConfig(enabled=tls), plain=PLAIN)
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
