"""The neighbour, in a process of its own: sends at fixed instants, and receives what it sent.

    python -m bench.neighbour.sends ENDPOINT PER_SECOND

For each line on standard input prints the figures of the sends since the line before, as JSON. A
send's latency counts from the instant at which it was due, an arrival's from there to the handler.
Goes on until standard input ends.
"""

import asyncio
import json
import sys
import time
from contextlib import suppress
from datetime import timedelta
from typing import Final

import uvloop

import latermq
from bench.measured import percentile
from bench.neighbour.users import NEIGHBOUR

TOPIC: Final = "neighbour"
TIMEOUT: Final = timedelta(seconds=30)
BODY: Final = b"x" * 1_000


class Window:
    """Milliseconds of what was sent, and of what came, in a stretch of time."""

    def __init__(self) -> None:
        self.sent_ms: list[float] = []
        self.came_ms: list[float] = []
        self.open: set[asyncio.Task[None]] = set()

    def figures(self) -> dict[str, float]:
        sent, came = sorted(self.sent_ms), sorted(self.came_ms)
        return {
            "sent": len(sent), "came": len(came),
            "p50 ms": percentile(sent, 0.5), "p99 ms": percentile(sent, 0.99),
            "arrival p50 ms": percentile(came, 0.5) if came else 0.0,
            "arrival p99 ms": percentile(came, 0.99) if came else 0.0,
        }  # fmt: skip


class Neighbour:
    def __init__(self, mq: latermq.Client) -> None:
        self._mq = mq
        self._window = Window()
        self._began_s = time.monotonic()

    async def run(self, per_second: int) -> None:
        loop = asyncio.get_running_loop()
        sending = asyncio.create_task(self._send_on_time(1 / per_second))
        taking = asyncio.create_task(self._take())
        while await loop.run_in_executor(None, sys.stdin.readline):
            over, self._window = self._window, Window()
            await asyncio.gather(*over.open)
            print(json.dumps(over.figures()), flush=True)
        for task in (sending, taking):
            task.cancel()

    async def _send_on_time(self, every_s: float) -> None:
        due_s = time.monotonic()
        while True:
            due_s += every_s
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            window = self._window
            task = asyncio.create_task(self._send(due_s, window))
            window.open.add(task)
            task.add_done_callback(window.open.discard)

    async def _send(self, due_s: float, window: Window) -> None:
        with suppress(latermq.LaterMQError):  # it has waited as long as it took to say so
            await self._mq.send(TOPIC, b"%f %s" % (due_s, BODY))
        window.sent_ms.append((time.monotonic() - due_s) * 1_000)

    async def _take(self) -> None:
        async for delivery in self._mq.push_consumer(TOPIC, group=TOPIC):
            async with delivery:
                due_s = float(bytes(delivery.body).partition(b" ")[0])
                if due_s >= self._began_s:  # not one that an earlier process left behind
                    self._window.came_ms.append((time.monotonic() - due_s) * 1_000)


async def main(endpoint: str, per_second: int) -> None:
    client = latermq.connect(
        endpoint, access_key=NEIGHBOUR.access_key, secret=NEIGHBOUR.secret, batching=None,
        request_timeout=TIMEOUT, tls=False,
    )  # fmt: skip
    async with client as mq:
        await Neighbour(mq).run(per_second)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
