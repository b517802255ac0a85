"""The payload of every system, and what its task does: read it, and say that it was done."""

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final

from pydantic import BaseModel

DONE: Final = os.open(
    os.environ["BENCH_DONE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT
)  # a byte each
PORT: Final = int(os.environ["BENCH_PORT"])


class Line(BaseModel):
    """One line of an order."""

    what: str
    count: int
    cents: int


class Order(BaseModel):
    """About 200 bytes of JSON."""

    id: int
    customer: str
    lines: list[Line]


def order(number: int) -> Order:
    lines = [Line(what=f"tea {n}", count=n, cents=350 * n) for n in range(1, 4)]
    return Order(id=number, customer="ann@example.org", lines=lines)


def done(order: Order) -> None:
    """Tell that an order was worked on: whole, so it was read."""
    assert order.lines[2].cents == 1_050
    os.write(DONE, b".")


class Stopwatch:
    """What sending took: prints seconds by the clock and of this process's CPU, threads and all."""

    def __enter__(self) -> None:
        self._began = time.perf_counter(), self._cpu()

    def __exit__(self, *_: object) -> None:
        wall, cpu = time.perf_counter() - self._began[0], self._cpu() - self._began[1]
        print(json.dumps({"wall_s": wall, "cpu_s": cpu}), flush=True)

    def _cpu(self) -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime


def send_all(send: Callable[[Order], object]) -> None:
    """Send as many as the command line says, after a few that are not measured."""
    for number in range(20):
        send(order(number))
    with Stopwatch():
        for number in range(int(sys.argv[1])):
            send(order(number))


async def send_all_async(send: Callable[[Order], Awaitable[object]]) -> None:
    """Send with coroutines: one after the other, or with a second word so many at a time."""
    count, at_once = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    for number in range(20):
        await send(order(number))
    with Stopwatch():
        if at_once == 1:
            for number in range(count):
                await send(order(number))
        else:
            for first in range(0, count, at_once):
                await asyncio.gather(*(send(order(first + n)) for n in range(at_once)))
