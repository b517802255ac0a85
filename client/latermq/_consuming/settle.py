"""Ends leases: insists until the broker has heard, and returns what nobody works on."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from latermq._connection.outages import log_failure
from latermq._connection.session import Session
from latermq._connection.silence import nobody_answered
from latermq._consuming.verbs import Verbs
from latermq._values.endpoints import Endpoints
from latermq._values.failure import describe, rejection, text_of
from latermq._wire import messages as wire
from latermq.backoff import SETTLE_BACKOFF
from latermq.delivery import AT_ONCE, Delivery, Outcome
from latermq.errors import ClosedError, InvalidReceiptHandleError, LaterMQError
from latermq_text.bodies import DamagedBodyError

log = logging.getLogger("latermq.client")

# After this many refused tries the lease is left to end by itself: about five minutes.
TRIES_MAX: Final = 16
RETURNS_AT_ONCE_MAX: Final = 16


class LeaseSettler(Verbs):
    """Settles the deliveries of one consumer.

    Args:
        tries_max: how often `end` asks until the broker takes it.
        settled: told once for each delivery, when it left.
        unheard: told of one that left and whose lease the broker may keep alive.
        lost: told of a broker that refused a handle: the lease was over, and nobody had asked so.
    """

    def __init__(
        self,
        session: Session,
        settled: Callable[[Delivery, Outcome], None],
        tries_max: int = TRIES_MAX,
        unheard: Callable[[], None] = lambda: None,
        lost: Callable[[Endpoints], object] = lambda _: None,
    ) -> None:
        super().__init__(session, settled, lost)
        self._unheard = unheard
        self._tries_max = tries_max

    async def give_back(self, delivery: Delivery) -> bool:
        """Make it visible at once, this attempt not counted; a broker that is away will do so when
        the lease ends: False."""
        return await self._in_turn(delivery, lambda: self._give_back(delivery))

    async def _give_back(self, delivery: Delivery) -> bool:
        if delivery._outcome is not None:
            return True
        answered = True
        try:
            await self._change(delivery, AT_ONCE, (wire.ENDS,), suspend=True)
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
        call = ("settlement", delivery.topic)
        for attempt in range(1, self._tries_max + 1):
            try:
                await settle()
            except InvalidReceiptHandleError:
                if delivery._outcome is not Outcome.LOST:
                    return  # a verb before this one settled it
                tell_lost(delivery, level)
                break
            except ClosedError:
                break
            except LaterMQError as error:
                self._session.refusals.failed(call, "settlement", error, **about)
                if nobody_answered(error):
                    level = logging.DEBUG  # of the outage, which is said once
                if attempt < self._tries_max:
                    wait = max(SETTLE_BACKOFF.wait(attempt, random.random()), error.again_in)
                    await asyncio.sleep(wait.total_seconds())
            else:
                self._session.refusals.taken(call)
                return
        if delivery._outcome is None:
            self._unheard()
        self._left(delivery, Outcome.LOST)


def tell_lost(delivery: Delivery, level: int = logging.WARNING) -> None:
    """Log that a lease was lost, once."""
    if delivery._told_lost:
        return
    delivery._told_lost = True
    log.log(
        level,
        "message %s of topic %s: its lease was lost before its end; it comes again",
        delivery.message_id, delivery.topic,
        extra={"topic": delivery.topic, "message_id": delivery.message_id},
    )  # fmt: skip


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
