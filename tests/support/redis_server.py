"""A Redis of a test's own, on a socket in a directory of its own."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

REDIS: Final = shutil.which("redis-server")
MISSING: Final = "no redis-server here: apt-get install redis-server"


@contextmanager
def redis_running() -> Iterator[str]:
    """Run it for as long as the block lasts; the URL that redis-py takes. It keeps no files."""
    assert REDIS is not None
    with tempfile.TemporaryDirectory(prefix="redis") as folder:
        path = Path(folder) / "socket"
        server = subprocess.Popen(
            [REDIS, "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no"],
            cwd=folder, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert server.stdout is not None
            for line in server.stdout:
                if "ready to accept connections" in line.lower():
                    break
            else:
                raise RuntimeError(f"redis-server ended with {server.wait()}")
            yield f"unix://{path}"
        finally:
            server.kill()
            server.communicate()
