"""kill -9 under senders that send again: what has one dedup id is one message, whoever asks when.

Senders try each id until it is acknowledged, and some ids again later, from whichever of them; the
broker dies at a random moment and comes back. Every answer about an id names one message, and in
the end each id was delivered once, as that message.

    LATERMQ_CRASH_ROUNDS=200 LATERMQ_CRASH_SEED=7 pytest tests/crash/test_dedup_kill.py
"""

import os
import random
import threading
import time
from pathlib import Path
from typing import Final

import grpc

from crash.under_kills import drained, work_under_kills
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.wire_client import WireClient, require_ok

ROUNDS: Final = min(int(os.environ.get("LATERMQ_CRASH_ROUNDS", "5")), 200)
SEED: Final = int(os.environ.get("LATERMQ_CRASH_SEED", "0")) or random.SystemRandom().getrandbits(
    32
)
SENDERS: Final = 3
WAITS_MS: Final = (0, 0, 50)
CONFIG: Final = """
[store]
segment_bytes = 524288
message_body_bytes_max = 65536
checkpoint_records = 150
checkpoint_interval_ms = 300
[dedup]
window_ms = 3600000
"""


class Answers:
    """What was told of each id; shared by all senders."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}  # dedup id → message id
        self.others: list[tuple[str, str, str]] = []  # an id of which another message was told
        self.duplicates = 0
        self._lock = threading.Lock()

    def take(self, dedup_id: str, message_id: str, *, duplicate: bool) -> None:
        with self._lock:
            known = self.told.setdefault(dedup_id, message_id)
            self.duplicates += duplicate
            if known != message_id:
                self.others.append((dedup_id, known, message_id))

    def any(self, chance: random.Random) -> str:
        with self._lock:
            return chance.choice(list(self.told)) if self.told else "first"


def send_again(endpoint: str, number: int, answers: Answers, stop: threading.Event) -> None:
    """Ids of its own and of others, one or some a call, each call until it is answered.

    A fast machine makes as many ids as the broker keeps; from then on known ones are sent again.
    """
    chance = random.Random(f"{SEED}-{number}")
    made = 0
    full = False
    with WireClient(endpoint, f"sender@{number}@0@test") as wire:
        while not stop.is_set():
            ids = []
            for _ in range(chance.choice((1, 1, 3))):
                made += chance.random() < 0.6
                own = f"{number}-{made}"
                own_now = chance.random() < 0.7 and not full
                ids.append(own if own_now else answers.any(chance))
            while True:
                wait_ms = chance.choice(WAITS_MS)
                due_ms = int(time.time() * 1_000) + wait_ms if wait_ms else 0
                batch = [
                    wire_requests.message(
                        "orders",
                        dedup_id.encode(),
                        properties={"LATERMQ_DEDUP_ID": dedup_id},
                        deliver_at_ms=due_ms,
                    )
                    for dedup_id in ids
                ]
                try:
                    answer = wire.send(*batch)
                    break
                except grpc.RpcError:  # stored or not: sent again, as other messages
                    continue
            if answer.status.code == definition_pb2.Code.TOO_MANY_REQUESTS:
                full = True  # and nothing of the call is stored
                continue
            require_ok(answer)
            for dedup_id, entry in zip(ids, answer.entries, strict=True):
                duplicate = entry.status.message == "DUPLICATE"
                answers.take(dedup_id, entry.message_id, duplicate=duplicate)


def test_an_id_is_one_message(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print(f"LATERMQ_CRASH_SEED={SEED}")
    answers = Answers()
    flush = chance.choice(("async", "sync"))
    with BrokerProcess(tmp_path / "data", "--flush", flush, config=CONFIG) as broker:
        broker.start()
        work_under_kills(
            broker,
            lambda number, stop: send_again(broker.endpoint, number, answers, stop),
            SENDERS,
            ROUNDS,
            chance,
        )
        with WireClient(broker.endpoint) as wire:
            delivered = [
                (one.body.decode(), one.system_properties.message_id)
                for one in drained(wire, "orders", wait_ms=1_000)
            ]
    print(len(answers.told), "ids,", answers.duplicates, "duplicates")
    assert answers.duplicates, "nothing was sent twice"
    assert not answers.others
    assert sorted(delivered) == sorted(answers.told.items())
