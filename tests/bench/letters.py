"""A group with a million dead letters: how long a page takes, for the broker and the console.

    make bench-letters                a million, about five minutes
    make bench-letters LETTERS=20000

The letters are real: messages of a group that allows one attempt, received and never answered.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from latermq import admin
from latermq_proto.latermq.v1 import dead_letter_pb2, group_pb2, topic_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.console_rig import visiting
from support.wire_client import WireClient, require_ok

GROUP: Final = "billing"
TOPIC: Final = "orders"
SENT_AT_ONCE: Final = 1_000
TAKEN_AT_ONCE: Final = 256
LOOKS: Final = 40
PAGE: Final = 50
FIRST_ROW_MS_MAX: Final = 300
BODY: Final = b'{"number": "A-1000", "amount": "49,90"}'
CONFIG: Final = f"[delivery]\nreceive_batch_max = {TAKEN_AT_ONCE}\n[server]\npolling_ms_min = 20\n"


def fill(broker: BrokerProcess, count: int) -> None:
    """Have so many messages die."""
    with admin.connect(broker.endpoint) as asked, WireClient(broker.endpoint) as wire:
        made = topic_pb2.CreateTopicRequest(name=TOPIC, queue_count=1)
        asked.call(asked.topics.CreateTopic, made)
        policy = group_pb2.Group(name=GROUP, max_attempts=1)
        asked.call(asked.groups.CreateGroup, group_pb2.CreateGroupRequest(group=policy))
        left = count
        while left:
            some = min(left, SENT_AT_ONCE)
            require_ok(wire.send(*(wire_requests.message(TOPIC, BODY) for _ in range(some))))
            left -= some
        taken = 0
        while taken < count:
            received = wire.receive(
                TOPIC, GROUP, count_max=TAKEN_AT_ONCE, wait_ms=20, invisible_ms=1_000
            )
            taken += len(received.messages)
        request = group_pb2.GetGroupRequest(name=GROUP)
        while asked.call(asked.groups.GetGroup, request).group.dead_letter_count < count:
            time.sleep(0.2)


def pages_ms(broker: BrokerProcess, **fields: Any) -> list[float]:
    """Time the first page, again and again."""
    request = dead_letter_pb2.ListDeadLettersRequest(group=GROUP, page_size=PAGE, **fields)
    taken = []
    with admin.connect(broker.endpoint) as asked:
        for _ in range(LOOKS):
            began_s = time.perf_counter()
            answer = asked.call(asked.dead_letters.ListDeadLetters, request)
            taken.append((time.perf_counter() - began_s) * 1_000)
            assert len(answer.letters) == PAGE or "filter" in fields
    return taken


async def console_pages(endpoint: str) -> list[tuple[str, float, int]]:
    """Open the group's page: at first, when its letters are counted, and again."""
    seen = []
    async with visiting(endpoint) as (_, visitor):
        for name in ("at first", "again"):
            began_s = time.perf_counter()
            page = await visitor.get(f"/dead/{GROUP}")
            seen.append((name, (time.perf_counter() - began_s) * 1_000, len(page.encode())))
            await visitor.until(f"/dead/{GROUP}", "of the newest 2,000")
    return seen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--letters", type=int, default=1_000_000)
    count = parser.parse_args().letters
    with tempfile.TemporaryDirectory() as directory:
        broker = BrokerProcess(Path(directory) / "data", config=CONFIG)
        with broker.start():
            began_s = time.perf_counter()
            fill(broker, count)
            print(f"{count:,} letters after {time.perf_counter() - began_s:.0f} s", flush=True)
            longest_ms = 0.0
            filter = dead_letter_pb2.DeadLetterFilter
            for name, fields in (
                ("newest first", {"newest_first": True}),
                ("oldest first", {}),
                ("of a class that none has", {"filter": filter(failure_class="Nothing")}),
            ):
                taken = sorted(pages_ms(broker, **fields))
                longest_ms = max(longest_ms, taken[-1])
                print(
                    f"a page of {PAGE}, {name}: {statistics.median(taken):.1f} ms, "
                    f"at most {taken[-1]:.1f} ms", flush=True,
                )  # fmt: skip
            for name, ms, size in asyncio.run(console_pages(broker.endpoint)):
                print(f"the console's page, {name}: {ms:.0f} ms, {size / 1024:.0f} KiB", flush=True)
    assert longest_ms < FIRST_ROW_MS_MAX, f"{longest_ms:.0f} ms"


if __name__ == "__main__":
    main()
