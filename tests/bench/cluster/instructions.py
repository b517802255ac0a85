"""What a lone send takes of a broker that is alone, and of a shard: in instructions.

They do not depend on how many processes share the cores, nor on what else the machine does.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from bench.cases.lone import PLAIN, VALGRIND, WARM_UP, Callgrind, Client, Sheet, broker
from bench.cluster.tables import Bound, table
from support.cluster_process import free_ports

TOOLS: Final = ("valgrind", "callgrind_control")
COUNT: Final = 200  # sends that are counted
SHARDS: Final = (
    0,
    1,
    2,
    4,
)  # 0: alone; of a cluster the first is counted, the others are not there
TIMES_MAX: Final = 1.05
HEAD: Final = ("", "thousand instructions", "allocations", "of one alone", "promised")


def measure() -> dict[int, tuple[float, float]]:
    """Count instructions and allocations of a send, by the number of shards."""
    return {shards: measure_one(shards) for shards in SHARDS}


def measure_one(shards: int) -> tuple[float, float]:
    """Count those of a broker, or of the first of so many shards."""
    cluster = [f"127.0.0.1:{port}" for port in free_ports(shards)]
    with (
        broker(*VALGRIND, shards=cluster) as (endpoint, pid, directory),
        Client(endpoint) as client,
    ):
        sheet = Sheet(client, Callgrind(pid, directory), COUNT)
        sheet.make_topics(PLAIN)
        for _ in range(WARM_UP):
            client.send_one(PLAIN)
        sheet.idle()
        counts = sheet.send()
    print(f"shards, instructions: {shards or 'alone'}: {counts.instructions:,.0f}", flush=True)
    return counts.instructions, counts.allocations


def promises(found: Mapping[int, tuple[float, float]]) -> dict[int, Bound]:
    """Return what is promised of shards."""
    alone = found[0][0]
    return {
        shards: Bound(
            f"a lone send: instructions, {shards} shards beside a broker alone",
            (instructions / alone,), TIMES_MAX,
        )
        for shards, (instructions, _) in found.items()
        if shards
    }  # fmt: skip


def text(found: Mapping[int, tuple[float, float]]) -> Iterator[str]:
    """Yield the table, and what it is of."""
    kept = promises(found)
    yield (
        "**A send to a shard**, one at a time, counted by callgrind: what a broker does for being "
        "one of several."
    )
    yield ""
    rows = [
        [
            f"the first of {shards}" if shards else "a broker alone",
            f"{instructions / 1e3:.1f}", f"{allocations:.0f}",
            *(kept[shards].cells() if shards else ("", "")),
        ]
        for shards, (instructions, allocations) in found.items()
    ]  # fmt: skip
    yield from table(HEAD, rows)
