"""Timer runs of a handful of entries, so that a short life or example has some."""

from collections.abc import Callable

from latermq_broker.schedule import minutes


def small_runs(assign: Callable[[object, str, object], object] = setattr) -> None:
    """For the rest of the process, or for as long as `assign` (a patch's) has it."""
    assign(minutes, "RUN_ENTRIES_MIN", 2)
    assign(minutes, "MERGE_RUNS_MIN", 2)
