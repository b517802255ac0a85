"""An owner whose disk hangs: another broker serves, the owner ends, and nothing is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from latermq_broker.runtime import CLEAN, TRY_AGAIN
from support.hanging_disk import HangingDisk
from support.replica_process import CONFIG, LogServerProcess, ReplicaProcess
from support.steady_senders import SteadySenders, drained


@pytest.fixture
def log_server() -> Iterator[LogServerProcess]:
    with LogServerProcess() as log_server:
        yield log_server


@pytest.mark.parametrize("call", ["fdatasync", "pwrite"])
def test_an_owner_whose_disk_hangs_is_replaced(
    tmp_path: Path, log_server: LogServerProcess, call: str
) -> None:
    """In a thread beside the loop, which would beat on; and in the loop itself."""
    disk = HangingDisk(tmp_path)
    with (
        ReplicaProcess(tmp_path / "a", log_server, CONFIG, disk.prefix) as a,
        ReplicaProcess(tmp_path / "b", log_server) as b,
    ):
        first = a.start().endpoint
        b.spawn()
        b.wait_log("follows with an engine")
        with SteadySenders(a, b) as load:
            load.wait_more(20, first)
            disk.hang(call)
            b.wait_ready()
            load.wait_more(20, b.endpoint)
            if call == "pwrite":  # the loop is in it
                disk.mend()
            ended = a.wait_end()
            load.wait_more(20, b.endpoint)
        assert ended.code == TRY_AGAIN
        assert "another broker has taken over this shard" in ended.stderr
        new_s = min(sent.at_s for sent in load.acknowledged if sent.endpoint == b.endpoint)
        assert max(sent.began_s for sent in load.acknowledged if sent.endpoint == first) < new_s
        received = drained(b.endpoint)
        assert {sent.message_id for sent in load.acknowledged} <= set(received)
        assert len(received) == len(set(received))
        if call == "fdatasync":
            disk.mend()
        a.spawn()  # what it wrote and no quorum has is cut off
        a.wait_log("follows with an engine")
        assert b.terminate().code == CLEAN
        a.wait_ready()
        assert drained(a.endpoint) == []


def test_an_owner_whose_disk_answers_again_goes_on(
    tmp_path: Path, log_server: LogServerProcess
) -> None:
    """There was nobody to take over."""
    disk = HangingDisk(tmp_path)
    with ReplicaProcess(tmp_path / "a", log_server, CONFIG, disk.prefix) as a:
        a.start()
        with SteadySenders(a) as load:
            load.wait_more(20, a.endpoint)
            disk.hang("fdatasync")
            a.wait_log("the disk does not answer: silent")
            a.wait_log("does not serve")
            before = load.count(a.endpoint)
            disk.mend()
            load.wait_more(20, a.endpoint)
        assert before <= load.count(a.endpoint) - 20
        assert {sent.message_id for sent in load.acknowledged} <= set(drained(a.endpoint))


def test_an_owner_whose_disk_hangs_can_be_ended(
    tmp_path: Path, log_server: LogServerProcess
) -> None:
    disk = HangingDisk(tmp_path)
    with ReplicaProcess(tmp_path / "a", log_server, CONFIG, disk.prefix) as a:
        a.start()
        with SteadySenders(a) as load:
            load.wait_more(20, a.endpoint)
            disk.hang("fdatasync")
            a.wait_log("the disk does not answer: silent")
            ended = a.terminate()
        assert ended.code == TRY_AGAIN
        assert "the process ends without it" in ended.stderr
        disk.mend()
        a.start()
        assert {sent.message_id for sent in load.acknowledged} <= set(drained(a.endpoint))
