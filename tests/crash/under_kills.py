"""Work on a broker that gets kill -9 again and again, and what it has in the end."""

import random
import threading
import time
from collections.abc import Callable
from typing import Final

from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support.broker_process import BrokerProcess
from support.wire_client import WireClient, require_ok

LIFE_S_MAX: Final = 0.4


def work_under_kills(
    broker: BrokerProcess,
    work: Callable[[int, threading.Event], None],
    workers: int,
    rounds: int,
    chance: random.Random,
) -> None:
    """Kill and start the broker at random moments of its work; afterwards it runs.

    Args:
        work: called in a thread of each worker, with its number, until the event is set.
    """
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(number, stop)) for number in range(workers)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(rounds):
            time.sleep(chance.uniform(0.05, LIFE_S_MAX))
            broker.kill()
            broker.start()
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def drained(wire: WireClient, topic: str, *, wait_ms: int) -> list[definition_pb2.Message]:
    """Receive all that a topic has, and acknowledge it."""
    found: list[definition_pb2.Message] = []
    while messages := wire.receive(topic, "audit", wait_ms=wait_ms).messages:
        handles = [one.system_properties.receipt_handle for one in messages]
        require_ok(wire.ack(topic, "audit", *handles))
        found += messages
    return found
