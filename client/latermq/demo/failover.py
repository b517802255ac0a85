"""Kill a broker with the shards that it owns, and say what a producer and a consumer saw.

Shard n is at each broker's port + n, which is open where it is owned. The brokers' processes must
be visible from here and belong to the same user, as in docker/compose.cluster.yaml, where they
share one process namespace.

    python -m latermq.demo.failover --shards 6 broker-1:8081 broker-2:8081 broker-3:8081
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
SENDS: Final = 40  # before the broker is killed, and again after it
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


def shard_at(broker: str, shard: int) -> tuple[str, int]:
    """Return where a broker listens for a shard if it owns it."""
    host, _, port = broker.rpartition(":")
    return host, int(port) + shard


async def owner_of(brokers: list[str], shard: int) -> str:
    """Wait until one of the brokers owns the shard: it listens, and nobody else."""
    while True:
        for broker in brokers:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_S):
                    _, writer = await asyncio.open_connection(*shard_at(broker, shard))
                writer.close()
                return broker
        await asyncio.sleep(PACE_S)


async def owners_of(brokers: list[str], shards: list[int]) -> dict[int, str]:
    """Wait until each of the shards has an owner; who that is."""
    return {shard: await owner_of(brokers, shard) for shard in shards}


def processes_of(broker: str) -> list[int]:
    """Find the processes of a broker: one for each shard, and who started them."""
    listens = f"{broker.rpartition(':')[0]}:".encode()
    processes = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (place / "cmdline").read_bytes().split(b"\0")
            if b"serve" in words and any(word.startswith(listens) for word in words):
                processes.append(int(place.name))
    if not processes:
        raise SystemExit(f"no process listens for {broker} here")
    return sorted(processes)  # who started the others first, or it would start them again


async def run(options: argparse.Namespace) -> None:
    voice = Voice(as_events=options.events)
    async with latermq.connect(options.endpoint) as mq:
        sender = Sender(mq)
        await sender.send(SENDS)
        owners = await owners_of(options.brokers, list(range(options.shards)))
        owner = owners[0]
        lost = [shard for shard in owners if owners[shard] == owner]
        voice.say(
            "owner", f"{owner} owns shards {listed(lost)}; {SENDS} messages were acknowledged"
        )
        processes = processes_of(owner)
        sender.silence_s = 0.0
        killed_s = time.monotonic()
        for process in processes:
            with suppress(ProcessLookupError):  # a container ends with its first process
                os.kill(process, signal.SIGKILL)
        while any(Path(f"/proc/{process}").exists() for process in processes):
            await asyncio.sleep(PACE_S)  # their ports are open until they are gone
        voice.say("killed", f"kill -9 of its {len(processes)} processes")
        sending = asyncio.create_task(sender.send(SENDS))
        after = await owners_of(options.brokers, lost)
        served_s = time.monotonic() - killed_s
        took_over = {
            broker: [at for at in lost if after[at] == broker] for broker in after.values()
        }
        whose = ", ".join(f"{broker} owns {listed(shards)}" for broker, shards in took_over.items())
        voice.say("took over", f"{whose} now, after {served_s:.1f} s")
        await sending
        await sender.send(SENDS)
        voice.say("sent", f"nothing was acknowledged for {sender.silence_s:.1f} s at the most")
        came = await received(mq, sender.acknowledged)
        again = sum(count > 1 for count in came.values())
        voice.say(
            "received",
            f"{len(sender.acknowledged)} were acknowledged, all of them came, {again} twice",
            lost=0,
            again=again,
        )


def listed(numbers: list[int]) -> str:
    """Return them as text."""
    return " and ".join(map(str, numbers))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="latermq.demo.failover", description="Kill a broker with the shards that it owns."
    )
    parser.add_argument("brokers", nargs="+", metavar="H:P", help="as each was told to listen")
    parser.add_argument("--shards", type=int, default=1, metavar="N", help="as they were told")
    parser.add_argument(
        "--endpoint", default=os.environ.get("LATERMQ_ENDPOINT", "127.0.0.1:8081"), metavar="H:P"
    )
    parser.add_argument("--events", action="store_true", help="say it in JSON")
    until_told(run(parser.parse_args()))


if __name__ == "__main__":
    main()
