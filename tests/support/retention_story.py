"""A broker whose segments are small and soon old, and what must come through all the same.

Filler makes the log roll. Beside it messages wait for their time, and others are given back once
and wait for their second attempt; both for longer than a segment lives, so they are rolled forward,
some of them again and again. Each must come exactly as often as it should.
"""

import random
import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from latermq_proto.latermq.v1 import broker_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient, now_ms, require_ok

RETENTION_MS: Final = 3_000
_CONFIG: Final = """\
[store]
segment_bytes = 1048576
message_body_bytes_max = 131072
retention_ms = %d
checkpoint_interval_ms = 300
disk_full_percent = 0
disk_low_percent = 0
[server]
polling_ms_min = 100
"""


def config(retention_ms: int = RETENTION_MS) -> str:
    """Write settings by which a message goes `retention_ms` after it came due; see `Story`."""
    return _CONFIG % retention_ms


TOPIC: Final = "orders"
FILLER: Final = "filler"
GROUP: Final = "billing"
FILLER_BYTES: Final = 4_096
ROUND_S: Final = 0.2
RECEIVED_MAX: Final = 32  # of one receive
LATE_MS: Final = 1_000  # a tick, an answer


@dataclass
class Story:
    """What was promised, and what came.

    A message may be missing if nobody looked for so long that it could expire, on a machine that
    had no time for the reader: it then is in the broker's count of what expired unread.
    """

    seed: int
    wait_ms_max: int
    retention_ms: int = RETENTION_MS
    expected: dict[str, int] = field(default_factory=dict)  # body → how often it is to come
    came: Counter[str] = field(default_factory=Counter)
    early: list[str] = field(default_factory=list)
    attempts_wrong: list[str] = field(default_factory=list)
    expired_unread: int = 0  # the broker's own count, of all lives
    due: dict[str, int] = field(default_factory=dict)  # body → from when on it is to come (again)
    looked: list[int] = field(default_factory=list)  # when a receive had found nothing more

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._number = 0

    @property
    def missing(self) -> list[str]:
        return [body for body, count in self.expected.items() if self.came[body] < count]

    def expired(self, body: str) -> bool:
        """Tell whether nobody looked for a message while it was there."""
        due_ms = self.due[body]
        seen = bisect_left(self.looked, due_ms + LATE_MS)
        return seen == len(self.looked) or self.looked[seen] > due_ms + self.retention_ms - LATE_MS

    def round(self, wire: WireClient) -> None:
        """Some filler, three messages that wait, one to be given back; then what is there."""
        filler = wire_requests.message(FILLER, bytes(FILLER_BYTES))
        require_ok(wire.send(*[filler] * 60))
        for _ in range(3):
            wait_ms = self._chance.randrange(500, self.wait_ms_max)
            due_ms = now_ms() + wait_ms
            self._send(wire, f"wait {self._next()} {due_ms}", 1, due_ms)
        self._send(wire, f"again {self._next()} 0", 2)
        self.receive(wire)

    def receive(self, wire: WireClient) -> None:
        """Acknowledge what comes; what is to come twice is given back the first time."""
        began_ms = now_ms()
        got = wire.receive(TOPIC, GROUP, wait_ms=int(ROUND_S * 1_000))
        if len(got.messages) < RECEIVED_MAX:
            self.looked.append(began_ms)
        for message in got.messages:
            body = message.body.decode()
            handle = message.system_properties.receipt_handle
            self.came[body] += 1
            if int(body.split()[2]) > got.at_ms:
                self.early.append(body)
            if message.system_properties.delivery_attempt != self.came[body]:
                self.attempts_wrong.append(body)
            if self.came[body] < self.expected.get(body, 1):  # 1: its send was cut off
                wait_ms = self._chance.randrange(1_000, self.wait_ms_max)
                require_ok(wire.change_invisible(TOPIC, GROUP, handle, wait_ms))
                self.due[body] = now_ms() + wait_ms
            else:
                require_ok(wire.ack(TOPIC, GROUP, handle))

    def _send(self, wire: WireClient, body: str, count: int, due_ms: int = 0) -> None:
        require_ok(wire.send(wire_requests.message(TOPIC, body.encode(), deliver_at_ms=due_ms)))
        self.expected[body] = count
        self.due[body] = due_ms or now_ms()

    def _next(self) -> int:
        self._number += 1
        return self._number

    def run(
        self, broker: BrokerProcess, seconds: float, *, restarts: int, rounds_min: int = 0
    ) -> broker_pb2.Broker:
        """Rounds for `seconds`, with kills and stops in between, then until all has come.

        A life has `rounds_min` rounds even where a busy machine takes longer for them.

        Returns how the broker was at the end of its last life.
        """
        lives = restarts + 1
        began_s = time.monotonic()
        for life in range(lives):
            broker.start()
            with WireClient(broker.endpoint, f"life{life}@1@0@test") as wire:
                if not life:
                    wire.create_topic(TOPIC)
                    wire.create_topic(FILLER)
                until = began_s + seconds * (life + 1) / lives  # restarts take of it too
                rounds = 0
                while time.monotonic() < until or rounds < rounds_min:
                    began = time.monotonic()
                    self.round(wire)
                    rounds += 1
                    time.sleep(max(0.0, began + ROUND_S - time.monotonic()))
                if life == lives - 1:
                    return self.finish(wire)
                self._look(wire)
            if life % 2:
                assert broker.terminate().code == 0
            else:
                broker.kill()
        raise AssertionError("the last life returns")

    def finish(self, wire: WireClient) -> broker_pb2.Broker:
        until = time.monotonic() + self.wait_ms_max / 1_000 + patient(30)
        while self.missing and time.monotonic() < until:
            self.receive(wire)
        self.receive(wire)  # whatever comes too often
        return self._look(wire)

    def _look(self, wire: WireClient) -> broker_pb2.Broker:
        broker: broker_pb2.Broker = wire.call(
            wire.brokers.GetBroker, broker_pb2.GetBrokerRequest()
        ).broker
        self.expired_unread += broker.retention.entries_expired_unread
        return broker

    def check(self) -> None:
        """Everything came, exactly as often as it should, none early, attempts counted right."""
        missing, unread = self.missing, self.expired_unread
        lost = [body for body in missing if not self.expired(body)]
        assert not lost, (self.seed, lost[:5], len(missing), unread)
        assert len(missing) <= unread, (self.seed, missing[:5], len(missing), unread)
        assert not self.came - Counter(self.expected), self.seed
        assert not self.early, (self.seed, self.early[:5])
        assert not self.attempts_wrong, (self.seed, self.attempts_wrong[:5])
