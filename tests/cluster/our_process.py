"""Run as a script: our own client, driven by the lines of `interop.official_process`.

It knows the commands that `cluster.fleet` gives: producer, push, send.
"""

import asyncio
import json
import sys
import time
from datetime import UTC, datetime
from typing import Any

import latermq
from latermq.errors import LaterMQError


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


class Clients:
    """The commands: every public method is one."""

    def __init__(self) -> None:
        self._clients: dict[str, latermq.Client] = {}
        self._running: list[asyncio.Task[None]] = []

    async def producer(self, name: str, endpoint: str, topics: list[str]) -> None:
        """Topics are asked for when something is sent."""
        self._clients[name] = latermq.connect(endpoint)

    async def push(
        self,
        name: str,
        endpoint: str,
        group: str,
        topics: dict[str, str],
        failures: dict[str, int],
        brief: bool,
    ) -> None:
        client = self._clients[name] = latermq.connect(endpoint)
        consumer = client.push_consumer(topics, group=group)

        @consumer.listener
        async def take(delivery: latermq.Delivery) -> None:
            line = {"event": "took", "consumer": name, "text": delivery.body.decode()}
            say({**line, "attempt": delivery.attempt, "at_ms": time.time_ns() // 1_000_000})

        await consumer.start()
        self._running.append(asyncio.create_task(consumer.run()))

    async def send(
        self, name: str, topic: str, text: str, message_group: str = "", deliver_at_ms: int = 0
    ) -> dict[str, str]:
        due = datetime.fromtimestamp(deliver_at_ms / 1_000, UTC) if deliver_at_ms else None
        receipt = await self._clients[name].send(
            topic, text.encode(), message_group=message_group or None, deliver_at=due
        )
        return {"message_id": receipt.message_id}


async def do(clients: Clients, command: dict[str, Any]) -> None:
    serial, what = command.pop("id"), command.pop("do")
    try:
        say({"id": serial, "ok": await getattr(clients, what)(**command)})
    except LaterMQError as error:
        line = {"error": type(error).__name__, "code": None, "message": str(error)}
        say({"id": serial, **line})


async def main() -> None:
    clients, at_work = Clients(), set[asyncio.Task[None]]()
    say({"event": "started"})
    while line := await asyncio.to_thread(sys.stdin.readline):
        task = asyncio.create_task(do(clients, json.loads(line)))
        at_work.add(task)
        task.add_done_callback(at_work.discard)


if __name__ == "__main__":
    asyncio.run(main())
