"""Who waits for the log: for what was appended to be in the file, or on the disk.

The pump says when one or the other has come further; everyone it concerns is settled then, in the
order they asked. After a failure everyone gets it, at once.
"""

from collections import deque
from typing import Any

from latermq_broker.deferred import Later
from latermq_broker.store.log.commit_log import CommitLog


class CommitWaits:
    def __init__(self, log: CommitLog) -> None:
        self.failure: BaseException | None = None
        self._log = log
        self._for_write: list[Later[Any]] = []
        self._for_sync: deque[tuple[int, Later[Any]]] = deque()  # by position

    @property
    def for_sync(self) -> bool:
        """Tell whether somebody waits for the disk."""
        return bool(self._for_sync)

    def until_written(self, later: Later[Any]) -> None:
        """Settle it when all that was appended so far is in the file."""
        if self.failure is not None:
            later.fail(self.failure)
        elif self._log.written == self._log.end:
            later.release()
        else:
            self._for_write.append(later)

    def until_synced(self, later: Later[Any]) -> None:
        """Settle it when all that was appended so far is on the disk."""
        if self.failure is not None:
            later.fail(self.failure)
        elif self._log.durable >= self._log.end:
            later.release()
        else:
            self._for_sync.append((self._log.end, later))

    def written(self) -> None:
        """Release those who waited for the file: the batch is in it."""
        waiting, self._for_write = self._for_write, []
        for later in waiting:
            later.release()

    def synced(self) -> None:
        """Release those who waited for what is durable now: `log.durable` may have moved."""
        durable = self._log.durable
        while self._for_sync and self._for_sync[0][0] <= durable:
            self._for_sync.popleft()[1].release()

    def fail(self, error: BaseException) -> None:
        """Fail all who wait: a write or a sync failed, nothing is promised any more."""
        self.failure = error
        waiting = [*self._for_write, *(later for _, later in self._for_sync)]
        self._for_write.clear()
        self._for_sync.clear()
        for later in waiting:
            later.fail(error)
