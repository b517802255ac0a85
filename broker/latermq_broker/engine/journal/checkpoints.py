"""Checkpoints of the whole engine, and the timer runs that belong to them.

begin (in the loop) → job.run (in a thread if wanted) → finish (in the loop). Runs that have become
many are merged by a process of its own (`schedule/run_merge.py`), whose result is adopted between
two checkpoints.
"""

from collections.abc import Sequence

from latermq_broker.engine.checkpoint.snapshot import snapshot
from latermq_broker.engine.state.state import EngineState
from latermq_broker.schedule.run_file import RunFile, encode_run, run_name
from latermq_broker.schedule.run_merge import MERGED_NAME
from latermq_broker.store.checkpoint_job import RUN_SUFFIX, CheckpointJob, RunWrite


class Checkpoints:
    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._store = state.store
        self._far = state.timer.far

    def begin(self, now_ms: int) -> CheckpointJob:
        """Capture the state. Raises as `Store.begin_checkpoint`."""
        for run in self._far.spent_runs():
            run.close()
        minutes = self._far.freeze()
        name = run_name(self._store.log.end) if minutes else ""
        try:
            return self._store.begin_checkpoint(
                snapshot(self._state, name),
                now_ms,
                new_run=RunWrite(name, encode_run(name, minutes)) if minutes else None,
                runs=[run.name for run in self._far.runs] + [name] * bool(name),
            )
        except BaseException:
            self._far.thaw(None)
            raise

    def finish(self, job: CheckpointJob) -> None:
        """Take note of what the job achieved. Raises OSError: the new run cannot be read."""
        self._store.finish_checkpoint(job)
        run = None
        try:
            if job.done and job.run_name:
                run = self._open(job.run_name)
        finally:
            self._far.thaw(run)

    def take(self, now_ms: int) -> None:
        """Begin, run and finish one, here and now. Raises OSError."""
        job = self.begin(now_ms)
        try:
            job.run()
        finally:
            self.finish(job)

    def merge_arguments(self) -> list[str]:
        """List the arguments of `schedule/run_merge.py`, when runs have become many; else none."""
        names = self._far.merge_wanted()
        if not names:
            return []
        assert len(names) > 1
        into = f"{self._store.log.end:020d}-merged{RUN_SUFFIX}"
        return [str(self._store.runs_directory), str(self._far.taken_until), into, *names]

    def adopt_merge(self, arguments: Sequence[str]) -> None:
        """Adopt a finished merge of these arguments, only between checkpoints. Raises OSError."""
        into, *names = arguments[2:]
        directory, files = self._store.runs_directory, self._store.files
        files.rename(directory / MERGED_NAME, directory / into)
        files.sync_directory(directory)
        self._far.replace(names, self._open(into))

    def release(self) -> None:
        """Close the runs; the engine is done with them."""
        for run in self._far.runs:
            run.close()
        self._far.runs = []

    def _open(self, name: str) -> RunFile:
        return RunFile.open(self._store.files, self._store.runs_directory, name, verify=False)
