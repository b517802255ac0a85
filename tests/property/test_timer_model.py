"""The timer against a sorted list: nothing early, nothing lost, in order."""

from pathlib import Path
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from latermq_broker.config.core_bounds import TimerBounds
from latermq_broker.schedule.run_file import RunFile, encode_run
from latermq_broker.schedule.timer import Timer
from latermq_broker.store.files import OpenMode
from support.memory_files import MemoryFiles

MINUTE_MS = 60_000
RUNS = Path("/timer")
BOUNDS: Final = TimerBounds(  # a run for a handful of entries, so that every example has some
    slice_entries_max=3, load_entries_max=1_000_000, chunk_entries_max=3, run_entries_min=4
)


class TimerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.timer = Timer(BOUNDS)
        self.armed: set[tuple[int, int]] = set()
        self.now_ms = 10 * MINUTE_MS + 17
        self.next_position = 64
        self.files = MemoryFiles()
        self.files.make_directory(RUNS)
        self.run_number = 0
        self.writing: list[tuple[int, list[bytes]]] = []

    @rule(
        wait_ms=st.one_of(st.integers(1, 500), st.integers(1, 5 * MINUTE_MS)), twins=st.booleans()
    )
    def arm(self, wait_ms: int, twins: bool) -> None:
        for _ in range(1 + twins):
            entry = (self.now_ms + wait_ms, self.next_position)
            self.next_position += 8
            self.timer.arm(*entry)
            self.armed.add(entry)

    @precondition(lambda self: self.armed)
    @rule(pick=st.randoms(use_true_random=False), again=st.booleans())
    def cancel(self, pick: object, again: bool) -> None:
        entry = pick.choice(sorted(self.armed))  # type: ignore[attr-defined]
        self.timer.cancel(*entry)
        self.armed.remove(entry)
        assert not self.timer.contains(*entry)
        if again:
            self.timer.arm(*entry)
            self.armed.add(entry)

    @rule(
        step_ms=st.one_of(st.integers(0, 700), st.integers(0, 3 * MINUTE_MS)),
        slice=st.integers(1, 5),
    )
    def fire(self, step_ms: int, slice: int) -> None:
        self.now_ms += step_ms
        expected = sorted(entry for entry in self.armed if entry[0] <= self.now_ms)[:slice]
        assert self.timer.due(self.now_ms, slice) == expected
        for entry in expected:
            self.timer.cancel(*entry)
            self.armed.remove(entry)

    @rule(back_ms=st.one_of(st.integers(1, 500), st.integers(1, 3 * MINUTE_MS)))
    def set_back(self, back_ms: int) -> None:
        self.now_ms = max(self.now_ms - back_ms, MINUTE_MS)

    @rule()
    def sleep(self) -> None:
        """As the pump does, deadline by deadline: what is first comes at its time."""
        for _ in range(20):
            deadline_ms = self.timer.next_deadline_ms()
            if deadline_ms is None:
                assert not self.armed
                return
            self.now_ms = max(self.now_ms, deadline_ms)
            if due := self.timer.due(self.now_ms, 1):
                assert due == [min(self.armed)]
                assert due[0][0] <= self.now_ms
                return
        raise AssertionError("the deadlines lead nowhere")

    @rule(written=st.sampled_from(["yes", "no", "not yet"]))
    def checkpoint(self, written: str) -> None:
        """A run is written, or fails to be, or is on its way while life goes on."""
        far = self.timer.far
        if written != "not yet" and self.writing:
            run = self.write_run(self.writing) if written == "yes" else None
            self.writing = []
            far.thaw(run)
        elif not self.writing:
            self.writing = far.freeze()

    @rule()
    def restart(self) -> None:
        """From what a checkpoint holds: the near ones, the far ones, the runs."""
        if self.writing:
            self.timer.far.thaw(self.write_run(self.writing))
            self.writing = []
        for run in self.timer.far.spent_runs():
            run.close()
        sections = self.timer.snapshot()
        names = [run.name for run in self.timer.far.runs]
        self.timer = Timer(BOUNDS)
        self.timer.restore(sections, [RunFile.open(self.files, RUNS, name) for name in names])

    def write_run(self, minutes: list[tuple[int, list[bytes]]]) -> RunFile:
        self.run_number += 1
        name = f"{self.run_number}.run"
        fd = self.files.open(RUNS / name, OpenMode.CREATE)
        self.files.pwrite(fd, b"".join(encode_run(name, minutes)), 0)
        self.files.close(fd)
        return RunFile.open(self.files, RUNS, name)

    @rule(after=st.tuples(st.integers(0, 20 * MINUTE_MS), st.integers(0, 400)))
    def list_from(self, after: tuple[int, int]) -> None:
        assert list(self.timer.in_order(after)) == sorted(e for e in self.armed if e > after)

    @invariant()
    def agrees(self) -> None:
        assert len(self.timer) == len(self.armed)
        assert list(self.timer.in_order()) == sorted(self.armed)
        deadline_ms = self.timer.next_deadline_ms()
        if self.armed:
            assert deadline_ms is not None
            assert deadline_ms <= min(self.armed)[0]
        assert all(self.timer.contains(*entry) for entry in self.armed)


TestTimer = TimerMachine.TestCase
TestTimer.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
