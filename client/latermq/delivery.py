"""A delivered message in your hands, and the ways to let go of it.

`async with delivery:` acknowledges it when the block ends, and gives it back for another attempt
when the block raises; the error is logged and told to the broker, and goes no further, so that one
bad message does not end the loop it came from. Cancelling the block returns the message uncounted.
SystemExit, KeyboardInterrupt and GeneratorExit count as failed attempts, too, and go further.
What you call yourself (`ack`, `retry_in`, `dead_letter`) happens at once; the end of the block then
adds nothing.
"""

import asyncio
import logging
from dataclasses import fields
from datetime import timedelta
from enum import Enum
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, cast

from latermq._values import arguments
from latermq._values.endpoints import Endpoints
from latermq._values.failure import (
    Failure,
    class_name_of,
    describe,
    exc_info,
    rejection,
    tell,
    text_of,
)
from latermq._wire.messages import Arrival
from latermq.backoff import RetryPolicy, fits_kind
from latermq.errors import LaterMQError
from latermq.message import Received

log = logging.getLogger("latermq.client")

AT_ONCE: Final = timedelta(0)
_FIELDS: Final = tuple(field.name for field in fields(Received))


class Outcome(Enum):
    """How a delivery left this consumer."""

    ACKNOWLEDGED = "acknowledged"
    DEAD_LETTERED = "dead-lettered"
    FAILED = "given back"  # comes again, as a further attempt; a broadcast does not
    RETURNED = "returned"  # comes again, this attempt not counted
    LOST = "its lease was lost"  # it ended before we said anything

    @property
    def final(self) -> bool:
        """Tell whether it does not come again to this group."""
        return self in (Outcome.ACKNOWLEDGED, Outcome.DEAD_LETTERED)


_WORDS: Final = {
    Outcome.FAILED: "failed",
    Outcome.RETURNED: "given back uncounted",
    Outcome.DEAD_LETTERED: "failed and was its last",
}


class Verdict(NamedTuple):
    """What becomes of a delivery whose block raised.

    Fields:
        outcome: FAILED, RETURNED (uncounted) or DEAD_LETTERED.
        after: before it comes again; None: as the group's retry policy says, and returned at once.
        failure: what the broker is told, instead of the error.
    """

    outcome: Outcome = Outcome.FAILED
    after: timedelta | None = None
    failure: Failure | None = None


class Until(NamedTuple):
    """When a lease ends that the broker does not renew, as its holder asked for.

    Fields:
        end_s: of the loop's time.
        by_hand: `extend` was called, not for `lease_max`.
    """

    end_s: float
    by_hand: bool = True


class Settler(Protocol):
    """The consumer a delivery came from, as the delivery sees it."""

    @property
    def group(self) -> str: ...

    @property
    def retry(self) -> RetryPolicy:
        """Return the group's, as the broker told it."""

    async def ack(self, delivery: "Delivery") -> None: ...

    async def nack(
        self, delivery: "Delivery", after: timedelta | None, failure: Failure | None
    ) -> None: ...

    async def forward(self, delivery: "Delivery", failure: Failure) -> None: ...

    async def extend(self, delivery: "Delivery", invisible: timedelta) -> None: ...

    async def give_back(self, delivery: "Delivery") -> bool:
        """Give it back, uncounted, and tell whether a broker answered."""

    def leave(self, delivery: "Delivery") -> None:
        """Let it go without a word."""

    async def return_it(self, delivery: "Delivery", *, quietly: bool = False) -> None:
        """Give it back, and insist while the broker cannot take it.

        Args:
            quietly: its lease may be over, which is no news.
        """

    async def end(
        self, delivery: "Delivery", error: Exception | None, *, later: bool = False
    ) -> None:
        """Ack, or nack with the error or because it is `later`, or what the delivery's verdict is
        on the error, as a block's end does: insisting while the broker cannot take it, and raising
        nothing."""


class Delivery(Received):
    """A message leased to this consumer. Its fields are those of `Received`."""

    __slots__ = (
        "_began_s", "_endpoints", "_handle", "_outcome", "_settler", "_since_s", "_taken_s",
        "_told_lost", "_until", "_verb", "_verdict",
    )  # fmt: skip

    def __init__(self, arrival: Arrival, endpoints: Endpoints, settler: Settler) -> None:
        received = arrival.received
        for name in _FIELDS:  # half of what a call with all of them by name takes
            setattr(self, name, getattr(received, name))
        self._handle = arrival.handle
        self._endpoints = endpoints
        self._settler = settler
        self._outcome: Outcome | None = None
        self._verb: asyncio.Future[Any] | None = None  # under way; the next one waits for it
        self._verdict = Verdict()
        self._since_s = self._taken_s = 0.0  # of the loop's time: when it came, was handed out
        self._until: Until | None = None
        self._told_lost = False

    @property
    def group(self) -> str:
        """Return the group that consumes it here."""
        return self._settler.group

    @property
    def outcome(self) -> Outcome | None:
        """Return how it left this consumer; None: it has not."""
        return self._outcome

    @property
    def settled(self) -> bool:
        """Tell whether it was acknowledged, given back or dead-lettered, or its lease lost."""
        return self._outcome is not None

    async def ack(self) -> None:
        """Mark it as done for this group. Saying so again changes nothing.

        Raises:
            InvalidReceiptHandleError: the lease ended, and it may be delivered again; or it was
                given back or dead-lettered before.
            UnavailableError, RequestTimeoutError: it may or may not be done; ack it again.
        """
        await self._settler.ack(self)

    async def retry_in(self, after: timedelta, error: BaseException | None = None) -> None:
        """Give it back: the next attempt comes after this time, whatever the group's retry policy
        says, and `error` into its history.

        Args:
            after: at most 12 hours (the broker's `delivery.invisible_ms_max`).
        Raises:
            IllegalTimeError: `after` is longer; the error names the bound.
            InvalidReceiptHandleError: the lease ended, or it was settled before.
        """
        arguments.span("after", after)
        arguments.optional_error("error", error)
        await self._settler.nack(self, after, None if error is None else describe(error))

    async def nack(self, error: BaseException | None = None) -> None:
        """Give it back: the next attempt comes after what the group's retry policy says.

        Raises:
            InvalidReceiptHandleError: the lease ended, or it was settled before.
        """
        arguments.optional_error("error", error)
        await self._settler.nack(self, None, None if error is None else describe(error))

    async def dead_letter(self, reason: str, error: BaseException | None = None) -> None:
        """Give it up: it moves to the group's dead letters, without further attempts.

        Raises:
            InvalidReceiptHandleError: the lease ended, or it was settled before.
        """
        arguments.any_text("reason", reason)
        arguments.optional_error("error", error)
        await self._settler.forward(self, rejection(reason, error))

    async def extend(self, invisible: timedelta) -> None:
        """Keep it for `invisible` from now, whichever consumer it came from: then its lease ends,
        unless it was settled or extended again, and a push consumer's is not renewed beyond. Of a
        broadcast it changes nothing.

        Raises:
            InvalidReceiptHandleError: the lease ended, or it was settled before.
        """
        arguments.span("invisible", invisible)
        await self._settler.extend(self, invisible)

    async def __aenter__(self) -> "Delivery":
        self._began_s = asyncio.get_running_loop().time()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is not None and fits_kind(error, asyncio.CancelledError):
            if self._outcome is None:
                await self._settler.give_back(self)
            return False
        if error is not None:
            self._tell_failed(error)
            if not fits_kind(error, Exception):
                if self._outcome is None:
                    await self._fail_at_once(error)
                return False
        if self._outcome is None:
            try:
                await self._settler.end(self, cast("Exception | None", error))
            except asyncio.CancelledError:
                await self._settler.give_back(self)  # does nothing if the broker heard us
                raise
        if error is None:
            self._tell_done(self._began_s)
        return True

    async def _fail_at_once(self, error: BaseException) -> None:
        """Count the attempt of a block that a program leaves for good, such as by SystemExit: in
        one call, for it waits for nothing more."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # GeneratorExit, of a coroutine whose loop is closed
            return
        try:
            await self._settler.nack(self, None, describe(error))
        except LaterMQError as lost:
            tell(
                log, logging.WARNING, "message %s of topic %s: its end was not heard: %s",
                self.message_id, self.topic, lost,
            )  # fmt: skip
            if self._outcome is None:
                self._settler.leave(self)

    def _tell_failed(self, error: BaseException) -> None:
        outcome = self._verdict.outcome
        tell(
            log, logging.WARNING, "attempt %d of message %s %s, topic %s: %s: %s",
            self.attempt, self.message_id, _WORDS[outcome],
            self.topic, class_name_of(error), text_of(error),
            exc_info=exc_info(error) if outcome is not Outcome.RETURNED else None,
            extra={"topic": self.topic, "message_id": self.message_id, "attempt": self.attempt},
        )  # fmt: skip

    def _tell_done(self, began_s: float, where: str = "") -> None:
        """Log that it is, if it is.

        Args:
            began_s: of the loop's time, when work on it began.
            where: what the line says further.
        """
        if log.isEnabledFor(logging.DEBUG) and self._outcome is Outcome.ACKNOWLEDGED:
            took_ms = round((asyncio.get_running_loop().time() - began_s) * 1_000, 1)
            log.debug(
                "message %s of topic %s done: attempt %d, %.1f ms%s",
                self.message_id, self.topic, self.attempt, took_ms, where,
                extra={
                    "topic": self.topic, "message_id": self.message_id, "attempt": self.attempt,
                    "ms": took_ms,
                },
            )  # fmt: skip
