"""Which checkpoint a start begins with, and why not with a newer one.

A checkpoint is derived: whatever is wrong with one costs a longer replay, never a start. It may
match its checksum and say what cannot be, as where somebody else sealed it; that shows while it is
restored, or at the first record behind it, when half a state is there. Then the start begins anew,
without it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from latermq_broker.store.derived.checkpoint import (
    Checkpoint,
    checkpoint_names,
    queue_states,
    read_checkpoint,
)
from latermq_broker.store.derived.consume_queue import ConsumeQueue, QueueFiles
from latermq_broker.store.files import Files
from latermq_broker.store.log.commit_log import CommitLog
from latermq_broker.store.records.kinds import WORDS_MAX
from latermq_broker.store.recovery import require_log_reaches


class CheckpointChoice:
    """See the module."""

    def __init__(self) -> None:
        self._used = ""  # what the last recovery began with; "": with the log
        self._distrusted: dict[str, str] = {}  # name: why
        self._passed_over: list[str] = []

    def candidates(
        self, files: Files, directory: Path, log: CommitLog, *, any_one: bool
    ) -> Iterator[tuple[str, Checkpoint]]:
        """Yield the checkpoints that verify, the newest first; the last one yielded is taken.

        Raises CorruptRecordError: the log does not reach one of them; OSError.
        """
        self._used, self._passed_over = "", []
        for name in checkpoint_names(files, directory) if any_one else ():
            if name in self._distrusted:
                continue
            checkpoint = read_checkpoint(files, directory / name)
            if checkpoint is None or checkpoint.uuid != log.uuid:
                whole = "it is of another log" if checkpoint else "it does not match its checksum"
                self.pass_over(name, whole)
                continue
            if checkpoint.position < log.start:
                self.pass_over(name, "it is older than the log")
                continue  # the log lost its front since; replay finds out whether that is in order
            require_log_reaches(log, checkpoint, name)
            self._used = name
            yield name, checkpoint
        self._used = ""

    def pass_over(self, name: str, reason: str) -> None:
        self._passed_over.append(f"{name}: {reason}")

    def distrust(self, error: BaseException) -> bool:
        """Have later recoveries do without the one that was taken; False: none was."""
        name, self._used = self._used, ""
        if name:
            words = f"{type(error).__name__} {error}"[:WORDS_MAX]
            self._distrusted[name] = f"{name}: what it says cannot be ({words})"
        return bool(name)

    @property
    def passed_over(self) -> Sequence[str]:
        """Name those that could not be used, newest first, each with its reason."""
        return sorted([*self._distrusted.values(), *self._passed_over], reverse=True)


def restored_queues(
    files: QueueFiles, sections: Mapping[str, bytes]
) -> dict[tuple[int, int], ConsumeQueue]:
    """Restore the queues of a checkpoint by (topic id, queue id).

    Raises DamagedQueueError: a file is not as the checkpoint says.
    """
    return {
        (state.topic_id, state.queue_id): ConsumeQueue.restore(files, state)
        for state in queue_states(sections)
    }
