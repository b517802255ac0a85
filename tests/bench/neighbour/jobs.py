"""What the busy user has done, in a process of its own, until it is killed.

    python -m bench.neighbour.jobs ENDPOINT METRICS JOB…

Each call is asked again as soon as it is answered, also when the broker refuses it because there
are too many; a fault of another kind ends the process. "begun" on standard output: all were asked.
SIGTERM ends it, and has it print how many of each job were done.
"""

import asyncio
import json
import os
import signal
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Coroutine
from itertools import cycle
from typing import Any, Final

import uvloop

from bench.neighbour import tables
from bench.neighbour.users import BUSY, ROOT, connect_async
from latermq.admin import AsyncAdmin, check_status
from latermq.errors import LaterMQError, ServerError, TooManyRequestsError, UnavailableError
from latermq_proto.latermq.v1 import (
    broker_pb2,
    dead_letter_pb2,
    message_pb2,
    pending_pb2,
    queue_pb2,
)
from support import wire_requests

CONNECTIONS: Final = 8  # of one job
CONNECTIONS_MAX: Final = 64
LASTING: Final = 128  # calls at a time, of each kind that lasts
FLOODERS: Final = 64
REFUSED_PAUSE_S: Final = 0.05
RETRY_MS: Final = 1_000
BODY: Final = b"x" * 1_000
FOREVER_S: Final = 3_600.0

Call = Callable[[AsyncAdmin], Coroutine[Any, Any, None]]


def letters(**fields: Any) -> Any:
    return dead_letter_pb2.DeadLetterFilter(**fields)


async def dry_redrive(asked: AsyncAdmin) -> None:
    request = dead_letter_pb2.RedriveDeadLettersRequest(
        group=tables.DEAD, filter=letters(failure_class="None"), dry_run=True
    )
    await streamed(asked, asked.dead_letters.RedriveDeadLetters, request)


async def dry_drop(asked: AsyncAdmin) -> None:
    request = dead_letter_pb2.DropDeadLettersRequest(
        group=tables.DEAD, filter=letters(failure_class="None"), dry_run=True
    )
    await streamed(asked, asked.dead_letters.DropDeadLetters, request)


async def streamed(asked: AsyncAdmin, method: Any, request: Any) -> None:
    """Read a stream to its end."""
    async for element in asked.stream(method, request):
        check_status(element)


async def redrive(asked: AsyncAdmin) -> None:
    """For as long as there are letters; then it has nothing to do."""
    request = dead_letter_pb2.RedriveDeadLettersRequest(group=tables.MANY)
    await streamed(asked, asked.dead_letters.RedriveDeadLetters, request)
    await asyncio.sleep(1)


async def pages(asked: AsyncAdmin, method: Any, request: Any) -> None:
    while True:
        answer = await asked.call(method, request, timeout_s=FOREVER_S)
        if not answer.next_page_token:
            return
        request.page_token = answer.next_page_token


async def filtered_letters(asked: AsyncAdmin) -> None:
    wanted = letters(signature="0123456789abcdef")
    request = dead_letter_pb2.ListDeadLettersRequest(group=tables.DEAD, filter=wanted)
    await pages(asked, asked.dead_letters.ListDeadLetters, request)


async def exported_letters(asked: AsyncAdmin) -> None:
    request = dead_letter_pb2.ListDeadLettersRequest(
        group=tables.DEAD, page_size=1_000, include_body=True
    )
    await pages(asked, asked.dead_letters.ListDeadLetters, request)


async def listed_pending(asked: AsyncAdmin) -> None:
    wanted = pending_pb2.PendingFilter(topic=tables.TOPIC)
    request = pending_pb2.ListPendingRequest(filter=wanted, page_size=1_000)
    await asked.call(asked.pending.ListPending, request, timeout_s=FOREVER_S)


async def counted_pending(asked: AsyncAdmin) -> None:
    wanted = pending_pb2.PendingFilter(topic=tables.TOPIC, delay_level=3)
    request = pending_pb2.CountPendingRequest(filter=wanted)
    await asked.call(asked.pending.CountPending, request, timeout_s=FOREVER_S)


async def found_by_key(asked: AsyncAdmin) -> None:
    request = message_pb2.FindMessagesRequest(topic=tables.TOPIC, key=tables.KEY, page_size=1_000)
    await asked.call(asked.messages.FindMessages, request, timeout_s=FOREVER_S)


async def described_queues(asked: AsyncAdmin) -> None:
    at_ms = int(time.time() * 1_000) - 10_000
    request = queue_pb2.DescribeQueuesRequest(topics=[tables.TOPIC], at_ms=at_ms, lives=True)
    await asked.call(asked.queues.DescribeQueues, request, timeout_s=FOREVER_S)


async def read_queue(asked: AsyncAdmin) -> None:
    request = queue_pb2.ReadQueueRequest(topic=tables.TOPIC, end_offset=1 << 40)
    await streamed(asked, asked.queues.ReadQueue, request)


async def described_broker(asked: AsyncAdmin) -> None:
    request = broker_pb2.GetBrokerRequest()
    await asked.call(asked.brokers.GetBroker, request, timeout_s=FOREVER_S)


async def flood(asked: AsyncAdmin) -> None:
    request = wire_requests.send([wire_requests.message(tables.FLOODED, BODY)])
    await asked.call(asked.messaging.SendMessage, request, timeout_s=FOREVER_S)


async def retries(asked: AsyncAdmin) -> None:
    """Take what the storm's group holds, and fail each of it."""
    request = wire_requests.receive(
        tables.STORM, tables.STORM, count_max=32, wait_ms=1_000, invisible_ms=60_000
    )
    handles = [
        element.message.system_properties.receipt_handle
        async for element in asked.stream(asked.messaging.ReceiveMessage, request)
        if element.HasField("message")
    ]

    async def fail(handle: str) -> None:
        nack = wire_requests.change_invisible(tables.STORM, tables.STORM, handle, RETRY_MS)
        await asked.ask(asked.messaging.ChangeInvisibleDuration, nack, timeout_s=FOREVER_S)

    await asyncio.gather(*(fail(handle) for handle in handles))


# What is asked at a time, each again and again.
CALLS: Final[dict[str, tuple[Call, ...]]] = {
    "dry redrives": (dry_redrive,) * LASTING,
    "dry drops": (dry_drop,) * LASTING,
    "filtered lists": (filtered_letters,) * LASTING,
    "lists of what waits": (listed_pending,) * LASTING,
    "counts of what waits": (counted_pending,) * LASTING,
    "searches by key": (found_by_key,) * LASTING,
    "queues at an instant": (described_queues,) * LASTING,
    "bulk reads": (read_queue,) * LASTING,
    "descriptions of the broker": (described_broker,) * LASTING,
    "two bulk readers": (read_queue,) * 2,
    "redrive": (redrive,),
    "export and signature scan": (exported_letters, filtered_letters),
    "retries of another group": (retries,) * 8,
    "flood of sends": (flood,) * FLOODERS,
}


async def again(call: Call, asked: AsyncAdmin, done: "Counter[str]", name: str) -> None:
    while True:
        try:
            await call(asked)
            done[name] += 1
        except (TooManyRequestsError, UnavailableError):
            await asyncio.sleep(REFUSED_PAUSE_S)
        except ServerError as error:  # answers of others wait to be read
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            await asyncio.sleep(REFUSED_PAUSE_S)


async def scrape(metrics: str, done: "Counter[str]") -> None:
    def read() -> None:
        with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=60) as answer:
            answer.read()

    while True:
        try:
            await asyncio.to_thread(read)
            done["scrapes"] += 1
        except OSError:  # 503: as many as it serves at a time are under way
            await asyncio.sleep(REFUSED_PAUSE_S)


async def back_up(endpoint: str, done: "Counter[str]") -> None:
    """One after the other, each to a directory of its own."""
    words = ["-m", "latermq_cli", "backup", "take", "--rate", "1024", "--endpoint", endpoint]
    async for place in tables.places():
        command = [sys.executable, *words, "--through-broker", str(place)]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, env=tables.signing(ROOT)
        )
        done["backups"] += not await process.wait()


async def work(endpoint: str, metrics: str, names: list[str], done: "Counter[str]") -> None:
    """Do all of these until it is cancelled."""
    count = min(CONNECTIONS * len(names), CONNECTIONS_MAX)
    asked = [connect_async(endpoint, BUSY) for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        for name in names:
            if name == "backups":
                group.create_task(back_up(endpoint, done))
            elif name == "scrapes":
                for _ in range(LASTING):
                    group.create_task(scrape(metrics, done))
            else:
                for call, connection in zip(CALLS[name], cycle(asked), strict=False):
                    group.create_task(again(call, connection, done, name))
        await asyncio.sleep(0)
        print("begun", flush=True)


async def main(endpoint: str, metrics: str, names: list[str]) -> None:
    done: Counter[str] = Counter(dict.fromkeys(names, 0))
    working = asyncio.create_task(work(endpoint, metrics, names, done))
    asked_to_end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked_to_end.set)
    waiting = asyncio.create_task(asked_to_end.wait())
    await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
    if working.done():
        await working
    print(json.dumps(done), flush=True)
    os._exit(0)  # threads may still wait for a scrape


if __name__ == "__main__":
    try:
        uvloop.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
    except* LaterMQError as errors:
        sys.exit(f"bench.neighbour.jobs: {errors.exceptions[0]!r}")
