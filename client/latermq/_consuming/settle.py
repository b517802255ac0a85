"""Ends leases: one delivery's ack, nack, dead-lettering, extension or return, as calls."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Final, TypeVar

from latermq._connection.batching import Batches, Batching
from latermq._connection.outages import log_failure
from latermq._connection.session import Session
from latermq._connection.silence import nobody_answered
from latermq._connection.transport import Metadata
from latermq._values.endpoints import Endpoints
from latermq._values.failure import Failure, describe, rejection, text_of
from latermq._wire import messages as wire
from latermq.backoff import SETTLE_BACKOFF, WAIT_MAX, RetryPolicy
from latermq.codes import Code
from latermq.delivery import AT_ONCE, Delivery, Outcome
from latermq.errors import (
    ClosedError,
    InvalidReceiptHandleError,
    LaterMQError,
    RequestError,
)
from latermq_text.bodies import DamagedBodyError

log = logging.getLogger("latermq.client")

# After this many refused tries the lease is left to end by itself: about five minutes.
TRIES_MAX: Final = 16
RETURNS_AT_ONCE_MAX: Final = 16
# A nack without any wait is taken for that of a client that cannot read its retry policy.
NACK_WAIT_MIN: Final = timedelta(milliseconds=1)


Answer = TypeVar("Answer")


class LeaseSettler:
    """Settles the deliveries of one consumer.

    Args:
        tries_max: how often `end` asks until the broker takes it.
        settled: told once for each delivery, when it left.
        unheard: told of one that left and whose lease the broker may keep alive.
    """

    def __init__(
        self,
        session: Session,
        settled: Callable[[Delivery, Outcome], None],
        tries_max: int = TRIES_MAX,
        unheard: Callable[[], None] = lambda: None,
    ) -> None:
        self._session = session
        self._settled = settled
        self._unheard = unheard
        self._tries_max = tries_max
        self._acks = Batches(Batching(), self._ack_all, own_calls=False)

    @property
    def group(self) -> str:
        return self._session.profile.group

    @property
    def retry(self) -> RetryPolicy:
        """Return the group's, as the broker told it."""
        return self._session.settings.retry

    async def ack(self, delivery: Delivery) -> None:
        """Acknowledge it. Those that wait at the same time share a call; each has its own answer.
        One that was answered before says the same again."""
        if delivery._outcome is not Outcome.ACKNOWLEDGED:
            _require_held(delivery)
        key = (delivery._endpoints, delivery.topic)
        try:
            await self._acks.add(key, _lease(delivery), len(delivery._handle))
        except InvalidReceiptHandleError:
            self._left(delivery, Outcome.LOST)
            raise
        self._left(delivery, Outcome.ACKNOWLEDGED)

    async def _ack_all(
        self, key: tuple[Endpoints, str], leases: Sequence[wire.Lease]
    ) -> Sequence[RequestError | None]:
        endpoints, topic = key
        request = wire.ask_ack(self._session.profile, topic, leases)
        answer = await self._session.call(endpoints, wire.ACK_MESSAGE, request)
        return wire.read_ack(answer, len(leases))

    async def nack(
        self, delivery: Delivery, after: timedelta | None, failure: Failure | None
    ) -> None:
        _require_held(delivery)
        policy = self._session.settings.retry
        wait = min(policy.wait(delivery.attempt), WAIT_MAX) if after is None else after
        headers: list[tuple[str, str | bytes]] = [] if after is None else [wire.INSISTENCE]
        if failure is not None:
            headers.append(wire.failure_header(failure))
        await self._change(delivery, max(wait, NACK_WAIT_MIN), headers)
        self._left(delivery, Outcome.FAILED)

    async def forward(self, delivery: Delivery, failure: Failure) -> None:
        _require_held(delivery)
        request = wire.ask_forward(
            self._session.profile,
            delivery.topic,
            _lease(delivery),
            delivery.attempt,
            self._session.settings.retry.max_attempts,
        )
        headers = (wire.failure_header(failure),)
        path = wire.FORWARD_TO_DEAD_LETTERS
        await self._ask(delivery, path, request, headers, wire.read_forward)
        self._left(delivery, Outcome.DEAD_LETTERED)

    async def extend(self, delivery: Delivery, invisible: timedelta) -> None:
        _require_held(delivery)
        await self._change(delivery, invisible)

    async def give_back(self, delivery: Delivery) -> bool:
        """Make it visible at once, this attempt not counted; a broker that is away will do so when
        the lease ends: False."""
        answered = True
        try:
            await self._change(delivery, AT_ONCE, suspend=True)
        except LaterMQError as error:
            log_failure(log, "lease not returned", error)
            answered = not nobody_answered(error)
            if delivery._outcome is None:
                self._unheard()
        self._left(delivery, Outcome.RETURNED)
        return answered

    def leave(self, delivery: Delivery) -> None:
        """Let it go without a word, where nobody would hear it."""
        self._left(delivery, Outcome.RETURNED)
        self._unheard()

    async def return_it(self, delivery: Delivery, *, quietly: bool = False) -> None:
        """Give it back and insist: others of its message group wait for it."""
        level = logging.DEBUG if quietly else logging.WARNING
        await self._insist(delivery, lambda: self._return_once(delivery), level)

    async def refuse(self, delivery: Delivery, damage: str) -> None:
        """Make a dead letter of a message whose body cannot be read: no attempt will read it."""
        log.warning(
            "dead letter: message %s of topic %s is damaged: %s",
            delivery.message_id, delivery.topic, damage,
            extra={"topic": delivery.topic, "message_id": delivery.message_id, "reason": damage},
        )  # fmt: skip
        failure = describe(DamagedBodyError(damage))
        await self._insist(delivery, lambda: self.forward(delivery, failure))

    async def _return_once(self, delivery: Delivery, after: timedelta = AT_ONCE) -> None:
        await self._change(delivery, after, suspend=True)
        self._left(delivery, Outcome.RETURNED)

    async def end(
        self, delivery: Delivery, error: Exception | None, *, later: bool = False
    ) -> None:
        verdict, after, failure = delivery._verdict
        if error is None and not later:
            await self._insist(delivery, lambda: self.ack(delivery))
        elif error is not None and verdict is Outcome.RETURNED:
            await self._insist(delivery, lambda: self._return_once(delivery, after or AT_ONCE))
        elif error is not None and verdict is Outcome.DEAD_LETTERED:
            refusal = failure or rejection(text_of(error), error)
            await self._insist(delivery, lambda: self.forward(delivery, refusal))
        else:
            account = failure or (None if error is None else describe(error))
            await self._insist(delivery, lambda: self.nack(delivery, after, account))

    async def _insist(
        self,
        delivery: Delivery,
        settle: Callable[[], Awaitable[None]],
        level: int = logging.WARNING,  # of a lease that was lost
    ) -> None:
        about = {"topic": delivery.topic, "message_id": delivery.message_id}
        for attempt in range(1, self._tries_max + 1):
            try:
                await settle()
            except InvalidReceiptHandleError:
                log.log(
                    level,
                    "message %s of topic %s: its lease was lost before its end; it comes again",
                    delivery.message_id, delivery.topic, extra=about,
                )  # fmt: skip
                break
            except ClosedError:
                break
            except LaterMQError as error:
                log_failure(log, "not settled yet", error, **about)
                if nobody_answered(error):
                    level = logging.DEBUG  # of the outage, which is said once
                if attempt < self._tries_max:
                    wait = SETTLE_BACKOFF.wait(attempt, random.random())
                    await asyncio.sleep(wait.total_seconds())
            else:
                return
        if delivery._outcome is None:
            self._unheard()
        self._left(delivery, Outcome.LOST)

    async def _change(
        self,
        delivery: Delivery,
        invisible: timedelta,
        headers: Metadata = (),
        *,
        suspend: bool = False,
    ) -> None:
        request = wire.ask_change_invisible(
            self._session.profile,
            delivery.topic,
            _lease(delivery),
            invisible,
            suspend=suspend,
        )
        path, read = wire.CHANGE_INVISIBLE, wire.read_change_invisible
        delivery._handle = await self._ask(delivery, path, request, headers, read)

    async def _ask(
        self,
        delivery: Delivery,
        path: str,
        request: bytes,
        headers: Metadata,
        read: Callable[[bytes], Answer],
    ) -> Answer:
        answer = await self._session.call(delivery._endpoints, path, request, headers)
        try:
            return read(answer)
        except InvalidReceiptHandleError:
            self._left(delivery, Outcome.LOST)
            raise

    def _left(self, delivery: Delivery, outcome: Outcome) -> None:
        if delivery._outcome is None:
            delivery._outcome = outcome
            self._settled(delivery, outcome)


def _require_held(delivery: Delivery) -> None:
    """Require that it is still held: a broker takes an acknowledgement again, and a dead-lettering
    after it, for the same thing said twice, and an acknowledgement after a nack for a change of
    mind: what was meant before is known here only.

    Raises:
        InvalidReceiptHandleError: it was settled, or its lease was lost.
    """
    if delivery._outcome is not None:
        raise InvalidReceiptHandleError(
            Code.INVALID_RECEIPT_HANDLE,
            f"message {delivery.message_id} was settled before: {delivery._outcome.value}",
        )


def _lease(delivery: Delivery) -> wire.Lease:
    return wire.Lease(delivery.message_id, delivery._handle, delivery.lite_topic)


async def end_all(deliveries: Sequence[Delivery], done: int, error: Exception | None) -> None:
    """End the first `done` as acknowledged, together, and the others, one by one, by the error."""
    await asyncio.gather(*(d._settler.end(d, None) for d in deliveries[:done] if not d.settled))
    for delivery in deliveries[done:]:
        if not delivery.settled:
            await delivery._settler.end(delivery, error)


async def give_all_back(deliveries: Iterable[Delivery], *, insist: bool = False) -> None:
    """Give back several, some at a time: to a broker that answers none of the first, no more.

    Args:
        insist: until the broker has answered; of leases that are over meanwhile, nothing is said.
    """
    gate = asyncio.Semaphore(RETURNS_AT_ONCE_MAX)
    away: set[Endpoints] = set()

    async def return_one(delivery: Delivery) -> None:
        settler = delivery._settler
        async with gate:
            if insist:
                await settler.return_it(delivery, quietly=True)
            elif delivery._endpoints in away:
                settler.leave(delivery)
            elif not await settler.give_back(delivery):
                away.add(delivery._endpoints)

    await asyncio.gather(*map(return_one, deliveries))
