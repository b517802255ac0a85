"""Records of Kafka through workers, brokers and nodes that are killed: none is lost.

Every record is handled or dead in the end, and of each key in order where that is asked: the first
time that a record is done comes after the first time of each earlier one of its key.
"""

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from confluent_kafka import Producer

from latermq.testing import BrokerProcess
from support.kafka.cluster import KafkaCluster
from support.machine import patient

WORKER: Final = Path(__file__).with_name("kill_worker.py")
GROUP: Final = "billing"
PARTITIONS: Final = 4
KEYS: Final = 97
# Leases of a worker that was killed end after this; the SDK's heartbeats come every ten seconds.
CONFIG: Final = "[delivery]\nauto_renew_lease_ms = 12000\n"


class Workers:
    """Worker processes, some of which are killed; what they did is in one file."""

    def __init__(self, room: Path, kafka: KafkaCluster, broker: BrokerProcess) -> None:
        self.broker = broker
        self.kafka = kafka
        self._done = room / "done"
        self._log = room / "workers.log"
        self._words: list[str] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    def begin(self, topic: str, count: int, *, ordered: bool, retry: str) -> None:
        """Start them on a topic."""
        order = "ordered" if ordered else "any"
        words = [self.kafka.bootstrap, self.broker.endpoint, topic, GROUP, str(self._done)]
        self._words = [sys.executable, str(WORKER), *words, order, retry]
        self._processes = [self._spawn() for _ in range(count)]

    def kill(self, chance: random.Random) -> None:
        """kill -9 one of them, and start another."""
        index = chance.randrange(len(self._processes))
        self._processes[index].kill()
        self._processes[index].wait()
        self._processes[index] = self._spawn()

    def done(self) -> list[int]:
        """Return the numbers of the records that were done, in the order in which they were."""
        if not self._done.exists():
            return []
        return [int(line) for line in self._done.read_bytes().splitlines()]

    def did(self, count: int) -> bool:
        """Tell whether so many records were done, those that were done again counted."""
        return len(self.done()) >= count

    def until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait. Raises TimeoutError with what the workers said last."""
        end_s = time.monotonic() + patient(seconds)
        while not condition():
            if time.monotonic() > end_s:
                said = self._log.read_text("utf-8", "replace")[-2_000:]
                raise TimeoutError(f"{len(set(self.done()))} done\n{said}")
            time.sleep(0.1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(self._words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def produce(kafka: KafkaCluster, topic: str, numbers: range) -> None:
    """Send records, whose key says their partition; each is stored once."""
    settings = {"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "linger.ms": 20}
    producer = Producer(settings)
    for number in numbers:
        while True:
            try:
                producer.produce(topic, b"%d" % number, key_of(number))
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(patient(120)) == 0


def key_of(number: int) -> bytes:
    return b"key-%d" % (number % KEYS)


def out_of_order(done: list[int]) -> list[tuple[int, int]]:
    """List pairs of one key of which the later one was done first."""
    wrong: list[tuple[int, int]] = []
    last: dict[bytes, int] = {}
    for number in dict.fromkeys(done):
        before = last.setdefault(key_of(number), number)
        if before > number:
            wrong.append((before, number))
        last[key_of(number)] = max(before, number)
    return wrong
