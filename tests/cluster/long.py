"""`make cluster-long`: faults of brokers and of a Kafka of three nodes, under load, and a table.

FAILOVERS=200 TIMES=5 SEED=1 python -m cluster.long [SCENARIO …]

Each scenario has a log, directories and a ledger of its own. It goes on until all that was promised
was read back; a promise that was broken ends the run, with the seed.
"""

import os
import random
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from cluster import scenarios
from cluster.drill import Drill
from support.kafka.cluster import KafkaCluster

NODES: Final = 3
HEAD: Final = """\
| seed | scenario | times | new owners | promises | no OK for: p50, p99, most | took |
|---|---|---|---|---|---|---|"""
KILLED: Final = "owner killed"
FULL: Final = "owner's disk full, then killed"
SCENARIOS: Final = {  # and how many stand by
    KILLED: (scenarios.killed, 1),
    "two standbys race": (scenarios.killed, 2),
    "handed over": (scenarios.handed_over, 1),
    "handed over, two stand by": (scenarios.handed_over, 2),
    "owner ended in order": (scenarios.ended, 1),
    "owner stopped, goes on": (scenarios.stopped, 1),
    "owner slow": (scenarios.slow, 1),
    "leader of the log killed": (scenarios.leader_killed, 1),
    "two nodes of three gone": (scenarios.engine_gone, 1),
    "rolling restart of Kafka": (scenarios.rolling_restart, 1),
    FULL: (scenarios.disk_full, 1),
}


def main() -> None:
    seed = int(os.environ.get("SEED") or "1")
    failovers = int(os.environ.get("FAILOVERS") or "200")
    others = int(os.environ.get("TIMES") or "5")
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory(prefix="cluster-long-") as folder:
        room = Path(folder)
        with KafkaCluster(room / "kafka", NODES) as kafka:
            kafka.start()
            for number, name in enumerate(sys.argv[1:] or SCENARIOS):
                scenario, standbys = SCENARIOS[name]
                began_s = time.monotonic()
                times = failovers if name == KILLED else others
                rng = random.Random(f"{seed} {name}")
                with ExitStack() as stack:
                    for broker in range(1 + standbys if name == FULL else 0):
                        disk = scenarios.small_disk(room / f"drill-{number}-{broker}")
                        stack.enter_context(disk)
                    drill = Drill(room, kafka, f"drill-{number}", rng, standbys)
                    stack.enter_context(drill)
                    for _ in range(times):
                        scenario(drill)
                    promises = drill.read_back()
                cells = [seed, name, times, drill.replaced, f"{promises:,}"]
                cells += [quantiles(drill.silences_s), f"{time.monotonic() - began_s:.0f} s"]
                print("|", " | ".join(map(str, cells)), "|", flush=True)


def quantiles(silences_s: list[float]) -> str:
    """Write the middle, the 99th of a hundred, and the worst."""
    ordered = sorted(silences_s)
    p99 = ordered[len(ordered) * 99 // 100]
    return f"{statistics.median(ordered):.2f}, {p99:.2f}, {ordered[-1]:.2f} s"


if __name__ == "__main__":
    main()
