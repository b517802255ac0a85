"""A broker process with small segments: many are dropped, what waits in them comes exactly once."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from latermq_proto.latermq.v1 import broker_pb2, topic_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient
from support.retention_story import Story, config
from support.wire_client import WireClient, require_ok

DAY_MS: Final = 86_400_000


def test_what_waits_outlives_its_segments(tmp_path: Path) -> None:
    story = Story(seed=11, wait_ms_max=9_000)
    with BrokerProcess(tmp_path / "data", config=config()) as broker:
        seen = story.run(broker, 24, restarts=2, rounds_min=30)
        story.check()
        assert not story.missing  # here nobody is given the time to miss any
        done = seen.retention
        assert done.segments_dropped >= 5, seen
        assert done.messages_moved >= 10, seen
        assert done.entries_expired > 500, seen
        assert seen.waiting.delayed == seen.waiting.backoff == 0
        assert broker.terminate().code == 0
    segments = sorted((tmp_path / "data" / "log").glob("*.seg"))
    assert int(segments[0].stem) > 15 << 20  # the whole story began far below
    assert len(segments) < 20
    verify = [sys.executable, "-m", "latermq_broker", "log", "verify", str(tmp_path / "data")]
    ended = subprocess.run(verify, capture_output=True, text=True, timeout=patient(60))
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_shorter_topic_takes_nothing_from_another(tmp_path: Path) -> None:
    """Read messages stay for who comes later, until the age of their own topic."""
    text = config(DAY_MS).replace("[store]", "[store]\nunread_retention_ms = 0")
    with BrokerProcess(tmp_path / "data", config=text) as broker:
        broker.start()
        with WireClient(broker.endpoint) as wire:
            wire.create_topic("short", retention_ms=1_000)
            wire.create_topic("orders")
            for topic in ("orders", "short", "short"):
                for _ in range(10):
                    require_ok(wire.send(*[wire_requests.message(topic, bytes(4_096))] * 60))
            assert len(wire.take("orders", "billing", 600, 30)) == 600
            until = time.monotonic() + patient(60)
            while kept(wire, "short") and time.monotonic() < until:
                time.sleep(0.2)
            assert (kept(wire, "short"), kept(wire, "orders")) == (0, 600)
            assert len(wire.take("orders", "audit", 600, 30)) == 600
        broker.kill()
        broker.start()
        with WireClient(broker.endpoint) as wire:
            assert len(wire.take("orders", "late", 600, 30)) == 600
            seen = wire.call(wire.brokers.GetBroker, broker_pb2.GetBrokerRequest()).broker
            assert seen.retention.entries_expired_early == 0
        assert broker.terminate().code == 0


def kept(wire: WireClient, name: str) -> int:
    """Count the messages in a topic's queues."""
    request = topic_pb2.GetTopicRequest(name=name)
    answer = wire.call(wire.topics.GetTopic, request)
    return sum(queue.next_offset - queue.earliest_offset for queue in answer.topic.queues)
