"""A backup of the files of a broker that is at work: its pace, and the time that it takes."""

import os
import sys
from pathlib import Path

import pytest

from latermq_cli import clock
from latermq_cli.backup.considerate import BEHIND_S_MAX, SLICE_BYTES, Pace, in_idle_time
from latermq_cli.backup.shelf import DirectoryShelf

BEHIND_BYTES = int(1_000 * BEHIND_S_MAX)


class Time:
    """A clock that goes on when somebody sleeps."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_s = 5.0
        patch.setattr(clock, "monotonic_s", lambda: self.now_s)
        patch.setattr(clock, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds


def test_no_more_is_moved_than_the_pace_and_no_time_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = Time(monkeypatch)
    pace = Pace(1_000)
    pace.rest(500)
    assert time.now_s == pytest.approx(5.5)
    time.now_s += 0.08  # a slow disk: that is made up for
    pace.rest(50)
    pace.rest(450)
    assert time.now_s == pytest.approx(6.0)


def test_a_long_stall_is_not_made_up_for_at_full_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    pace = Pace(1_000)
    time.now_s += 60
    pace.rest(BEHIND_BYTES)
    assert time.now_s == 65
    pace.rest(100)
    assert time.now_s == pytest.approx(65.1)


@pytest.mark.parametrize("size", [0, 1, SLICE_BYTES, 2 * SLICE_BYTES + 7])
def test_a_file_goes_to_a_directory_and_back_in_slices(tmp_path: Path, size: int) -> None:
    shelf, data = DirectoryShelf(tmp_path), os.urandom(size)
    written: list[int] = []
    read: list[int] = []
    shelf.write("log", "piece", data, written.append)
    assert shelf.read("log", "piece", len(data), read.append) == data
    assert shelf.read("log", "piece", len(data)) == data
    assert written == read
    assert sum(read) == size
    assert max(read, default=0) <= SLICE_BYTES
    shelf.write("log", "whole", data)
    assert shelf.read("log", "whole", len(data), lambda _: None) == data


@pytest.mark.skipif(sys.platform != "linux", reason="SCHED_IDLE is Linux's")
def test_the_copy_leaves_the_cores_to_others_and_its_caller_does_not() -> None:
    before = os.sched_getscheduler(0)
    with in_idle_time() as thread:
        assert thread.submit(os.sched_getscheduler, 0).result() == os.SCHED_IDLE
        assert os.sched_getscheduler(0) == before


@pytest.mark.skipif(sys.platform != "linux", reason="SCHED_IDLE is Linux's")
def test_where_it_is_forbidden_the_copy_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with in_idle_time() as thread:
        assert thread.submit(os.sched_getscheduler, 0).result() == os.sched_getscheduler(0)
