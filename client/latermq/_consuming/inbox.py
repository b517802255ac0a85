"""What a push consumer has received and not yet finished: bounded, and in order where it must be.

`Window` bounds one queue's share: messages and bytes received and not yet settled. `Inbox` holds
what waits for a listener; in an ordered group it hands out a message only when no earlier one of
its message group, or lite topic, is still being worked on, or several of it together.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple, TypeAlias

from latermq._values import arguments
from latermq.delivery import Delivery
from latermq_text.durations import format_exact

CACHED_COUNT_MAX: Final = 1000
CACHED_BYTES_MAX: Final = 100 << 20

log = logging.getLogger("latermq.client")

FULL_S: Final = 60.0  # a window that was full so long is worth a warning
# It stays full until it holds less of its bounds: one that is settled is soon followed by another.
FULL_SHARE: Final = 0.9

OrderKey: TypeAlias = tuple[str, str]  # topic, and message group or lite topic


class Prefetch(NamedTuple):
    """How much a consumer holds for a queue, and how much it asks for at a time.

    Fields:
        receive_max: messages of one receive; None: what the broker gives.
        receive_pause: between two receives.
    """

    cached_count_max: int = CACHED_COUNT_MAX
    cached_bytes_max: int = CACHED_BYTES_MAX
    receive_max: int | None = None
    receive_pause: timedelta = timedelta(0)

    def check(self) -> None:
        """Raises TypeError, ValueError: something cannot be so."""
        arguments.at_least_one("cached_count_max", self.cached_count_max)
        arguments.at_least_one("cached_bytes_max", self.cached_bytes_max)
        if self.receive_max is not None:
            arguments.count("receive_max", self.receive_max)
        arguments.span("receive_pause", self.receive_pause)

    def words(self) -> str:
        """Say what it is."""
        mebibytes = self.cached_bytes_max / (1 << 20)
        held = f"{self.cached_bytes_max} bytes" if mebibytes % 1 else f"{mebibytes:.0f} MiB"
        parts = [f"holds {self.cached_count_max} messages and {held} a queue"]
        if self.receive_max is not None:
            parts.append(f"{self.receive_max} at most a receive")
        if self.receive_pause:
            pause = format_exact(self.receive_pause // timedelta(milliseconds=1))
            parts.append(f"{pause} between two receives")
        return ", ".join(parts)


class Window:
    """Room for a queue's messages. A batch may overshoot the bytes: sizes are known too late.

    Args:
        is_open: there is no room while it is not set.
        receive_max: messages of one receive; None: what the broker gives.
        receive_pause: between two receives.
    """

    def __init__(
        self,
        count_max: int = CACHED_COUNT_MAX,
        bytes_max: int = CACHED_BYTES_MAX,
        is_open: asyncio.Event | None = None,
        receive_max: int | None = None,
        receive_pause: timedelta = timedelta(0),
    ) -> None:
        if count_max < 1 or bytes_max < 1:
            raise ValueError("a window must have room for one message")
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._count = 0
        self._bytes = 0
        self._freed = asyncio.Event()
        self._is_open = is_open
        self._receive_max = receive_max
        self._pause_s = receive_pause.total_seconds()
        self._next_s = 0.0
        self._full_s: float | None = None  # since when it is full
        self._settled = 0  # since then
        self._blocked_s = 0.0  # when it last kept a receive waiting
        self._warned = False

    def room(self) -> int:
        """Return how many messages may still come, 0 when they are too many or too large."""
        return self._count_max - self._count if self._bytes < self._bytes_max else 0

    @property
    def held(self) -> tuple[int, int]:
        """Return how many messages it holds, and their bytes."""
        return self._count, self._bytes

    async def wait_for_room(self) -> int:
        """Return how much to receive, waiting for room; of a long wait there is a warning."""
        loop = asyncio.get_running_loop()
        if self._pause_s:
            await asyncio.sleep(max(self._next_s - loop.time(), 0))
            self._next_s = loop.time() + self._pause_s
        while True:
            if self._is_open is not None:
                await self._is_open.wait()
            if (room := self.room()) > 0:
                return room if self._receive_max is None else min(room, self._receive_max)
            self._freed.clear()
            self._blocked_s = loop.time()
            if self._full_s is None:
                self._full_s, self._settled = self._blocked_s, 0
            timer = loop.call_later(FULL_S, self._warn_stuck)
            try:
                await self._freed.wait()
            finally:
                timer.cancel()

    def _warn_stuck(self) -> None:
        self._warned = True
        log.warning(
            "nothing is received: %d of %d messages and %d of %d bytes are held, and none was "
            "settled for %d s",
            self._count, self._count_max, self._bytes, self._bytes_max, FULL_S,
        )  # fmt: skip

    def _look_how_full(self, full_s: float) -> None:
        """Tell of a window that is full since `full_s`, once, and once of its end."""
        count_max, bytes_max = self._count_max * FULL_SHARE, self._bytes_max * FULL_SHARE
        if self._count < count_max and self._bytes < bytes_max:
            self._full_s = None
            if self._warned:
                self._warned = False
                log.info("a queue's window has room again: %d messages are held in it", self._count)
            return
        now_s = asyncio.get_running_loop().time()
        if not self._warned and now_s - full_s > FULL_S and now_s - self._blocked_s < FULL_S / 4:
            self._warned = True
            log.warning(
                "a queue's window was full for %d s, though %d were settled: %d of %d messages and "
                "%d of %d bytes are held; the listener is slower than what comes",
                FULL_S, self._settled, self._count, self._count_max, self._bytes, self._bytes_max,
            )  # fmt: skip

    def enter(self, size: int) -> None:
        self._count += 1
        self._bytes += size

    def leave(self, size: int) -> None:
        self._count -= 1
        self._bytes -= size
        assert self._count >= 0
        assert self._bytes >= 0
        self._settled += 1
        self._freed.set()
        if self._full_s is not None:
            self._look_how_full(self._full_s)


class Inbox:
    """Deliveries on their way to whoever consumes them.

    Args:
        look: called before anything is handed out; it may `withdraw` what may be leased no more.
    """

    def __init__(self, look: Callable[[], None] = lambda: None) -> None:
        self._look = look
        self._waiting: deque[Delivery] = deque()
        self._in_order: set[Delivery] = set()  # of those waiting
        self._worked_on: dict[Delivery, OrderKey] = {}  # of those that have an order
        self._busy: Counter[OrderKey] = Counter()  # how many of them
        self._news = asyncio.Event()
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, delivery: Delivery, *, in_order: bool) -> None:
        """Let it wait; `in_order`: behind the earlier ones of its message group."""
        self._waiting.append(delivery)
        if in_order:
            self._in_order.add(delivery)
        self._news.set()

    async def take(self) -> Delivery | None:
        """Return the next delivery that may be worked on; None once the inbox is closed."""
        while not self._closed:
            self._look()
            if (delivery := self._next()) is not None:
                return delivery
            self._news.clear()
            await self._news.wait()
        return None

    async def take_several(self, count_max: int, wait_s: float) -> list[Delivery]:
        """Return the next deliveries that may be worked on together, in their order; none once the
        inbox is closed.

        They are as many as allowed, or those there are `wait_s` after the first. Of a message
        group there may be several, if none is being worked on.
        """
        loop = asyncio.get_running_loop()
        end_s: float | None = None
        waited = False
        while not self._closed:
            self._look()
            ready = self._ready(count_max)
            if len(ready) == count_max or (ready and waited):
                return self._handed_out(ready)
            if not ready:
                end_s, waited = None, False
            elif end_s is None:
                end_s = loop.time() + wait_s
            self._news.clear()
            try:
                async with asyncio.timeout_at(end_s):
                    await self._news.wait()
            except TimeoutError:
                waited = True
        return []

    def finished(self, delivery: Delivery, *, failed: bool) -> list[Delivery]:
        """Let the next of its message group go.

        Returns:
            what waited behind it and must go back to the broker, because it failed and has to
            come again before them.
        """
        key = self._worked_on.pop(delivery, None)
        if key is None:
            return []
        self._busy[key] -= 1
        if not self._busy[key]:
            del self._busy[key]
            self._news.set()
        behind = [d for d in self._in_order if _order_of(d) == key] if failed else []
        for waiting in behind:
            self._waiting.remove(waiting)
            self._in_order.discard(waiting)
        return behind

    def close(self) -> list[Delivery]:
        """Hand out nothing more; return what waits."""
        self._closed = True
        self._news.set()
        return self.empty()

    def empty(self) -> list[Delivery]:
        """Hand out nothing of what waits; return it."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self._in_order.clear()
        return waiting

    def withdraw(self, chosen: Callable[[Delivery], bool]) -> list[Delivery]:
        """Hand out nothing of what waits and is chosen; return it."""
        withdrawn = [each for each in self._waiting if chosen(each)]
        self._waiting = deque(each for each in self._waiting if not chosen(each))
        self._in_order.difference_update(withdrawn)
        return withdrawn

    def _next(self) -> Delivery | None:
        for index, delivery in enumerate(self._waiting):
            key = _order_of(delivery) if delivery in self._in_order else None
            if key is None or key not in self._busy:
                del self._waiting[index]
                self._in_order.discard(delivery)
                if key is not None:
                    self._work_on(delivery, key)
                return delivery
        return None

    def _ready(self, count_max: int) -> list[Delivery]:
        ready: list[Delivery] = []
        for delivery in self._waiting:
            if delivery not in self._in_order or _order_of(delivery) not in self._busy:
                ready.append(delivery)
                if len(ready) == count_max:
                    break
        return ready

    def _handed_out(self, ready: list[Delivery]) -> list[Delivery]:
        for delivery in ready:
            self._waiting.remove(delivery)  # among the first
            if delivery in self._in_order:
                self._in_order.discard(delivery)
                if (key := _order_of(delivery)) is not None:
                    self._work_on(delivery, key)
        return ready

    def _work_on(self, delivery: Delivery, key: OrderKey) -> None:
        self._worked_on[delivery] = key
        self._busy[key] += 1


def _order_of(delivery: Delivery) -> OrderKey | None:
    group = delivery.message_group if delivery.lite_topic is None else delivery.lite_topic
    return None if group is None else (delivery.topic, group)
