"""Transactions: a message that counts if, and only if, the work around it was done.

    enter the block ──half message stored──→ your work ──returned──→ commit: delivered
                                                      └──raised────→ rollback: never delivered

When neither reaches the broker (this process died, the network broke) it asks, after a while, any
process that answers for the topic with `Client.check_transactions`.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, TypeAlias

from latermq._connection.session import Session
from latermq._connection.tasks import Tasks
from latermq._consuming.calling import failing_if_ended
from latermq._values.endpoints import Endpoints
from latermq._values.failure import exc_info, tell, text_of
from latermq._wire import transactions as wire
from latermq._wire.session_calls import Orphan
from latermq.errors import InvalidTransactionError, LaterMQError
from latermq.message import Received, Resolution

log = logging.getLogger("latermq.client")

CHECKS_AT_ONCE_MAX: Final = 64  # the broker asks again about what is beyond

Checker: TypeAlias = Callable[[Received], Resolution | Awaitable[Resolution]]
SendHalf: TypeAlias = Callable[[], Awaitable[tuple[wire.Half, Endpoints]]]


class Transaction:
    """One half message and its end. Made by `Client.transaction`; used as a block, once.

    Its fields are known from the block's beginning on.

    Fields:
        message_id: the message's.
        transaction_id: what the broker calls it, as in `latermq pending list`.
    """

    def __init__(self, send_half: SendHalf, ends: "Ends") -> None:
        self.message_id = ""
        self.transaction_id = ""
        self._send_half = send_half
        self._ends = ends
        self._half: tuple[wire.Half, Endpoints] | None = None
        self._resolution: Resolution | None = None
        self._ended = False  # the broker has heard, and answered, what was told

    async def commit(self) -> None:
        """Have the message delivered now; the block's end then does nothing.

        Raises:
            InvalidTransactionError: it was rolled back, by the broker or an operator.
            UnavailableError, RequestTimeoutError: the broker may ask how it ended. The block's end
                does not roll it back, for the work was done; if it ends in order, it commits again.
        """
        await self._end(Resolution.COMMIT)

    async def rollback(self) -> None:
        """Have the message never delivered; the block's end then does nothing.

        Raises:
            InvalidTransactionError: it was committed, by the broker or an operator.
            UnavailableError, RequestTimeoutError: the broker may ask how it ended. The block's end
                rolls it back again, and never commits it.
        """
        await self._end(Resolution.ROLLBACK)

    async def __aenter__(self) -> "Transaction":
        """Store the half message. Raises what `Client.send` does; nothing was done then."""
        if self._half is not None:
            raise RuntimeError("a transaction is for one block: make another one")
        self._half = await self._send_half()
        self.message_id, self.transaction_id = self._half[0][1:]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ended:
            return
        if error is None and self._resolution is not Resolution.ROLLBACK:
            await self.commit()
            return
        if self._resolution is Resolution.COMMIT:  # the work was done, whatever became of saying so
            log.warning(
                "transaction %s is not rolled back, for its commit may have been heard; if it was "
                "not, the broker will ask",
                self.transaction_id, extra={"transaction": self.transaction_id},
            )  # fmt: skip
            return
        try:
            await self.rollback()
        except LaterMQError as lost:  # what the block raised, or was told before, says more
            log.warning(
                "rollback of transaction %s failed; if it was not heard, the broker will ask: %s",
                self.transaction_id,
                lost,
                extra={"transaction": self.transaction_id, "reason": str(lost)},
            )

    async def _end(self, resolution: Resolution) -> None:
        if self._half is None:
            raise RuntimeError("the transaction has not begun: use it as a block")
        self._ends.check_loop()
        self._resolution = resolution
        try:
            await self._ends.end(*self._half, resolution, wire.Source.CLIENT)
        except InvalidTransactionError:
            self._ended = True  # the other way: nothing is left to say
            raise
        self._ended = True


class Ends:
    """How transactions of one session end: told by the application, or asked by the broker."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.check_loop: Final = session.check_loop
        self._checkers: dict[str, Checker] = {}
        self._tasks = Tasks()
        self._running = 0
        session.on_orphan = self._asked

    async def end(
        self, half: wire.Half, endpoints: Endpoints, resolution: Resolution, source: wire.Source
    ) -> None:
        """Say how it ended; again while the broker is away, until the client's timeout."""
        request = wire.ask_end(self._session.profile, half, resolution, source)
        wire.read_end(await self._session.call(endpoints, wire.END_TRANSACTION, request))

    async def check(self, topic: str, checker: Checker) -> None:
        """Answer the broker's questions about the topic from now on."""
        self.check_loop()
        self._checkers[topic] = checker
        await self._session.route(topic)  # its brokers know us now, and whom to ask

    async def close(self) -> None:
        await self._tasks.cancel()

    def _asked(self, endpoints: Endpoints, orphan: Orphan) -> None:
        half, arrival = wire.read_orphan(*orphan)
        checker = self._checkers.get(half.topic)
        about = {"topic": half.topic, "transaction": half.transaction_id}
        if checker is None:
            log.warning(
                "asked how transaction %s of topic %s ended: no check_transactions",
                half.transaction_id, half.topic, extra=about,
            )  # fmt: skip
        elif arrival.damage:
            log.error(
                "half message of transaction %s damaged: %s",
                half.transaction_id, arrival.damage, extra={**about, "reason": arrival.damage},
            )  # fmt: skip
        elif self._running >= CHECKS_AT_ONCE_MAX:
            log.info(
                "too many checks at once: the broker asks again about transaction %s",
                half.transaction_id, extra=about,
            )  # fmt: skip
        else:
            self._running += 1
            work = self._answer(checker, half, arrival.received, endpoints)
            self._tasks.start(work, "latermq transaction check")

    async def _answer(
        self, checker: Checker, half: wire.Half, received: Received, endpoints: Endpoints
    ) -> None:
        about = {"topic": half.topic, "transaction": half.transaction_id}
        try:
            resolution = await failing_if_ended(_asked_of(checker, received))
            if resolution is not Resolution.UNKNOWN:
                await self.end(half, endpoints, resolution, wire.Source.SERVER_CHECK)
        except LaterMQError as error:
            tell(
                log, logging.WARNING, "check of transaction %s not answered: %s",
                half.transaction_id, text_of(error), extra={**about, "reason": text_of(error)},
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001  the broker asks again
            tell(
                log, logging.ERROR, "checker of transaction %s failed: the broker asks again",
                half.transaction_id, exc_info=exc_info(error), extra=about,
            )  # fmt: skip
        finally:
            self._running -= 1


async def _asked_of(checker: Checker, received: Received) -> Resolution:
    resolution = checker(received)
    if inspect.isawaitable(resolution):
        resolution = await resolution
    if not isinstance(resolution, Resolution):
        raise TypeError(f"a checker returns a latermq.Resolution, not {resolution!r}")
    return resolution
