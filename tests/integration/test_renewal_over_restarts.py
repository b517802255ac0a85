"""A push consumer works on a message while its broker stops in order and comes again: it keeps it.

The lease is short, and nothing was renewed yet when the broker goes. Whoever waits beside it gets
nothing, and its one attempt is not used up.
"""

import asyncio
import os
from pathlib import Path
from typing import Final

import pytest

import latermq
from latermq_proto.latermq.v1 import dead_letter_pb2, pending_pb2
from support.broker_process import BrokerProcess
from support.wire_client import WireClient

LEASE_MS: Final = 4_000  # the broker looks at it after two seconds
PATIENCE_S: Final = 60
STOPS: Final = ["terminate", "replace"]


def restart(broker: BrokerProcess, how: str) -> None:
    if how == "replace":
        assert broker.replace().code == 0
        return
    assert broker.terminate().code == 0
    broker.start()


async def until_renewed(broker: BrokerProcess, deadline_ms: int, taken: list[str]) -> None:
    """Until the lease lasts longer than it was given for, or has ended."""
    with WireClient(broker.endpoint, "operator@1@0@test") as operator:
        async with asyncio.timeout(PATIENCE_S):
            while not taken and 0 < lease_deadline_ms(operator) <= deadline_ms:
                await asyncio.sleep(0.05)


def lease_deadline_ms(operator: WireClient) -> int:
    """Of the one message; 0: it is not leased."""
    wanted = pending_pb2.PendingFilter(kind=pending_pb2.IN_FLIGHT)
    answer = operator.call(
        operator.pending.ListPending, pending_pb2.ListPendingRequest(filter=wanted)
    )
    return max((message.due_at_ms for message in answer.messages), default=0)


@pytest.mark.parametrize("how", STOPS)
async def test_who_works_on_a_message_keeps_it_over_a_restart(tmp_path: Path, how: str) -> None:
    transport = os.environ.get("LATERMQ_SERVER_TRANSPORT", "lean")
    if how == "replace" and transport != "lean":
        pytest.skip("grpcio has no hand-over")
    began, go_on = asyncio.Event(), asyncio.Event()
    taken: list[str] = []  # by whom else
    config = f"[delivery]\nauto_renew_lease_ms = {LEASE_MS}\n"
    with BrokerProcess(tmp_path / "data", config=config) as broker:
        broker.start()
        with WireClient(broker.endpoint) as operator:
            operator.create_group("billing", 1)  # one attempt: a second is a dead letter
        async with latermq.connect(broker.endpoint) as mq, latermq.connect(broker.endpoint) as near:
            worker = mq.push_consumer("orders", group="billing")
            other = near.push_consumer("orders", group="billing")

            @worker.listener
            async def work(delivery: latermq.Delivery) -> None:
                began.set()
                await go_on.wait()

            @other.listener
            async def take(delivery: latermq.Delivery) -> None:
                taken.append(delivery.message_id)

            await mq.send("orders", b"one")
            async with worker, asyncio.timeout(PATIENCE_S):
                await began.wait()
                async with other:
                    with WireClient(broker.endpoint) as operator:
                        deadline_ms = lease_deadline_ms(operator)
                    await asyncio.to_thread(restart, broker, how)
                    await until_renewed(broker, deadline_ms, taken)
                    go_on.set()
        with WireClient(broker.endpoint) as operator:
            async with asyncio.timeout(PATIENCE_S):
                while lease_deadline_ms(operator):
                    await asyncio.sleep(0.05)
            letters = operator.call(
                operator.dead_letters.ListDeadLetters,
                dead_letter_pb2.ListDeadLettersRequest(group="billing"),
            ).letters
        assert (taken, list(letters)) == ([], [])
