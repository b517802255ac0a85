"""Where the log begins to count, and the files below that wait to be deleted.

A log that has lost its first files looks like one whose first files were dropped. What tells them
apart is `start`: a checkpoint keeps it, and a DROP record in the log raises it. Files may be
missing below `start`, never above. Whoever drops files does it after a checkpoint that knows, so
one of the two words is always there:

    DROP record ─► checkpoint that keeps `start`, log synced ─► files unlinked, oldest first
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from latermq_broker.errors import GivenUpError
from latermq_broker.store.derived.checkpoint import START_SECTION
from latermq_broker.store.directory import hole
from latermq_broker.store.files import Files
from latermq_broker.store.log.commit_log import CommitLog
from latermq_broker.store.log.segment import Segment

CHECKPOINT_SOON_MS: Final = 1_000  # after a drop: files are waiting to go


class Dropped:
    """See the module."""

    def __init__(self, log: CommitLog) -> None:
        self.start = 0  # everything from here on is needed
        self.headless = False
        """Replay began without a state, as segments were dropped or records given up: until a DROP
        record brings the state it takes in only what the log itself tells."""
        self.behind = 0
        """Where a replay with a state had to stop: the next has none before a DROP record behind
        that position brings it. 0: nowhere."""
        self._log = log
        self._recovered = False
        self._paths: list[Path] = []  # oldest first

    def restore(self, sections: Mapping[str, bytes], position: int) -> None:
        """Restore from a checkpoint at `position`. Raises ValueError: it cannot be of that one."""
        start = int.from_bytes(sections.get(START_SECTION, b""), "little")
        if start > position:
            raise ValueError(f"the log begins at {start}, behind the checkpoint at {position}")
        self.start = start

    def snapshot(self) -> dict[str, bytes]:
        return {START_SECTION: self.start.to_bytes(8, "little")}

    def drop_before(self, start: int) -> None:
        """Raise `start`, live and in replay: nothing needs what lies below it."""
        self.start = max(self.start, start)
        if self._recovered:
            self._paths += self._log.row.drop_before(self.start)

    def require_accounted(self, segments: Sequence[Segment]) -> None:
        """Check the log's begin after replay. Raises CorruptRecordError: what is missing was never
        dropped, or no record brought the state behind what was given up.
        """
        if segments[0].base > self.start:
            raise hole(self.start, segments[0].path.name)
        if self.headless:
            raise GivenUpError(max(self.behind, self.start))

    def recovered(self) -> None:
        """Let go of what replay, which is over, left behind."""
        self._recovered = True
        self.headless = False
        self.drop_before(self.start)

    @property
    def waiting(self) -> tuple[Path, ...]:
        """Return the files that may be deleted after a checkpoint that begins now."""
        return tuple(self._paths)

    def unlinked(self, paths: Sequence[Path]) -> None:
        """Forget the first of the files that wait: they were unlinked."""
        del self._paths[: len(paths)]


def unlink_in_order(files: Files, paths: Sequence[Path]) -> list[Path]:
    """Delete files, each durably before the next, so that what is left is always in a row.

    Returns those that are gone; stops at the first that the file system will not delete.
    """
    deleted: list[Path] = []
    for path in paths:
        try:
            files.unlink(path)
            files.sync_directory(path.parent)
        except FileNotFoundError:
            pass  # deleted by hand
        except OSError:
            break
        deleted.append(path)
    return deleted
