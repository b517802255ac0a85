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
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Final

import pytest

from crash.load import Load
from crash.read_back import ALWAYS, Promises, make_names, read_back
from support.broker_nursery import Nursery
from support.broker_process import BrokerProcess, Ended

ROUNDS: Final = int(os.environ.get("LATERMQ_CRASH_ROUNDS", "200"))
SEED: Final = int(os.environ.get("LATERMQ_CRASH_SEED", "0")) or random.SystemRandom().getrandbits(
    32
)
FLUSHES: Final = ("async", "sync", "none", "sync-strict")
RETENTION_MS: Final = {"none": 3_000}  # there old segments are rolled forward and go; else never

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


class Crashes(Promises):
    """One broker, many lives."""

    def __init__(
        self, data_dir: Path, flush: str, rng: random.Random, nursery: Nursery | None
    ) -> None:
        arguments = ("--flush", flush)
        retention_ms = RETENTION_MS.get(flush, 0)
        super().__init__(rng, retention_ms)
        config = CONFIG.format(retention_ms=retention_ms)
        self.broker = BrokerProcess(data_dir, *arguments, config=config, nursery=nursery)
        self.ends: Counter[str] = Counter()
        self.unfinished: Counter[str] = Counter()  # suffixes of the files that deaths left behind
        self._rng = rng
        self._data_dir = data_dir

    def prepare(self) -> None:
        self.broker.start()
        make_names(self.broker.endpoint)

    async def live(self, end: End) -> None:
        """Run the load on the broker that serves, end it, and start the next one."""
        self.ends[end.value] += 1
        if end is not End.STARTING:
            load = Load(self.broker.endpoint, self.ledger, self._rng, self.topics, self.anew)
            await load.run(self._end(end))
            self._complain(load.errors, end)
        else:
            self._note(self.broker.kill(), end)
        self.crashed()
        while end is End.STARTING:
            self.broker.spawn()
            await asyncio.sleep(self._rng.random() * 0.06)
            self._note(self.broker.kill(), end)
            if self._rng.random() < 0.7:
                break
        await asyncio.to_thread(self.broker.start)

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
        read_back(crashes, crashes.broker.endpoint)
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
