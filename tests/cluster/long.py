"""`make cluster-long`: faults of brokers and of a Kafka of three nodes, under load, and tables.

FAILOVERS=200 TIMES=5 SEED=1 python -m cluster.long [SCENARIO …]
SCENARIOS="machine killed; shard handed over" … the same names, for `make`
LANGUAGES="latermq node" … of the clients over shards: all of them otherwise; Node.js takes part
        where clients are given a name
CALM=1 … on a machine with nothing else to do: bounds hold, and no call fails where a shard is
        handed over; what all brokers know is compared after each fault, too
NODES=1 … a Kafka of one node, for a short run

Each scenario has a log, directories and a ledger of its own. It goes on until all that was promised
was read back; a promise that was broken ends the run, with the seed.
"""

import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from cluster import places, scenarios, shards
from cluster.drill import Drill
from cluster.shards import ShardDrill
from support.kafka.cluster import KafkaCluster

SEED: Final = int(os.environ.get("SEED") or "1")
FAILOVERS: Final = int(os.environ.get("FAILOVERS") or "200")
TIMES: Final = int(os.environ.get("TIMES") or "5")
NODES: Final = int(os.environ.get("NODES") or "3")
CALM: Final = os.environ.get("CALM") == "1"
ASKED: Final = [each.strip() for each in os.environ.get("SCENARIOS", "").split(";") if each.strip()]
HEAD: Final = """
| seed | scenario | times | new owners | promises | no OK for: p50, p99, most | \
from one owner's last OK to the next one's first | took |
|---|---|---|---|---|---|---|---|"""
SHARDS_HEAD: Final = """
| seed | over shards | times | new owners | promises | calls failed | came again \
| no OK of a shard for: p50, p99, most | at a client | took |
|---|---|---|---|---|---|---|---|---|---|"""
KILLED: Final = "owner killed"


class Bound(NamedTuple):
    """For the time from one owner's last OK to the next one's first."""

    p50_s: float
    p99_s: float


class Scenario(NamedTuple):
    """What happens to a drill, how many stand by, and where."""

    fault: Callable[[Drill], None]
    standbys: int = 1
    setting: places.Setting = places.plain
    bound: Bound | None = None  # on a calm machine


FAILED_OVER: Final = Bound(3.0, 6.0)
HANDED_OVER: Final = Bound(0.3, 6.0)
SCENARIOS: Final = {
    KILLED: Scenario(scenarios.killed, bound=FAILED_OVER),
    "two standbys race": Scenario(scenarios.killed, 2, bound=FAILED_OVER),
    "handed over": Scenario(scenarios.handed_over, bound=HANDED_OVER),
    "handed over, two stand by": Scenario(scenarios.handed_over, 2, bound=HANDED_OVER),
    "owner ended in order": Scenario(scenarios.ended, bound=HANDED_OVER),
    "owner stopped, goes on": Scenario(scenarios.stopped),
    "owner slow": Scenario(scenarios.slow),
    "owner cannot write the log": Scenario(scenarios.cannot_write, 1, places.machines),
    "owner cannot read the log": Scenario(scenarios.cannot_read, 1, places.machines),
    "clients do not hear the owner": Scenario(scenarios.not_heard, 1, places.machines),
    "standby cannot read the log": Scenario(scenarios.standby_cut_off, 1, places.machines),
    "clocks 30 s apart, owner killed": Scenario(scenarios.killed, 1, places.clocks),
    "two versions, owner killed": Scenario(scenarios.killed, 1, places.versions),
    "two versions, owner ended in order": Scenario(scenarios.ended, 1, places.versions),
    "broker removed, one added, owner killed": Scenario(scenarios.exchanged),
    "leader of the log killed": Scenario(scenarios.leader_killed),
    "two nodes of three gone": Scenario(scenarios.engine_gone),
    "rolling restart of Kafka": Scenario(scenarios.rolling_restart),
    "owner's disk full, then killed": Scenario(scenarios.disk_full, 1, places.disks),
}


class OverShards(NamedTuple):
    """What happens to shards at several machines."""

    fault: Callable[[ShardDrill], None]
    planned: bool = False  # no call is to fail
    named: bool = False  # clients are given a name, and Node.js is among them


BY_ADDRESS: Final = {
    "shard handed over": OverShards(shards.handed_over, planned=True),
    "machine ended in order": OverShards(shards.ended, planned=True),
    "machine killed": OverShards(shards.machine_killed),
    "owner of a shard killed": OverShards(shards.shard_killed),
}
OVER_SHARDS: Final = BY_ADDRESS | {
    f"{name}, by name": it._replace(named=True) for name, it in BY_ADDRESS.items()
}
ALL: Final = [*SCENARIOS, *OVER_SHARDS]


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and leave nothing running
    asked = sys.argv[1:] or ASKED or ALL
    unknown = [name for name in asked if name not in ALL]
    if unknown:
        sys.exit(f"no such scenario: {'; '.join(unknown)}. There are {'; '.join(ALL)}")
    logs = [name for name in asked if name in SCENARIOS]
    with tempfile.TemporaryDirectory(prefix="cluster-long-") as folder:
        room = Path(folder)
        with (
            places.Network() as network,
            KafkaCluster(room / "kafka", NODES, host=network.kafka) as kafka,
        ):
            kafka.start()
            if logs:
                print(HEAD, flush=True)
            for number, name in enumerate(logs):
                run_drill(kafka, network, room / f"drill-{number}", name)
            if len(logs) < len(asked):
                print(SHARDS_HEAD, flush=True)
            for number, name in enumerate(each for each in asked if each not in SCENARIOS):
                run_shards(kafka, room / f"site-{number}", name)


def run_drill(kafka: KafkaCluster, network: places.Network, place: Path, name: str) -> None:
    began_s = time.monotonic()
    it, times = SCENARIOS[name], FAILOVERS if name == KILLED else TIMES
    directories = [place.with_name(f"{place.name}-{each}") for each in range(1 + it.standbys)]
    with (
        it.setting(network, directories) as where,
        Drill(kafka, network, directories, where, random.Random(f"{SEED} {name}")) as drill,
    ):
        drill.begin()
        for _ in range(times):
            it.fault(drill)
            if CALM:
                drill.compare()
        promises = drill.read_back()
    moves = quantiles(drill.moves_s) if drill.moves_s else "-"
    figures = (drill.replaced, f"{promises:,}", quantiles(drill.silences_s), moves)
    print_row(began_s, SEED, name, times, *figures)
    if CALM and it.bound is not None:
        require(name, drill.moves_s, it.bound)


def require(name: str, moves_s: list[float], bound: Bound) -> None:
    """Raises AssertionError: the next owner served later than it should on a calm machine."""
    assert moves_s, f"{name}: nobody took over"
    for what, took_s, most_s in zip(("p50", "p99"), middle_and_p99(moves_s), bound, strict=True):
        assert took_s <= most_s, f"{name}: {what} is {took_s:.2f} s, more than {most_s:.1f}"


def run_shards(kafka: KafkaCluster, room: Path, name: str) -> None:
    began_s = time.monotonic()
    it = OVER_SHARDS[name]
    with ShardDrill(room, kafka, random.Random(f"{SEED} {name}"), named=it.named) as drill:
        drill.begin()
        for _ in range(TIMES):
            it.fault(drill)
        promises = drill.read_back()
    failed = ", ".join(f"{topic} {count}" for topic, count in drill.failed.items()) or "0"
    figures = (drill.replaced, f"{promises:,}", failed, drill.again)
    waits = (quantiles(drill.silences_s), quantiles(drill.waits_s))
    print_row(began_s, SEED, name, TIMES, *figures, *waits)
    if CALM and it.planned:
        assert not drill.failed, f"{name}: calls failed: {failed}"


def print_row(began_s: float, *cells: object) -> None:
    print(
        "|", " | ".join(map(str, cells)), "|", f"{time.monotonic() - began_s:.0f} s |", flush=True
    )


def quantiles(silences_s: list[float]) -> str:
    """Write the middle, the 99th of a hundred, and the worst."""
    middle_s, p99_s = middle_and_p99(silences_s)
    return f"{middle_s:.2f}, {p99_s:.2f}, {max(silences_s):.2f} s"


def middle_and_p99(times_s: list[float]) -> tuple[float, float]:
    ordered = sorted(times_s)
    return statistics.median(ordered), ordered[len(ordered) * 99 // 100]


if __name__ == "__main__":
    main()
