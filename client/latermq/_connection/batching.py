"""Sends and acknowledgements that travel together: what waits at the same time shares a call.

A lane holds what may share a call. It leaves when its oldest message has waited for the linger (0:
until the loop's next turn), or at once when it is full; while `in_flight_max` calls of the lane are
under way, what comes waits for one of them to end. The lane of a message group has one call at a
time, so that its messages are stored in the order in which they were sent.

    add, join ──linger, or full──→ call ──┬─ each message has its outcome
                                    ├─ refused as a whole: in halves, until only whose fault it is
                                    └─ any other error: of every message in it

Without a linger the first of a turn gathers the others and, where none came, makes the call itself.
So does the next one, at once, if its lane is empty: who sends one after the other waits for nobody.
"""

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Generic, TypeVar

from latermq._connection.tasks import Tasks
from latermq._values import arguments
from latermq.errors import (
    BadRequestError,
    IllegalMessageError,
    IllegalTimeError,
    LaterMQError,
    MessageTooLargeError,
)

LINGER_MAX: Final = timedelta(seconds=1)
IN_FLIGHT_MAX: Final = 8  # calls of a lane without order
HELD_BYTES_MAX: Final = 64 << 20  # bodies that were not answered yet; who sends more waits
# One message's fault, for which the broker refuses all of a call and stores none.
OF_ONE: Final = (BadRequestError, IllegalMessageError, IllegalTimeError, MessageTooLargeError)

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How sends share calls.

    Fields:
        linger: how long a message waits for others; 0: for those of the same turn of the loop.
        count_max: messages of a call.
        bytes_max: bodies of a call; one message may be larger.
    """

    linger: timedelta = timedelta(0)
    count_max: int = 64
    bytes_max: int = 1 << 20

    def __post_init__(self) -> None:
        arguments.duration("linger", self.linger)
        if not timedelta(0) <= self.linger <= LINGER_MAX:
            limit_ms = LINGER_MAX // timedelta(milliseconds=1)
            raise ValueError(f"linger must be 0 to {limit_ms} ms, not {self.linger}")
        arguments.at_least_one("count_max", self.count_max)
        arguments.at_least_one("bytes_max", self.bytes_max)


class _Lane(Generic[Item, Result]):
    """What may share a call, in order."""

    __slots__ = ("bytes", "entries", "gathers", "in_flight", "in_flight_max", "timer")

    def __init__(self, in_flight_max: int) -> None:
        self.entries: deque[tuple[Item, int, asyncio.Future[Result]]] = deque()
        self.bytes = 0
        self.in_flight = 0
        self.in_flight_max = in_flight_max
        self.timer: asyncio.Handle | None = None
        self.gathers = False  # until the loop's next turn


class Batches(Generic[Key, Item, Result]):
    """All lanes of one sender.

    Args:
        deliver: makes one call of a lane's items; their outcomes, in order.
    """

    def __init__(
        self,
        batching: Batching,
        deliver: Callable[[Key, Sequence[Item]], Awaitable[Sequence[Result | LaterMQError]]],
    ) -> None:
        self._batching = batching
        self._linger_s = batching.linger.total_seconds()
        self._deliver = deliver
        self._lanes: dict[Key, _Lane[Item, Result]] = {}
        self._tasks = Tasks()
        self._held_bytes = 0
        self._lonely = False  # the last one that gathered others found none
        self._room = asyncio.Event()  # set when a call ends, or a lane does

    async def add(self, key: Key, item: Item, size: int, *, ordered: bool = False) -> Result:
        """Send `item`, of `size` bytes, with others of the same key. Raises what its call did.

        Whoever stays alone makes the call, and takes it along when cancelled.
        """
        while self._held_bytes and self._held_bytes + size > HELD_BYTES_MAX:
            self._room.clear()
            await self._room.wait()
        self._held_bytes += size
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(1 if ordered else IN_FLIGHT_MAX)
            if self._lonely:
                return await self._call_alone(key, lane, item, size)
        else:
            self._lonely = False
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Result] = loop.create_future()
        lane.entries.append((item, size, outcome))
        lane.bytes += size
        if self._full(lane):
            self._leave(key, lane)
        elif lane.timer is None and not lane.gathers and lane.in_flight < lane.in_flight_max:
            if self._linger_s:
                lane.timer = loop.call_later(self._linger_s, self._due, key, lane)
            elif await self._gathers_none(key, lane, outcome):
                return await self._call_alone(key, lane, item, size)
        return await outcome

    def join(self, key: Key, item: Item, size: int) -> asyncio.Future[Result]:
        """Send `item` as `add` does, whatever becomes of the caller; no bound holds it back."""
        self._held_bytes += size
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(IN_FLIGHT_MAX)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Result] = loop.create_future()
        lane.entries.append((item, size, outcome))
        lane.bytes += size
        if self._full(lane):
            self._leave(key, lane)
        elif lane.timer is None and not lane.gathers and lane.in_flight < lane.in_flight_max:
            lane.gathers = True
            loop.call_soon(self._gathered, key, lane)
        return outcome

    def _gathered(self, key: Key, lane: _Lane[Item, Result]) -> None:
        lane.gathers = False
        self._due(key, lane)

    async def close(self) -> None:
        """Send what waits and wait for its outcomes; those have their bounds."""
        while self._lanes:
            for key, lane in list(self._lanes.items()):
                self._due(key, lane)
            if self._lanes:
                self._room.clear()
                await self._room.wait()

    async def _gathers_none(
        self, key: Key, lane: _Lane[Item, Result], outcome: asyncio.Future[Result]
    ) -> bool:
        """Let others of this turn of the loop join the one that has `outcome`, and send them.

        Returns:
            Whether it stayed alone: it is out of the lane, and to make its call itself.
        """
        lane.gathers = True
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            outcome.cancel()
            raise
        finally:
            lane.gathers = False
            only = len(lane.entries) == 1 and lane.entries[0][2] is outcome
            alone = only and not outcome.done()
            self._lonely = alone and not lane.in_flight  # else others send beside it
            if not alone:
                self._due(key, lane)
        if alone:
            lane.entries.clear()
            lane.bytes = 0
        return alone

    async def _call_alone(
        self, key: Key, lane: _Lane[Item, Result], item: Item, size: int
    ) -> Result:
        """Make the call of one that nobody shares: no task, no future and no turn of the loop.

        It is written at once (`LeanTransport`). Calls of tasks of their own, for all that waits,
        took a quarter more of the sender (docs/benchmarks.md).
        """
        lane.in_flight += 1
        try:
            (outcome,) = await self._deliver(key, (item,))
        finally:
            self._end_call(key, lane, size)
        if isinstance(outcome, LaterMQError):
            raise outcome
        return outcome

    def _full(self, lane: _Lane[Item, Result]) -> bool:
        return (
            len(lane.entries) >= self._batching.count_max or lane.bytes >= self._batching.bytes_max
        )

    def _due(self, key: Key, lane: _Lane[Item, Result]) -> None:
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        while lane.entries and self._leave(key, lane):
            pass
        self._tidy(key, lane)

    def _leave(self, key: Key, lane: _Lane[Item, Result]) -> bool:
        """Begin one call with the oldest; False when too many are under way."""
        if lane.in_flight >= lane.in_flight_max:
            return False
        items, outcomes, size = self._next(lane)
        if items:
            self._tasks.start(self._call(key, lane, items, outcomes, size), "latermq shared call")
        return True

    def _next(
        self, lane: _Lane[Item, Result]
    ) -> tuple[list[Item], list[asyncio.Future[Result]], int]:
        """Take the oldest that fit one call, and count them as under way."""
        items: list[Item] = []
        outcomes: list[asyncio.Future[Result]] = []
        total = 0
        while lane.entries and len(items) < self._batching.count_max:
            item, size, outcome = lane.entries[0]
            if items and total + size > self._batching.bytes_max:
                break
            lane.entries.popleft()
            lane.bytes -= size
            if outcome.cancelled():  # who sent it no longer wants to
                self._give_room(size)
                continue
            total += size
            items.append(item)
            outcomes.append(outcome)
        lane.in_flight += bool(items)
        return items, outcomes, total

    async def _call(
        self,
        key: Key,
        lane: _Lane[Item, Result],
        items: list[Item],
        outcomes: list[asyncio.Future[Result]],
        size: int,
    ) -> None:
        try:
            await self._settle(key, items, outcomes)
        finally:
            for outcome in outcomes:
                outcome.cancel()  # without effect on those that have one
            self._end_call(key, lane, size)

    async def _settle(
        self, key: Key, items: list[Item], outcomes: list[asyncio.Future[Result]]
    ) -> None:
        try:
            results = await self._deliver(key, items)
        except LaterMQError as error:
            if len(items) > 1 and isinstance(error, OF_ONE):
                half = len(items) // 2
                await self._settle(key, items[:half], outcomes[:half])
                await self._settle(key, items[half:], outcomes[half:])
                return
            _fail(outcomes, error)
            return
        except Exception as error:  # noqa: BLE001  whoever sent is to hear of it
            _fail(outcomes, error)
            return
        for outcome, result in zip(outcomes, results, strict=True):
            if outcome.done():
                continue
            if isinstance(result, LaterMQError):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)

    def _end_call(self, key: Key, lane: _Lane[Item, Result], size: int) -> None:
        lane.in_flight -= 1
        self._give_room(size)
        if lane.timer is None and not lane.gathers:
            self._due(key, lane)

    def _give_room(self, size: int) -> None:
        self._held_bytes -= size
        self._room.set()

    def _tidy(self, key: Key, lane: _Lane[Item, Result]) -> None:
        """Forget a lane that nothing is in."""
        if not (lane.entries or lane.in_flight or lane.gathers):
            self._lanes.pop(key, None)
            self._room.set()


def _fail(outcomes: list[asyncio.Future[Result]], error: Exception) -> None:
    """Fail each sender with an exception of its own: tracebacks grow where they are raised."""
    for outcome in outcomes:
        if not outcome.done():
            outcome.set_exception(copy.copy(error))
