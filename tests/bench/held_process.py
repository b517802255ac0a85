"""Run as a module: a user's test of a ladder on `latermq_time`, in a process of its own.

    python -m bench.held_process '{"runs": 10}'

Prints JSON: the CPU milliseconds of each run, from its broker's first use to its end.
"""

import asyncio
import json
import logging
import sys
import time

import latermq
from latermq.admin import AsyncAdmin
from latermq.testing import HeldBroker
from latermq_proto.latermq.v1 import group_pb2

LADDER_MS = (1_000, 5_000, 30_000)


async def ladder(broker: HeldBroker) -> None:
    """Send what always fails, and let the time pass until it is dead."""
    app = latermq.App()

    @app.listener("orders", group="billing")
    async def bill(order: bytes) -> None:
        raise ValueError("no card")

    wanted = group_pb2.Group(name="billing", max_attempts=len(LADDER_MS) + 1)
    wanted.backoff.ladder.delays_ms.extend(LADDER_MS)
    broker.call(AsyncAdmin.groups.CreateGroup, group_pb2.CreateGroupRequest(group=wanted))
    async with broker.working(app):
        await bill.send(b"17")
        await broker.advance("36s")
        assert len(broker.dead("billing")) == 1


def measured_ms() -> float:
    broker = HeldBroker()
    began = time.process_time()
    try:
        asyncio.run(ladder(broker))
    finally:
        broker.close()
    return (time.process_time() - began) * 1e3


def main() -> None:
    logging.disable()  # each attempt's traceback
    spec = json.loads(sys.argv[1])
    measured_ms()  # the first imports
    print(json.dumps([measured_ms() for _ in range(spec["runs"])]))


if __name__ == "__main__":
    main()
