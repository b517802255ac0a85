"""A broker process with small segments: many are dropped, what waits in them comes exactly once."""

import subprocess
import sys
from pathlib import Path

from support.broker_process import BrokerProcess
from support.machine import patient
from support.retention_story import Story, config


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
