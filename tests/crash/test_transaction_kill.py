"""kill -9 between half messages and their ends: what was promised of each holds.

Producers begin transactions and end them; the broker dies at a random moment and comes back, again
and again. In the end: what was committed with an OK was delivered, what was rolled back with an OK
never is, and what was begun with an OK and not ended is still open. An end whose answer was lost
may have happened or not, but not both.

    LATERMQ_CRASH_ROUNDS=1000 LATERMQ_CRASH_SEED=7 pytest tests/crash/test_transaction_kill.py
"""

import os
import random
import threading
from pathlib import Path
from typing import Final

import grpc
import pytest

from crash.under_kills import drained, work_under_kills
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from latermq_proto.latermq.v1 import pending_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.wire_client import WireClient, require_ok

ROUNDS: Final = min(int(os.environ.get("LATERMQ_CRASH_ROUNDS", "8")), 200)
SEED: Final = int(os.environ.get("LATERMQ_CRASH_SEED", "0")) or random.SystemRandom().getrandbits(
    32
)
PRODUCERS: Final = 3
COMMIT, ROLLBACK = definition_pb2.COMMIT, definition_pb2.ROLLBACK
CONFIG: Final = """
[store]
segment_bytes = 524288
message_body_bytes_max = 65536
checkpoint_records = 150
checkpoint_interval_ms = 300
[transaction]
first_check_ms = 50
"""


class Promises:
    """By message id; what was asked without an answer is not in here but in `maybe`."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.committed: set[str] = set()
        self.rolled_back: set[str] = set()
        self.maybe: set[str] = set()


def produce(endpoint: str, number: int, promises: Promises, stop: threading.Event) -> None:
    """Transactions one after the other until told to stop; each third is left open."""
    chance = random.Random(f"{SEED}-{number}")
    with WireClient(endpoint, f"producer@{number}@0@test") as wire:
        while not stop.is_set():
            made = wire_requests.message("orders", bytes(chance.randrange(1, 2_000)))
            made.system_properties.message_type = definition_pb2.TRANSACTION
            message_id = made.system_properties.message_id
            try:
                answer = wire.send(made)
            except grpc.RpcError:
                promises.maybe.add(message_id)
                continue
            require_ok(answer)
            promises.open.add(message_id)
            resolution = chance.choice((COMMIT, ROLLBACK, None))
            if resolution is None:
                continue
            request = service_pb2.EndTransactionRequest(
                topic=wire_requests.resource("orders"),
                message_id=message_id,
                transaction_id=answer.entries[0].transaction_id,
                resolution=resolution,
            )
            promises.open.remove(message_id)
            try:
                require_ok(wire.call(wire.messaging.EndTransaction, request))
            except grpc.RpcError:
                promises.maybe.add(message_id)
                continue
            ended = promises.committed if resolution == COMMIT else promises.rolled_back
            ended.add(message_id)


def still_open(wire: WireClient) -> set[str]:
    found: set[str] = set()
    token = ""
    while True:
        request = pending_pb2.ListPendingRequest(
            filter=pending_pb2.PendingFilter(kind=pending_pb2.HALF), page_token=token
        )
        answer = wire.call(wire.pending.ListPending, request)
        require_ok(answer)
        found |= {message.message_id for message in answer.messages}
        token = answer.next_page_token
        if not token:
            return found


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_every_end_is_kept(tmp_path: Path, flush: str) -> None:
    chance = random.Random(SEED)
    print(f"LATERMQ_CRASH_SEED={SEED}")
    promises = Promises()
    with BrokerProcess(tmp_path / "data", "--flush", flush, config=CONFIG) as broker:
        broker.start()
        work_under_kills(
            broker,
            lambda number, stop: produce(broker.endpoint, number, promises, stop),
            PRODUCERS,
            ROUNDS,
            chance,
        )
        with WireClient(broker.endpoint) as wire:
            messages = drained(wire, "orders", wait_ms=5_000)
            delivered = [one.system_properties.message_id for one in messages]
            opened = still_open(wire)
    assert promises.committed, "nothing was committed"
    assert len(delivered) == len(set(delivered)), "delivered twice"
    assert promises.committed <= set(delivered)
    assert not promises.rolled_back & (set(delivered) | opened)
    assert promises.open <= opened
    assert not opened & set(delivered)
    assert set(delivered) | opened <= promises.committed | promises.open | promises.maybe
