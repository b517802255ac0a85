"""The working load beside an attack, in a process of its own: sends at fixed instants, and takes.

    python -m abuse.neighbour ENDPOINT ACCESS_KEY SECRET

Each send's latency counts from the instant it was due, so one that had to wait is as late as it
was. Lines on standard output, times of the monotonic clock in seconds:

    sent DUE_S LATENCY_MS | failed DUE_S WHY | came BODY | fresh DUE_S LATENCY_MS
"""

import asyncio
import sys
import time
from datetime import timedelta
from typing import Final

import latermq
from abuse.peer import MESSAGING, Caller, Peer, Target
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from support import wire_requests

TOPIC: Final = "neighbour"
EVERY_S: Final = 0.02
FRESH_EVERY_S: Final = 0.5
UNDER_WAY_MAX: Final = 500
FRESH: Final = "fresh:"  # begins why a newcomer was not served
BODY: Final = b"x" * 256
TIMEOUT: Final = timedelta(seconds=20)


def say(*words: object) -> None:
    print(*words, flush=True)


class Neighbour:
    def __init__(self, endpoint: str, access_key: str, secret: str) -> None:
        self._arguments = (endpoint, access_key, secret)
        host, _, port = endpoint.rpartition(":")
        self._target = Target(host, int(port), Caller(access_key, secret), source="127.0.0.1")
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        endpoint, access_key, secret = self._arguments
        client = latermq.connect(
            endpoint, access_key=access_key, secret=secret, batching=None, request_timeout=TIMEOUT,
            tls=False,
        )  # fmt: skip
        async with client as mq, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._take(mq))
            tasks.create_task(self._newcomers())
            await self._send_on_time(mq)

    async def _send_on_time(self, mq: latermq.Client) -> None:
        due_s = time.monotonic()
        while True:
            due_s += EVERY_S
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            if len(self._under_way) >= UNDER_WAY_MAX:
                say("failed", due_s, "too many others wait")
            else:
                sending = asyncio.create_task(self._send(mq, due_s))
                self._under_way.add(sending)
                sending.add_done_callback(self._under_way.discard)

    async def _send(self, mq: latermq.Client, due_s: float) -> None:
        try:
            await mq.send(TOPIC, BODY)
        except latermq.LaterMQError as error:
            say("failed", due_s, repr(error))
        else:
            say("sent", due_s, (time.monotonic() - due_s) * 1_000)

    async def _take(self, mq: latermq.Client) -> None:
        async for delivery in mq.push_consumer(TOPIC, group=TOPIC):
            async with delivery:
                pass
            say("came")

    async def _newcomers(self) -> None:
        """A connection of TLS, again and again: is anybody let in?"""
        while True:
            due_s = time.monotonic()
            try:
                async with asyncio.timeout(TIMEOUT.total_seconds()):
                    await self._come_and_send()
            except (OSError, TimeoutError) as error:
                say("failed", due_s, FRESH, repr(error))
            else:
                say("fresh", due_s, (time.monotonic() - due_s) * 1_000)
            await asyncio.sleep(FRESH_EVERY_S)

    async def _come_and_send(self) -> None:
        """By hand: a client of the SDK loads the system's certificates each time."""
        async with await Peer.open(self._target, tls=True) as peer:
            request = wire_requests.send([wire_requests.message(TOPIC, BODY)])
            answer = await peer.answered(peer.ask(f"{MESSAGING}/SendMessage", request), 60.0)
        sent = service_pb2.SendMessageResponse.FromString(answer.message)
        if sent.status.code != definition_pb2.Code.OK:
            raise ConnectionError(f"{peer.said}: {sent.status}")


if __name__ == "__main__":
    asyncio.run(Neighbour(*sys.argv[1:4]).run())
