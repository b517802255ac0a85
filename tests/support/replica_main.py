"""`latermq serve` for a log in a LogServer: `serve --listen … --data-dir … --log-port PORT`.

Run by `support.replica_process`.
"""

import argparse
from pathlib import Path
from typing import Final

from latermq_broker import runtime
from latermq_broker.clock import monotonic_ms
from latermq_broker.config.config import Config
from latermq_broker.config.toml_file import load
from latermq_broker.replication.replica import Replica, ReplicaPlace
from latermq_broker.store.files import RealFiles
from support.log_server import ServedLog
from support.machine import patient

CLUSTER: Final = "test"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["serve"])
    for name in ("listen", "data-dir", "log-port"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--replace", action="store_true")
    chosen = parser.parse_args()
    flags = {"server.listen": chosen.listen, "server.data_dir": chosen.data_dir}
    place = ReplicaPlace(cluster=CLUSTER, shard=0, directory=Path(chosen.data_dir).absolute())

    def replica_of(config: Config, _: bool) -> Replica:
        replicated_log = ServedLog(int(chosen.log_port))
        return Replica(place, replicated_log, config, RealFiles(), monotonic_ms)

    runtime.LAST_WORDS_MS = round(patient(10_000))  # type: ignore[misc]
    config = load(chosen.config, {}, flags)
    return runtime.run_replica(
        config, lambda line: print(line, flush=True), replica_of, replace=chosen.replace
    )
