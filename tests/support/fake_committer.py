"""A pump that has always written already, with a clock the test turns."""

from latermq_broker.deferred import Later
from latermq_broker.errors import TooManyRequestsError
from latermq_broker.services.call.handler import Answer


class FakeCommitter:
    """`handler.Committer`. Waits end at once, unless `hold` was called."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.time_ms = now_ms
        self.backlogged = False
        self.waits = 0
        self._held: list[Later[None]] | None = None

    def now_ms(self) -> int:
        return self.time_ms

    def admit(self) -> None:
        if self.backlogged:
            raise TooManyRequestsError("the disk is behind")

    def acknowledged(self, answer: Answer) -> Later[Answer]:
        return self.written().mapped(lambda _: answer)

    def written(self) -> Later[None]:
        self.waits += 1
        later: Later[None] = Later()
        if self._held is None:
            later.release()
        else:
            self._held.append(later)
        return later

    def synced(self) -> Later[None]:
        return self.written()

    def leased(self) -> Later[None]:
        return self.written()

    def hold(self) -> None:
        self._held = []

    def release(self, error: Exception | None = None) -> None:
        """End the waits held so far, with `error` if given; later ones end at once."""
        held, self._held = self._held or [], None
        for later in held:
            if error is None:
                later.release()
            else:
                later.fail(error)
