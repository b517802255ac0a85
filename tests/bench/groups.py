"""10,000 groups on 100 topics: how long each call takes that a page or a command makes of them.

    make bench-groups                 two minutes

The console's pages are opened and the commands run once; what they asked the broker is asked again
and again, one call at a time. Then what it costs to be scraped, with 1,000 groups on 100 topics.
"""

import argparse
import asyncio
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from click.testing import CliRunner
from google.protobuf.message import Message

from bench.cases.broker import cpu_s
from bench.cases.engine import open_engine, outgoing
from latermq import admin
from latermq.admin import AsyncAdmin, Method
from latermq.errors import UnsupportedError
from latermq_broker.config.config import Config
from latermq_broker.engine.state.model import ReceiveRequest
from latermq_cli.root import latermq
from support.broker_process import BrokerProcess
from support.console_rig import visiting
from support.wire_client import WireClient

TOPICS: Final = 100
GROUPS: Final = 10_000
SENT: Final = 3  # messages a topic; each group holds the first of them, and has the others to come
HELD_MS: Final = 3_600_000
LOOKS: Final = 20
CALL_MS_MAX: Final = 300
PAGE_KIB_MAX: Final = 64
SCRAPED_GROUPS: Final = 1_000  # each on every topic
SERIES: Final = 1_000  # metrics.subscriptions_max
SCRAPES: Final = 60
SCRAPE_EACH_S: Final = 5.0
CORE_PERCENT_MAX: Final = 1.0
GROUP: Final = "group-00042"
TOPIC: Final = "topic-042"
PAGES: Final = (
    "/", "/groups", f"/groups/{GROUP}", f"/groups/{GROUP}/reset?topic={TOPIC}&to=earliest",
    "/topics", f"/topics/{TOPIC}", "/dead", f"/dead/{GROUP}", "/pending",
    f"/pending?group={GROUP}", "/transactions", "/schedules", "/messages?q=nothing", "/clients",
    f"/clients?group={GROUP}", "/access", "/broker", "/jobs",
)  # fmt: skip
COMMANDS: Final = (
    "group list", "group list --limit 10000", "group list --by behind --limit 40",
    f"group show {GROUP}", "topic list", f"topic show {TOPIC}", "pending list", "pending count",
    f"pending list --group {GROUP}", "client list", f"dead list {GROUP}", "broker show",
    "top --once",
)  # fmt: skip


class Asked(NamedTuple):
    """A call that a page or a command made."""

    method: Method[Any]
    request: Message
    metadata: Any

    @property
    def name(self) -> str:
        return self.method.path.rpartition("/")[2]


def fill(data_dir: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """Leave a directory in which these groups hold a message of these topics each.

    Not through a broker: 100,000 receives would take minutes.
    """
    core, now_ms = open_engine(data_dir, Config()), time.time_ns() // 1_000_000
    for topic in dict.fromkeys(topic for _, topic in pairs):
        core.ensure_topic(topic, now_ms)
        for _ in range(SENT):
            core.send([outgoing(100)._replace(topic=topic)], now_ms)
    core.write()
    for group, topic in pairs:
        core.ensure_group(group, now_ms)
        request = ReceiveRequest(
            group=group, topic=topic, client_id="bench", count_max=1, invisible_ms=HELD_MS
        )
        assert core.receive(request, now_ms)
        core.write()
    core.close(now_ms)


@contextmanager
def noted() -> Iterator[list[Asked]]:
    """Whatever this process asks a broker meanwhile."""
    seen: list[Asked] = []
    ask = AsyncAdmin.ask

    async def noting(
        self: AsyncAdmin, method: Method[Any], request: Message, **more: Any
    ) -> Message:
        copy = type(request)()
        copy.CopyFrom(request)
        seen.append(Asked(method, copy, more.get("metadata", ())))
        answer: Message = await ask(self, method, request, **more)
        return answer

    with patch.object(AsyncAdmin, "ask", noting):
        yield seen


async def pages(endpoint: str) -> dict[str, tuple[list[Asked], float]]:
    """Open each page once; what it asked, and how many KiB it is."""
    with noted() as seen:
        async with visiting(endpoint) as (_, visitor):
            await visitor.get("/")
            await visitor.until("/groups", GROUP[:-2])
            opened = {"console, all the while": ([*seen], 0.0)}
            for path in PAGES:
                seen.clear()
                page = await visitor.get(path)
                assert visitor.status == 200, (path, visitor.status)
                opened[f"console {path}"] = ([*seen], len(page.encode()) / 1024)
    return opened


def commands(endpoint: str) -> dict[str, tuple[list[Asked], float]]:
    """Run each command once; what it asked, and how many KiB it printed."""
    ran = {}
    with noted() as seen:
        for words in COMMANDS:
            seen.clear()
            ended = CliRunner().invoke(latermq, [*words.split(), "--endpoint", endpoint])
            assert ended.exit_code == 0, (words, ended.output)
            ran[f"`latermq {words}`"] = ([*seen], len(ended.output.encode()) / 1024)
    return ran


def calls_ms(broker: admin.Admin, asked: Asked) -> list[float]:
    """Ask it again and again; the times, the shortest first."""
    taken = []
    for _ in range(LOOKS):
        began_s = time.perf_counter()
        with suppress(UnsupportedError):  # a broker that is alone knows of no cluster
            broker.ask(asked.method, asked.request, metadata=asked.metadata)
        taken.append((time.perf_counter() - began_s) * 1_000)
    return sorted(taken)


def look(directory: Path, groups: int) -> bool:
    """Print what each page and command takes of the broker; whether all is within bounds."""
    pairs = [(f"group-{number:05}", f"topic-{number % TOPICS:03}") for number in range(groups)]
    fill(directory / "data", pairs)
    with BrokerProcess(directory / "data") as broker:
        broker.start()
        shown = asyncio.run(pages(broker.endpoint)) | commands(broker.endpoint)
        known: dict[tuple[str, bytes], list[float]] = {}
        fine = True
        print("| page or command | KiB | calls | together, ms | longest | ms | at most |")
        print("|---|---|---|---|---|---|---|")
        with admin.connect(broker.endpoint) as asking:
            for name, (asked, kib) in shown.items():
                times = {}
                for each in asked:
                    key = (each.name, each.request.SerializeToString())
                    known[key] = known.get(key) or calls_ms(asking, each)
                    times[key] = known[key]
                medians = {key: statistics.median(taken) for key, taken in times.items()}
                longest = max(medians, key=lambda key: medians[key], default=("-", b""))
                most_ms = max((taken[-1] for taken in times.values()), default=0.0)
                print(
                    f"| {name} | {kib:.0f} | {len(asked)} | {sum(medians.values()):.1f} | "
                    f"{longest[0]} | {medians.get(longest, 0):.1f} | {most_ms:.1f} |", flush=True,
                )  # fmt: skip
                fine = fine and most_ms < CALL_MS_MAX
                fine = fine and (kib <= PAGE_KIB_MAX or not name.startswith("console"))
        return fine


def scrape(address: str) -> int:
    """Read the metrics as a Prometheus does; their size in bytes."""
    accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
    request = urllib.request.Request(f"http://{address}/metrics", headers=accept)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return len(answer.read())


def be_scraped(directory: Path, groups: int) -> bool:
    """Print what being scraped takes of a core; whether it is within bounds."""
    pairs = [
        (f"group-{number:05}", f"topic-{topic:03}")
        for number in range(groups)
        for topic in range(TOPICS)
    ]
    fill(directory / "data", pairs)
    config = '[metrics]\nlisten = "127.0.0.1:0"\n'
    with BrokerProcess(directory / "data", config=config) as broker:
        broker.start()
        with WireClient(broker.endpoint) as wire:
            for group, topic in pairs[:SERIES]:  # what has not moved has no histogram
                [message] = wire.receive(topic, group, count_max=1, wait_ms=100).messages
                wire.ack(topic, group, message.system_properties.receipt_handle)
        broker.wait_log("metrics served")
        [address] = re.findall(r"metrics served.*address=(\S+)", broker.log_path.read_text("utf-8"))
        size = scrape(address)
        before_s = cpu_s(broker.pid)
        for _ in range(SCRAPES):
            scrape(address)
        took_ms = (cpu_s(broker.pid) - before_s) / SCRAPES * 1_000
    percent = took_ms / 1_000 / SCRAPE_EACH_S * 100
    print(
        f"a scrape of {len(pairs):,} subscriptions, {SERIES:,} of which have series: "
        f"{size / 1024:,.0f} KiB, {took_ms:.1f} ms of a core, each {SCRAPE_EACH_S:.0f} s "
        f"{percent:.2f} %"
    )
    return percent < CORE_PERCENT_MAX


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--scraped", type=int, default=SCRAPED_GROUPS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        fine = look(Path(directory) / "pages", options.groups)
        fine = be_scraped(Path(directory) / "scrapes", options.scraped) and fine
    sys.exit(not fine)


if __name__ == "__main__":
    main()
