"""Segments are dropped and the replicated log is trimmed while brokers follow it, join and die."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from latermq_broker.store.directory import LOG_NAME
from latermq_proto.latermq.v1 import broker_pb2
from support.machine import patient
from support.replica_process import LogServerProcess, ReplicaProcess
from support.retention_story import FILLER, TOPIC, Story, config
from support.wire_client import WireClient

TRIMMED = "the replicated log is trimmed"
WARM = "follows with an engine"
# Longer than nobody serves, so that nothing expires before it was there to be read; and than the
# note of a broker that was killed is old, so that what it lacks is still in the log.
RETENTION_MS = round(patient(12_000))
WAIT_MS_MAX = RETENTION_MS + 6_000


@pytest.fixture
def log_server() -> Iterator[LogServerProcess]:
    with LogServerProcess() as log_server:
        yield log_server


class Drill:
    """What is promised to clients of whoever owns the log, and the brokers of it."""

    def __init__(self, path: Path, log_server: LogServerProcess) -> None:
        self.story = Story(seed=13, wait_ms_max=WAIT_MS_MAX, retention_ms=RETENTION_MS)
        settings = config(RETENTION_MS)
        self.brokers = [ReplicaProcess(path / name, log_server, settings) for name in "abc"]
        self.owner = self.brokers[0]
        self.cut_off = 0  # calls

    def until_trimmed(self, times: int) -> None:
        """Have clients at work until the log was trimmed so often more."""
        wanted = self._trimmed() + times
        self._work(lambda: self._trimmed() >= wanted)

    def until_warm(self, broker: ReplicaProcess) -> None:
        """Have clients at work until a broker follows with an engine."""
        self._work(lambda: broker.logged(WARM) > 0)

    def kill_owner(self) -> ReplicaProcess:
        """Kill the owner, who is returned; another one has the log then."""
        before = self.owner
        before.kill()
        self._find_owner()
        return before

    def finish(self) -> broker_pb2.Broker:
        """Receive all there is; how the last owner was then."""
        seen: list[broker_pb2.Broker] = []

        def finished() -> bool:
            with WireClient(self.owner.endpoint) as wire:
                seen.append(self.story.finish(wire))
            return True

        self._work(finished)
        return seen[-1]

    def _trimmed(self) -> int:
        logs = [broker.log_path for broker in self.brokers if broker.log_path.exists()]
        return sum(path.read_text(encoding="utf-8").count(TRIMMED) for path in logs)

    def _work(self, over: Callable[[], bool]) -> None:
        """On a busy machine an owner may lose its proof for a moment, and its connections."""
        while True:
            try:
                with WireClient(self.owner.endpoint) as wire:
                    while not over():
                        self.story.round(wire)
                    return
            except grpc.RpcError:
                self.cut_off += 1
                self._find_owner()

    def _find_owner(self) -> None:
        """Find who serves now."""
        until_s = time.monotonic() + patient(30)
        while not (serving := [each for each in self.brokers if each.running and each.serves]):
            assert time.monotonic() < until_s, "nobody takes the log"
            time.sleep(0.02)
        self.owner = serving[-1]


def test_nothing_is_lost_where_the_log_is_trimmed(
    tmp_path: Path, log_server: LogServerProcess
) -> None:
    """One joins with nothing when most of the log is gone, and has it when all others have died."""
    drill = Drill(tmp_path, log_server)
    a, b, c = drill.brokers  # whom a busy machine may give the log to in another order
    with ExitStack() as running:
        for broker in drill.brokers:
            running.enter_context(broker)
        with WireClient(a.start().endpoint) as wire:
            wire.create_topic(TOPIC)
            wire.create_topic(FILLER)
        b.spawn()
        drill.until_warm(b)
        drill.until_trimmed(3)
        c.spawn()  # from an empty directory, while the front of the log goes
        drill.until_warm(c)
        drill.until_trimmed(2)
        first = drill.kill_owner()
        first.spawn()  # with less than the log has, and with segments that it lets go
        drill.until_warm(first)
        drill.until_trimmed(2)  # by the next owner
        drill.kill_owner()
        drill.until_trimmed(2)
        seen = drill.finish()
        story = drill.story
        assert not story.missing
        assert not story.early
        if not drill.cut_off:  # else a message may be there that was not answered for, or again
            story.check()
            assert seen.waiting.delayed == seen.waiting.backoff == 0
    assert len(story.expected) > 50
    for broker in drill.brokers:
        assert int(min((broker.data_dir / LOG_NAME).glob("*.seg")).stem) > 0
