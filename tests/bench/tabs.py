"""A console with many open tabs: what of a core it takes of the broker, and of each shard.

    make bench-tabs     one broker, then two shards: a quarter of an hour

Each tab asks for its page as often as the page's own script does. What the broker needs without a
console is taken off.
"""

import asyncio
import re
import tempfile
import time
from collections import Counter
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import httpx

from bench.cases.broker import cpu_s
from bench.letters import CONFIG, GROUP, TOPIC, fill
from latermq import admin
from latermq_proto.latermq.v1 import group_pb2
from support.browser import console_process
from support.cluster_process import ClusterProcess
from support.machine import patient

TABS: Final = 20
LETTERS: Final = 50_000
GROUPS: Final = 9_900
MADE_AT_ONCE: Final = 100
SETTLE_S: Final = 20.0
SECONDS: Final = 45.0  # three looks of the console at all groups
CORE_PERCENT_MAX: Final = 2.0
APART_S: Final = 0.23
PERIOD: Final = re.compile(r'data-live="(\d+)"')
PAGES: Final = (
    "/", f"/groups/{GROUP}", f"/dead/{GROUP}", f"/topics/{TOPIC}", "/groups", "/dead", "/topics",
    "/pending", "/clients", "/broker",
)  # fmt: skip
SETS: Final = {
    "no tab": [],
    "tabs of one group": [f"/groups/{GROUP}"] * TABS,
    "tabs of its letters": [f"/dead/{GROUP}"] * TABS,
    "tabs of ten pages": list(islice(cycle(PAGES), TABS)),
    "tabs of a group each": [f"/groups/group-{number}" for number in range(TABS)],
}


async def make_groups(endpoint: str) -> None:
    """Make many at once: a shard copies the catalogue after each change that it waited for."""
    asked = admin.connect_async(endpoint)
    try:
        for first in range(0, GROUPS, MADE_AT_ONCE):
            some = range(first, min(first + MADE_AT_ONCE, GROUPS))
            requests = [
                group_pb2.CreateGroupRequest(group=group_pb2.Group(name=f"group-{number}"))
                for number in some
            ]
            await asyncio.gather(
                *(
                    asked.call(asked.groups.CreateGroup, each, timeout_s=patient(30))
                    for each in requests
                )
            )
    finally:
        await asked.close()


async def tab(
    browser: httpx.AsyncClient, path: str, after_s: float, statuses: Counter[int]
) -> None:
    """Keep a page open, and up to date, until it is cancelled; count what it was answered."""
    await asyncio.sleep(after_s)
    while True:
        answer = await browser.get(path, headers={"X-Console-Live": "1"})
        statuses[answer.status_code] += 1
        period = PERIOD.search(answer.text)
        assert period is not None, (path, answer.status_code)
        await asyncio.sleep(int(period[1]))


async def cost(
    shards: list[int], url: str, paths: list[str], *, browsers: int
) -> tuple[float, Counter[int]]:
    """Return how many hundredths of a core the busiest shard takes while these tabs are open.

    And how many pages they got, by status.

    Args:
        shards: their processes.
        url: the console's; "": there is none.
        browsers: that the tabs are of, each with a session of its own.
    """
    # None kept alive: a server may close one at the moment when it is used, which browsers forgive.
    limits = httpx.Limits(max_keepalive_connections=0)
    opened = [
        httpx.AsyncClient(base_url=url, follow_redirects=True, timeout=60, limits=limits)
        for _ in range(browsers if url else 0)
    ]
    for browser in opened:
        await browser.get("/")
    statuses = Counter[int]()
    async with asyncio.TaskGroup() as group:
        tabs = [
            group.create_task(tab(opened[number % browsers], path, number * APART_S, statuses))
            for number, path in enumerate(paths)
        ]
        await asyncio.sleep(SETTLE_S)
        statuses.clear()
        before, began_s = [cpu_s(pid) for pid in shards], time.perf_counter()
        await asyncio.sleep(SECONDS)
        passed_s = time.perf_counter() - began_s
        used_s = [cpu_s(pid) - then for pid, then in zip(shards, before, strict=True)]
        for each in tabs:
            each.cancel()
    for browser in opened:
        await browser.aclose()
    return max(used_s) / passed_s * 100, statuses


def measure(directory: Path, count: int) -> float:
    """Print what each set of tabs costs so many shards; return the most."""
    with ClusterProcess(directory, count, config=CONFIG).start() as broker:
        assert isinstance(broker, ClusterProcess)
        fill(broker, LETTERS)
        asyncio.run(make_groups(broker.endpoint))
        shards = list(broker.pids().values())
        own, _ = asyncio.run(cost(shards, "", [], browsers=0))
        most = 0.0
        for browsers, (name, paths) in [
            *((1, each) for each in SETS.items()),
            (TABS, ("tabs of ten pages, a browser each", SETS["tabs of ten pages"])),
        ]:
            with console_process(broker.endpoint) as url:
                took, statuses = asyncio.run(cost(shards, url, paths, browsers=browsers))
            print(
                f"{count} shards, {len(paths)} {name}: {took - own:.2f} % of a core, "
                f"{statuses[200]} of {statuses.total()} pages", flush=True,
            )  # fmt: skip
            most = max(most, took - own)
        return most


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        most = max(measure(Path(directory) / str(count), count) for count in (1, 2))
    assert most < CORE_PERCENT_MAX, f"{most:.2f} %"


if __name__ == "__main__":
    main()
