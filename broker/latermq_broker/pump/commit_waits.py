"""Who waits for the log: for what was appended to be in the file, or committed.

The pump says when the one has come further, the log when the other; everyone it concerns is settled
then, in the order they asked. After a failure everyone gets it, at once.
"""

from collections import deque
from typing import Any

from latermq_broker.deferred import Later
from latermq_broker.store.log.commit_log import CommitLog


class CommitWaits:
    def __init__(self, log: CommitLog) -> None:
        self.failure: BaseException | None = None
        self._log = log
        self._commitment = log.commitment
        self._for_write: list[Later[Any]] = []
        self._for_commit: deque[tuple[int, Later[Any]]] = deque()  # by position

    @property
    def for_commit(self) -> bool:
        """Tell whether somebody waits for a commit."""
        return bool(self._for_commit)

    def until_written(self, later: Later[Any]) -> None:
        """Settle it when all that was appended so far is in the file."""
        if self.failure is not None:
            later.fail(self.failure)
        elif self._log.written == self._log.end:
            later.release()
        else:
            self._for_write.append(later)

    def until_committed(self, later: Later[Any]) -> None:
        """Settle it when all that was appended so far is committed."""
        if self.failure is not None:
            later.fail(self.failure)
        elif self._commitment.position >= self._log.end:
            later.release()
        else:
            self._for_commit.append((self._log.end, later))

    def written(self) -> None:
        """Release those who waited for the file: the batch is in it."""
        waiting, self._for_write = self._for_write, []
        for later in waiting:
            later.release()

    def committed(self) -> None:
        """Release those who waited for what is committed now."""
        position = self._commitment.position
        while self._for_commit and self._for_commit[0][0] <= position:
            self._for_commit.popleft()[1].release()

    def fail(self, error: BaseException) -> None:
        """Fail all who wait: a write, a sync or a commit failed, nothing is promised any more."""
        self.failure = error
        waiting = [*self._for_write, *(later for _, later in self._for_commit)]
        self._for_write.clear()
        self._for_commit.clear()
        for later in waiting:
            later.fail(error)
