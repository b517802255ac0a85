"""kill -9 at any moment: nothing acknowledged is lost, nothing settled comes back.

A broker with tiny segments and frequent checkpoints serves a busy load and dies again and again:
while serving, while it recovers, as a checkpoint or a new segment appears, while it drains. In the
end everything is read back and held against the ledger of what clients were promised.

A nursery forks the brokers, so that a life costs tenths of a second; segments and checkpoints are
small enough that every few lives end in the middle of one.

    LATERMQ_CRASH_ROUNDS=1000 LATERMQ_CRASH_SEED=7 pytest tests/crash/test_kill.py
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Final

import pytest

from crash.load import ATTEMPTS_MAX, AUDIT, FAR_MS, LADDER_MS, PUSH_CLIENT, TOPIC, WORKERS, Load
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import group_pb2, pending_pb2, topic_pb2
from support import anew_client
from support.anew_client import Anew
from support.broker_nursery import Nursery
from support.broker_process import BrokerProcess, Ended
from support.ledger import Delivery, Ledger
from support.machine import patient
from support.wire_client import WireClient, now_ms, require_ok

ROUNDS: Final = int(os.environ.get("LATERMQ_CRASH_ROUNDS", "200"))
SEED: Final = int(os.environ.get("LATERMQ_CRASH_SEED", "0")) or random.SystemRandom().getrandbits(
    32
)
FLUSHES: Final = ("async", "sync", "none", "sync-strict")
RETENTION_MS: Final = {"none": 3_000}  # there old segments are rolled forward and go; else never
DRAIN_S_MAX: Final = patient(60)
ALWAYS: Final = 1 << 62

CONFIG: Final = """
[store]
segment_bytes = 524288
message_body_bytes_max = 65536
sync_interval_ms = 20
checkpoint_records = 150
checkpoint_bytes = 131072
checkpoint_interval_ms = 300
retention_ms = {retention_ms}
[delivery]
receive_batch_max = 256
[server]
polling_ms_min = 50
drain_ms_max = 500
"""


class End(Enum):
    """How one life of the broker ends."""

    SERVING = "while serving"
    STARTING = "while it starts"
    CHECKPOINT = "as a checkpoint appears"
    RUN = "as a timer run appears"
    SEGMENT = "as a segment appears"
    STOP = "stopped"  # SIGTERM
    STOPPING = "while it stops"  # SIGTERM, and kill -9 before it is done


HOW_OFTEN: Final = {
    End.SERVING: 18, End.STARTING: 8, End.CHECKPOINT: 5, End.RUN: 2, End.SEGMENT: 4,
    End.STOP: 1, End.STOPPING: 3,
}  # fmt: skip
FOLDERS: Final = {End.CHECKPOINT: "ckpt", End.RUN: "timer", End.SEGMENT: "log"}


class Crashes:
    """One broker, many lives."""

    def __init__(
        self, data_dir: Path, flush: str, rng: random.Random, nursery: Nursery | None
    ) -> None:
        arguments = ("--flush", flush)
        retention_ms = RETENTION_MS.get(flush, 0)
        config = CONFIG.format(retention_ms=retention_ms)
        self.broker = BrokerProcess(data_dir, *arguments, config=config, nursery=nursery)
        self.ends: Counter[str] = Counter()
        attempts_max = {WORKERS: ATTEMPTS_MAX, AUDIT: 1 << 30}
        self.ledger = Ledger(attempts_max, retention_ms=retention_ms)
        self.anew = Anew(rng, retention_ms)
        self.topics: set[str] = set()
        self.complaints: list[str] = []
        self.unfinished: Counter[str] = Counter()  # suffixes of the files that deaths left behind
        self._rng = rng
        self._data_dir = data_dir

    def prepare(self) -> None:
        self.broker.start()
        with WireClient(self.broker.endpoint) as wire:
            wire.create_topic(TOPIC)
            wire.create_group(WORKERS, ATTEMPTS_MAX, LADDER_MS)
            wire.create_group(AUDIT, 0)
            wire.create_group(anew_client.GROUP, anew_client.ATTEMPTS_MAX, anew_client.LADDER_MS)

    async def live(self, end: End) -> None:
        """Run the load on the broker that serves, end it, and start the next one."""
        self.ends[end.value] += 1
        if end is not End.STARTING:
            load = Load(self.broker.endpoint, self.ledger, self._rng, self.topics, self.anew)
            await load.run(self._end(end))
            self._complain(load.errors, end)
        else:
            self._note(self.broker.kill(), end)
        self.ledger.crashed()
        self.anew.ledger.crashed()
        while end is End.STARTING:
            self.broker.spawn()
            await asyncio.sleep(self._rng.random() * 0.06)
            self._note(self.broker.kill(), end)
            if self._rng.random() < 0.7:
                break
        await asyncio.to_thread(self.broker.start)

    def check(self) -> None:
        """Raises AssertionError with every promise broken so far."""
        broken = [*self.complaints, *self.ledger.violations, *self.anew.ledger.violations]
        summaries = [self.ledger.summary(), self.anew.ledger.summary()]
        assert not broken, "\n".join([*summaries, *broken])

    async def _end(self, end: End) -> None:
        rng = self._rng
        if end in FOLDERS:
            await asyncio.to_thread(self._kill_when_new, FOLDERS[end], 0.7)
        else:
            await asyncio.sleep(rng.choice((0.03, 0.03, 0.2, 0.5)) * rng.random())
        if end is End.STOP:
            self._note(await asyncio.to_thread(self.broker.terminate), end)
            return
        if end is End.STOPPING:
            os.kill(self.broker.pid, signal.SIGTERM)
            await asyncio.sleep(rng.random() * 0.15)
        self._note(self.broker.kill(), end)
        names = [*os.listdir(self._data_dir / "ckpt"), *os.listdir(self._data_dir / "log")]
        self.unfinished.update(Path(name).suffix for name in names)

    def _kill_when_new(self, folder: str, wait_s: float) -> None:
        """Kill as soon as a new file is there, or a moment later; or when the time is over."""
        directory = self._data_dir / folder
        known = set(os.listdir(directory))
        until = time.monotonic() + wait_s
        while time.monotonic() < until and known.issuperset(os.listdir(directory)):
            time.sleep(0.0001)
        time.sleep(self._rng.choice((0.0, 0.0, 0.0, 0.001, 0.005)))
        os.kill(self.broker.pid, signal.SIGKILL)

    def _complain(self, errors: Iterable[str], end: End) -> None:
        """A broker that was asked to stop may cancel calls; nothing else excuses an error."""
        stopping = end in (End.STOP, End.STOPPING)
        self.complaints += [
            f"{end.name}: {error}"
            for error in errors
            if not (stopping and "StatusCode.CANCELLED" in error)
        ]

    def _note(self, ended: Ended, end: End) -> None:
        expected = (0,) if end is End.STOP else (-9, 0) if end is End.STOPPING else (-9,)
        if ended.code not in expected:
            self.complaints.append(f"{end.name}: it ended with {ended.code}\n{ended.stderr}")
        for line in ended.stderr.splitlines():
            if any(word in line for word in ("ERROR", "CRITICAL", "Traceback")):
                self.complaints.append(f"{end.name}: {line}")


def read_back(crashes: Crashes) -> None:
    """Receive everything there is, for every group, and compare."""
    ledger = crashes.ledger
    endpoint = crashes.broker.endpoint
    soon_ms = now_ms() + FAR_MS // 2
    with WireClient(endpoint, PUSH_CLIENT) as push:
        push.announce_push_consumer(TOPIC, WORKERS)
        assert push.leave(WORKERS).code == definition_pb2.Code.OK
    for message_id in ledger.messages:
        ledger.freed(WORKERS, message_id)
    with WireClient(endpoint) as wire:
        near_ms = max(sent.due_ms for sent in ledger.messages.values() if sent.due_ms <= soon_ms)
        drain(wire, ledger, WORKERS, lambda: now_ms() > near_ms and not left_in(wire, WORKERS))
        read_dead_letters(wire, ledger)
        read_back_anew(wire, crashes.anew.ledger)
        gone = old_enough(ledger)
        ledger.check_drained(WORKERS, soon_ms, gone)
        drain(wire, ledger, AUDIT, lambda: not left_in(wire, AUDIT))
        ledger.check_drained(AUDIT, soon_ms, gone | old_enough(ledger))
        waiting = list(still_delayed(wire))
        assert len(waiting) == len(set(waiting))
        assert set(waiting) >= set(ledger.stored(ALWAYS)) - set(ledger.stored(soon_ms))
        assert set(waiting) <= {i for i, sent in ledger.messages.items() if sent.due_ms > soon_ms}
        listed = wire.call(wire.topics.ListTopics, topic_pb2.ListTopicsRequest(page_size=1000))
        assert crashes.topics <= {topic.name for topic in listed.topics}


def read_back_anew(wire: WireClient, ledger: Ledger) -> None:
    """The same for what was made anew: by now it is due."""
    topic, group = anew_client.TOPIC, anew_client.GROUP
    described = wire.call(wire.topics.GetTopic, topic_pb2.GetTopicRequest(name=topic))
    ledger.found_topic(described.topic.epoch)
    wire.create_group(group, anew_client.ATTEMPTS_MAX, anew_client.LADDER_MS)
    gone = old_enough(ledger)
    ledger.receiving(group, None, now_ms())
    drain(wire, ledger, group, lambda: not left_in(wire, group, topic), topic)
    read_dead_letters(wire, ledger, group, topic)
    ledger.check_drained(group, now_ms(), gone | old_enough(ledger))


def old_enough(ledger: Ledger) -> frozenset[str]:
    """What retention may have taken before somebody received it."""
    latest_ms = now_ms() - ledger.retention_ms
    return frozenset(
        message_id
        for message_id, message in ledger.messages.items()
        if ledger.retention_ms and max(message.sent_ms, message.due_ms) <= latest_ms
    )


def drain(
    wire: WireClient, ledger: Ledger, group: str, done: Callable[[], bool], topic: str = TOPIC
) -> None:
    until = time.monotonic() + DRAIN_S_MAX
    while time.monotonic() < until:
        asked_ms = now_ms()
        got = wire.receive(topic, group, count_max=256, wait_ms=300, invisible_ms=60_000)
        for message in got.messages:
            system = message.system_properties
            ledger.delivered(
                group,
                Delivery(
                    system.message_id,
                    message.body,
                    system.delivery_attempt,
                    system.receipt_handle,
                    asked_ms,
                    got.broker_ms,
                    got.at_ms,
                    60_000,
                ),
            )
            ledger.acking(group, system.message_id)
        if got.messages:
            handles = [message.system_properties.receipt_handle for message in got.messages]
            require_ok(wire.ack(topic, group, *handles))
            for message in got.messages:
                system = message.system_properties
                ledger.acked(
                    group, system.message_id, system.receipt_handle, accepted=True, at_ms=0
                )
        elif done():
            return
    raise AssertionError(f"{left_in(wire, group, topic)} messages of {group} do not come")


def left_in(wire: WireClient, group: str, of: str = TOPIC) -> int:
    """Ready, leased and waiting, by the broker's own account."""
    answer = wire.call(wire.groups.GetGroup, group_pb2.GetGroupRequest(name=group))
    require_ok(answer)
    return sum(
        topic.ready_count + topic.in_flight_count + topic.backoff_count
        for topic in answer.group.topics
        if topic.topic == of
    )


def read_dead_letters(
    wire: WireClient, ledger: Ledger, group: str = WORKERS, topic: str = TOPIC
) -> None:
    answer = wire.call(wire.groups.GetGroup, group_pb2.GetGroupRequest(name=group))
    count = answer.group.dead_letter_count
    for letter in wire.take(f"%DLQ%{group}", "undertaker", count, DRAIN_S_MAX):
        origin = letter.system_properties.dead_letter_queue
        assert origin.topic == topic
        ledger.died(group, origin.message_id, letter.body)


def still_delayed(wire: WireClient) -> Iterator[str]:
    """Message ids still waiting for their time."""
    token = ""
    while True:
        request = pending_pb2.ListPendingRequest(
            filter=pending_pb2.PendingFilter(topic=TOPIC, kind=pending_pb2.PendingKind.DELAYED),
            page_size=1000,
            page_token=token,
        )
        answer = wire.call(wire.pending.ListPending, request)
        require_ok(answer)
        for waiting in answer.messages:
            yield waiting.message_id
        token = answer.next_page_token
        if not token:
            return


def kill_history(
    data_dir: Path, flush: str, rng: random.Random, rounds: int, nursery: Nursery | None = None
) -> Crashes:
    """So many lives of one broker on one directory, and everything read back in the end.

    Raises AssertionError with every promise broken.
    """
    crashes = Crashes(data_dir, flush, rng, nursery)

    async def live() -> None:
        for _ in range(rounds):
            [end] = rng.choices(list(HOW_OFTEN), list(HOW_OFTEN.values()))
            await crashes.live(end)
            crashes.check()

    with crashes.broker:
        crashes.prepare()
        asyncio.run(live())
        read_back(crashes)
        assert crashes.broker.terminate().code == 0
    crashes.check()
    return crashes


@pytest.mark.timeout(60 + ROUNDS * 4)
@pytest.mark.parametrize("flush", FLUSHES)
def test_kill_loses_nothing_and_repeats_nothing(tmp_path: Path, flush: str) -> None:
    print(f"LATERMQ_CRASH_SEED={SEED} LATERMQ_CRASH_ROUNDS={ROUNDS}")  # shown when it fails
    rounds = ROUNDS // len(FLUSHES)
    with Nursery() as nursery:
        rng = random.Random(f"{SEED} {flush}")
        crashes = kill_history(tmp_path / "data", flush, rng, rounds, nursery)
    print(crashes.anew.ledger.summary(), dict(crashes.anew.counts))
    print(crashes.ledger.summary(), dict(crashes.ends), "left behind", dict(crashes.unfinished))
    assert sum(1 for _ in crashes.ledger.stored(ALWAYS)) > rounds  # it did work
