"""The verbs of a delivery, as calls: ack, nack, dead-lettering, extension, return.

The verbs of one delivery wait for each other, and a verb that was begun is seen through: whoever
cancels it hears no answer, but the next verb has it. A call that was not answered is repeated; the
broker takes each of them twice.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

from latermq._connection.batching import Batches, Batching
from latermq._connection.session import Session
from latermq._connection.tasks import outcome_of
from latermq._connection.transport import Metadata
from latermq._values.endpoints import Endpoints
from latermq._values.failure import Failure
from latermq._wire import messages as wire
from latermq.backoff import WAIT_MAX, RetryPolicy
from latermq.codes import Code
from latermq.delivery import AT_ONCE, Delivery, Outcome, Until
from latermq.errors import InvalidReceiptHandleError, RequestError

# A nack without any wait is taken for that of a client that cannot read its retry policy.
NACK_WAIT_MIN: Final = timedelta(milliseconds=1)

Answer = TypeVar("Answer")


class Verbs:
    """What is said of the deliveries of one consumer, once each.

    Args:
        settled: told once for each delivery, when it left.
        lost: told of a broker that refused a handle: the lease was over, and nobody had asked so.
    """

    def __init__(
        self,
        session: Session,
        settled: Callable[[Delivery, Outcome], None],
        lost: Callable[[Endpoints], object],
    ) -> None:
        self._session = session
        self._settled = settled
        self._tell_lost = lost
        self._acks = Batches(Batching(), self._ack_all)

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
        self._session.check_loop()
        await _turn(delivery)
        if delivery._outcome is not Outcome.ACKNOWLEDGED:
            require_held(delivery)
        key = (delivery._endpoints, delivery.topic)
        answer = self._acks.join(key, _lease(delivery), len(delivery._handle))
        delivery._verb = answer
        answer.add_done_callback(lambda _: self._acked(delivery, answer))
        await asyncio.shield(answer)

    def _acked(self, delivery: Delivery, answer: "asyncio.Future[None]") -> None:
        delivery._verb = None
        if answer.cancelled():
            return
        error = answer.exception()
        if error is None:
            self._left(delivery, Outcome.ACKNOWLEDGED)
        elif isinstance(error, InvalidReceiptHandleError):
            self._lost(delivery)

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
        await self._in_turn(delivery, lambda: self._nack(delivery, after, failure))

    async def _nack(
        self, delivery: Delivery, after: timedelta | None, failure: Failure | None
    ) -> None:
        require_held(delivery)
        policy = self._session.settings.retry
        wait = min(policy.wait(delivery.attempt), WAIT_MAX) if after is None else after
        headers: list[tuple[str, str | bytes]] = [wire.ENDS]
        if after is not None:
            headers.append(wire.INSISTENCE)
        if failure is not None:
            headers.append(wire.failure_header(failure))
        await self._change(delivery, max(wait, NACK_WAIT_MIN), headers)
        self._left(delivery, Outcome.FAILED)

    async def forward(self, delivery: Delivery, failure: Failure) -> None:
        await self._in_turn(delivery, lambda: self._forward(delivery, failure))

    async def _forward(self, delivery: Delivery, failure: Failure) -> None:
        require_held(delivery)
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
        await self._in_turn(delivery, lambda: self._extend(delivery, invisible))

    async def _extend(self, delivery: Delivery, invisible: timedelta) -> None:
        require_held(delivery)
        await self._change(delivery, invisible, (wire.EXTENDS,))
        delivery._until = Until(asyncio.get_running_loop().time() + invisible.total_seconds())

    async def _return_once(self, delivery: Delivery, after: timedelta = AT_ONCE) -> None:
        await self._in_turn(delivery, lambda: self._return(delivery, after))

    async def _return(self, delivery: Delivery, after: timedelta) -> None:
        if delivery._outcome is None:
            await self._change(delivery, after, (wire.ENDS,), suspend=True)
            self._left(delivery, Outcome.RETURNED)

    async def _change(
        self,
        delivery: Delivery,
        invisible: timedelta,
        headers: Metadata,
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

    async def _in_turn(
        self, delivery: Delivery, verb: Callable[[], Coroutine[Any, Any, Answer]]
    ) -> Answer:
        """Do a verb when those before it have their answers; it is done though the caller is
        cancelled. Raises ClosedError, and RuntimeError in another event loop."""
        self._session.check_loop()
        await _turn(delivery)
        task = self._session.tasks.start(verb(), "latermq settle", awaited=True)
        delivery._verb = task
        task.add_done_callback(lambda _: _free(delivery))
        return await outcome_of(task)

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
            self._lost(delivery)
            raise

    def _lost(self, delivery: Delivery) -> None:
        self._left(delivery, Outcome.LOST)
        until, now_s = delivery._until, asyncio.get_running_loop().time()
        if until is None or now_s < until.end_s:  # else it ended as it was asked to
            self._tell_lost(delivery._endpoints)

    def _left(self, delivery: Delivery, outcome: Outcome) -> None:
        if delivery._outcome is None:
            delivery._outcome = outcome
            self._settled(delivery, outcome)


async def _turn(delivery: Delivery) -> None:
    """Wait until no verb of the delivery is under way."""
    while delivery._verb is not None:
        await asyncio.wait((delivery._verb,))


def _free(delivery: Delivery) -> None:
    delivery._verb = None


def require_held(delivery: Delivery) -> None:
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
