"""An SDK client that sends and receives without pause, for brokers that come and go; keeps book."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Final, Literal

import latermq

SENDERS: Final = 8
PAUSE_S: Final = 0.005  # others need the processor too
UNREAD_MAX: Final = 1_000  # sent and not received yet; then it waits, else a long test ends behind
WAIT: Final = timedelta(seconds=2)  # of a receive
INVISIBLE: Final = timedelta(minutes=5)  # no lease ends by itself during a test


class BusySdk:
    """Runs in `asyncio.run(run(...))`, best in a thread of its own."""

    def __init__(self, endpoint: str, topic: str, transport: Literal["lean", "grpcio"]) -> None:
        self.sent: set[bytes] = set()
        self.acknowledged: Counter[bytes] = Counter()
        self.errors: list[str] = []
        self._endpoint = endpoint
        self._topic = topic
        self._transport = transport
        self._over = False
        self._all_sent = False

    def stop(self) -> None:
        """Send no more; `run` ends when all that was sent is acknowledged."""
        self._over = True

    async def run(self, finish_s: float) -> None:
        """Until `stop`, and then at most `finish_s`. Raises TimeoutError."""
        async with latermq.connect(self._endpoint, transport=self._transport) as mq:
            receiving = asyncio.create_task(self._receive(mq))
            await asyncio.gather(*(self._send(mq, worker) for worker in range(SENDERS)))
            self._all_sent = True  # not at `stop`: each sender may have a send under way then
            await asyncio.wait_for(receiving, finish_s)

    async def _send(self, mq: latermq.Client, worker: int) -> None:
        number = 0
        while not self._over:
            await asyncio.sleep(PAUSE_S)
            if len(self.sent) - len(self.acknowledged) >= UNREAD_MAX:
                continue
            body = b"%d-%d" % (worker, number)
            number += 1
            try:
                await mq.send(self._topic, body)
            except latermq.LaterMQError as error:
                self.errors.append(f"send: {error!r}")
            else:
                self.sent.add(body)

    async def _receive(self, mq: latermq.Client) -> None:
        async with mq.simple_consumer(self._topic, group=self._topic) as consumer:
            while not self._all_sent or len(self.acknowledged) < len(self.sent):
                try:
                    for each in await consumer.receive(32, invisible=INVISIBLE, wait=WAIT):
                        await each.ack()
                        self.acknowledged[each.body] += 1
                except latermq.LaterMQError as error:
                    self.errors.append(f"receive: {error!r}")
