"""Kill the broker that owns a replicated log, and say what a producer and a consumer saw.

The brokers' processes must be visible from here and belong to the same user, as in
docker/compose.cluster.yaml, where they share one process namespace.

    python -m latermq.demo.failover broker-1:8081 broker-2:8081 broker-3:8081
"""

import argparse
import asyncio
import os
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

import latermq
from latermq.demo.until_told import until_told
from latermq.demo.voice import Voice
from latermq.errors import LaterMQError

TOPIC: Final = "failover"
GROUP: Final = "failover-audit"
SENDS: Final = 40  # before the owner is killed, and again after it
PACE_S: Final = 0.02
CONNECT_S: Final = 1.0


class Sender:
    """Sends one message after another, whatever becomes of the broker."""

    def __init__(self, mq: latermq.Client) -> None:
        self._mq = mq
        self.told_s = time.monotonic()  # when the last one was acknowledged
        self.silence_s = 0.0  # the longest time between two
        self.acknowledged: set[str] = set()

    async def send(self, count: int) -> None:
        """Return when so many more were acknowledged."""
        wanted = len(self.acknowledged) + count
        while len(self.acknowledged) < wanted:
            with suppress(LaterMQError):  # its fate is unknown; the next one is another message
                receipt = await self._mq.send(TOPIC, b"still there?")
                now_s = time.monotonic()
                self.silence_s = max(self.silence_s, now_s - self.told_s)
                self.told_s = now_s
                self.acknowledged.add(receipt.message_id)
            await asyncio.sleep(PACE_S)


async def received(mq: latermq.Client, wanted: set[str]) -> Counter[str]:
    """Receive and acknowledge until all of `wanted` came, and nothing more does."""
    came: Counter[str] = Counter()
    consumer = mq.simple_consumer(TOPIC, group=GROUP)
    while True:
        deliveries = await consumer.receive(32)
        for delivery in deliveries:
            came[delivery.message_id] += 1
            await delivery.ack()
        if not deliveries and wanted <= came.keys():
            return came


async def owner_of(brokers: list[str]) -> str:
    """Wait until one of the brokers listens: the owner, and nobody else."""
    while True:
        for broker in brokers:
            host, _, port = broker.rpartition(":")
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_S):
                    _, writer = await asyncio.open_connection(host, int(port))
                writer.close()
                return broker
        await asyncio.sleep(PACE_S)


def process_of(broker: str) -> int:
    """Find the process that was told to listen there."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (place / "cmdline").read_bytes().split(b"\0")
            if b"serve" in words and broker.encode() in words:
                return int(place.name)
    raise SystemExit(f"no process listens for {broker} here")


async def run(options: argparse.Namespace) -> None:
    voice = Voice(as_events=options.events)
    async with latermq.connect(options.endpoint) as mq:
        sender = Sender(mq)
        await sender.send(SENDS)
        owner = await owner_of(options.brokers)
        process = process_of(owner)
        voice.say("owner", f"{owner} owns the log and acknowledged {SENDS} messages")
        sender.silence_s = 0.0
        os.kill(process, signal.SIGKILL)
        voice.say("killed", f"kill -9 of its process {process}")
        await sender.send(SENDS)
        after, silence_s = await owner_of(options.brokers), sender.silence_s
        voice.say(
            "took over", f"{after} owns it now; nothing was acknowledged for {silence_s:.1f} s"
        )
        came = await received(mq, sender.acknowledged)
        again = sum(count > 1 for count in came.values())
        voice.say(
            "received",
            f"{len(sender.acknowledged)} were acknowledged, all of them came, {again} twice",
            lost=0,
            again=again,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="latermq.demo.failover", description="Kill the owner of a replicated log."
    )
    parser.add_argument("brokers", nargs="+", metavar="H:P", help="as each was told to listen")
    parser.add_argument(
        "--endpoint", default=os.environ.get("LATERMQ_ENDPOINT", "127.0.0.1:8081"), metavar="H:P"
    )
    parser.add_argument("--events", action="store_true", help="say it in JSON")
    until_told(run(parser.parse_args()))


if __name__ == "__main__":
    main()
