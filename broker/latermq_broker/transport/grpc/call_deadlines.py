"""Ends calls at their deadlines, and finds those that have not said what they want.

A timer is only for calls that are not answered soon. What a call wants is not known while a read
left its request incomplete.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from latermq_broker.transport.grpc.answering import Answers
from latermq_broker.transport.grpc.call import LeanCall
from latermq_broker.transport.grpc.counts import Counts
from latermq_h2.grpc_code import GrpcCode

SOON_MS: Final = 10  # within which most calls are answered


class Deadlines:
    """Ends the calls of one connection whose time is over.

    Args:
        unknown: told of a call that has not said what it wants; may answer it.
    """

    def __init__(
        self,
        answers: Answers,
        counts: Counts,
        unknown: Callable[[LeanCall], None],
        wake: Callable[[], None],
    ) -> None:
        self.opened: list[LeanCall] = []  # since the last `look`, with a deadline or without END
        self._watched: list[LeanCall] = []  # looked at again soon
        self._answers = answers
        self._counts = counts
        self._unknown = unknown
        self._wake = wake
        self._loop = asyncio.get_running_loop()

    def look(self) -> None:
        """Set, after a read, a timer for who has little time; look again soon for the others."""
        opened, self.opened = self.opened, []
        for call in opened:
            if call.stream.call is not call or call.answered:
                continue
            if not call.known:
                self._unknown(call)
            timeout_ms = call.timeout_ms
            if call.answered or timeout_ms is None:
                continue
            if timeout_ms <= SOON_MS:
                self._arm(call)
                continue
            if not self._watched:
                self._loop.call_later(SOON_MS / 1_000, self._look_again)
            self._watched.append(call)

    def _look_again(self) -> None:
        watched, self._watched = self._watched, []
        for call in watched:
            if call.stream.call is call:
                self._arm(call)

    def _arm(self, call: LeanCall) -> None:
        """End the call at its deadline, if it has one."""
        remaining_ms = call.remaining_ms()
        if remaining_ms is not None and not call.answered:
            call.timer = self._loop.call_later(remaining_ms / 1_000, self._expire, call)
            self._counts.deadline_timers += 1

    def disarm(self, call: LeanCall) -> None:
        """Forget the deadline of a call that is over."""
        if call.timer is not None:
            call.timer.cancel()
            call.timer = None
            self._counts.deadline_timers -= 1

    def _expire(self, call: LeanCall) -> None:
        call.timer = None
        self._counts.deadline_timers -= 1
        if call.stream.queue is not None:  # nobody waits for what could not be sent
            self._answers.reset(call.stream)
        else:
            self._answers.abort(call, GrpcCode.DEADLINE_EXCEEDED, "deadline exceeded")
        self._wake()
