"""Timers that come near: much at one instant is taken apart a bit at a time, and comes in order."""

from array import array
from collections.abc import Iterable
from typing import Final

import pytest

from latermq_broker.config.core_bounds import TimerBounds
from latermq_broker.schedule import near
from latermq_broker.schedule.run_file import MINUTE_MS
from latermq_broker.schedule.timer import LOAD_LEAD_MS, Timer

BOUNDS: Final = TimerBounds()
NOW_MS = 30_000_000 * MINUTE_MS


def drain(armed: Timer, now_ms: int, count_max: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while (deadline_ms := armed.next_deadline_ms()) is not None and deadline_ms <= now_ms:
        for entry in armed.due(now_ms, count_max):
            armed.cancel(*entry)
            found.append(entry)
    return found


def counted_sorts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much each sort of `near` has to do."""
    sizes: list[int] = []

    def counting(part: Iterable[int]) -> list[int]:
        found = sorted(part)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(near, "sorted", counting, raising=False)
    return sizes


def test_a_burst_of_one_instant_costs_a_slice_at_a_time_and_comes_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sorts = counted_sorts(monkeypatch)
    burst = Timer(BOUNDS)
    due_ms = NOW_MS + 10 * MINUTE_MS
    count = 10 * BOUNDS.slice_entries_max
    for index in range(count):
        burst.arm_fresh([(due_ms, 8 * (count - index))])
    asked = 0
    while burst.next_deadline_ms() == due_ms - LOAD_LEAD_MS or burst.near.loading:
        assert burst.due(due_ms - LOAD_LEAD_MS, 500) == []
        asked += 1
    assert asked >= count // BOUNDS.load_entries_max
    assert max(sorts) <= BOUNDS.slice_entries_max
    assert [at for _, at in drain(burst, due_ms, 500)] == list(range(8, 8 * count + 8, 8))
    assert burst.next_deadline_ms() is None


def test_much_that_is_armed_for_one_near_second_is_sorted_in_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sorts = counted_sorts(monkeypatch)
    level = Timer(BOUNDS)
    level.due(NOW_MS, 1)
    count = 3 * BOUNDS.chunk_entries_max + 5
    for index in range(count):
        level.arm_fresh([(NOW_MS + 5_000 + index % 700, 8 * index)])
    found = drain(level, NOW_MS + 10_000, 500)
    assert found == sorted(found)
    assert len(found) == count
    assert max(sorts) <= BOUNDS.chunk_entries_max


def test_what_is_armed_for_the_open_second_or_before_still_comes_in_order() -> None:
    late = Timer(BOUNDS)
    late.due(NOW_MS, 1)
    for wait_ms in (100, 300, 500):
        late.arm(NOW_MS + wait_ms, 8 * wait_ms)
    assert late.due(NOW_MS + 400, 10) == [(NOW_MS + 100, 800), (NOW_MS + 300, 2400)]
    late.arm(NOW_MS + 200, 8)
    late.arm(NOW_MS + 350, 16)
    late.arm(NOW_MS - 90_000, 24)  # its time was long over
    expected = [NOW_MS + wait_ms for wait_ms in (-90_000, 100, 200, 300, 350, 500)]
    assert [due_ms for due_ms, _ in drain(late, NOW_MS + 600, 2)] == expected


def test_a_checkpoint_of_an_earlier_version_is_read() -> None:
    before = array("Q", (NOW_MS // MINUTE_MS + 1, 2, NOW_MS + 5, 16, NOW_MS + 3, 8)).tobytes()
    restored = Timer(BOUNDS)
    restored.restore({"timer.near": before, "timer.far": b"", "timer.tombstones": b""}, [])
    assert len(restored) == 2
    assert drain(restored, NOW_MS + 5, 10) == [(NOW_MS + 3, 8), (NOW_MS + 5, 16)]


def test_a_checkpoint_holds_what_is_ready_open_late_fresh_and_loading() -> None:
    whole = Timer(BOUNDS)
    whole.due(NOW_MS, 1)
    for wait_ms in (10, 20, 30, 2_000, 3 * MINUTE_MS, 3 * MINUTE_MS + 7):
        whole.arm(NOW_MS + wait_ms, 8 * wait_ms)
    whole.cancel(NOW_MS + 2_000, 16_000)
    whole.due(NOW_MS + 20, 1)  # one is ready, the second is open
    whole.arm(NOW_MS + 15, 64)  # late
    whole.near.load(NOW_MS // MINUTE_MS + 1, array("Q", [8]), [])
    restored = Timer(BOUNDS)
    restored.restore(whole.snapshot(), [])
    assert list(restored.in_order()) == list(whole.in_order())
    assert len(list(whole.in_order())) == 7
