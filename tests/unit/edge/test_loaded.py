"""What a broker on the lean transport does not load: memory that it would hold for ever."""

import subprocess
import sys
from typing import Final

# 9 MiB: the other transport's, and what shards call each other with; and a reader of mail, which
# importlib.metadata brings; calendars, before there is a schedule by one.
UNUSED: Final = (
    "grpc", "email", "csv", "latermq", "latermq_broker.cluster", "latermq_broker.replication",
    "cronsim", "zoneinfo",
)  # fmt: skip


def test_the_broker_loads_no_grpcio_and_no_client() -> None:
    code = (
        "import sys, latermq_broker.runtime\n"
        f"print([name for name in {UNUSED} if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
