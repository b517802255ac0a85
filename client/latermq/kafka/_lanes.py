"""What is done with records, partition by partition, each one's in order.

record ─→ another group's? ─────────────────────────→ done
       ─→ ordered, and its key on a detour? ─→ LaterMQ ─→ done
       ─→ handler ── returns ───────────────────────→ done
                  ── raises ─→ LaterMQ ─────────────→ done
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from latermq.kafka._feed import HELD_MAX, Feed, Raw
from latermq.kafka._record import (
    ATTEMPT_HEADER,
    Record,
    last_header,
    meant_for,
    without_ours,
)

log = logging.getLogger("latermq.kafka")

Treat = Callable[[Record, Callable[[], bool]], Awaitable[None]]

BREATH: Final = 32  # records that a lane takes before it lets others have the loop


class Lane:
    """The records of one partition, and the task that works through them."""

    def __init__(
        self, work: Callable[["Lane"], Coroutine[Any, Any, None]], is_paused: Callable[[], bool]
    ) -> None:
        self.records: deque[Raw] = deque()
        self.more = asyncio.Event()
        self.in_hand = False
        self._is_paused = is_paused
        self.given_up = False
        self.lost = False  # another consumer has begun with what is in hand
        self.task = asyncio.get_running_loop().create_task(work(self))

    def is_lost(self) -> bool:
        return self.lost

    async def next(self) -> Raw | None:
        """Wait for a record; None: the partition is given up. It is counted until `finished`."""
        while not self.given_up and (self._is_paused() or not self.records):
            self.more.clear()
            await self.more.wait()
        self.in_hand = not self.given_up
        return self.records[0] if self.in_hand else None

    def finished(self) -> None:
        """Let the record go that `next` gave."""
        self.in_hand = False
        if not self.given_up:
            self.records.popleft()

    def give_up(self) -> None:
        """Begin nothing more."""
        self.given_up = True
        self.records.clear()
        self.more.set()


class KafkaLanes:
    """All partitions of a topic that this consumer has.

    Args:
        treat: does what is to be done with a record; told how to find out whether it was lost.
        begin: called before partitions that came are worked on, and waited for with `known`.
    """

    def __init__(
        self, group: str, treat: Treat, begin: Callable[[], None], known: Callable[[], Any]
    ) -> None:
        self._group = group
        self._treat = treat
        self._begin = begin
        self._known = known
        self._lanes: dict[int, Lane] = {}
        self._lost: set[asyncio.Task[None]] = set()  # that still have something in hand
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.feed: Feed | None = None
        self.paused = False  # begin nothing, and read nothing more

    def pause(self) -> None:
        """Begin nothing until `resume`; what is in hand goes on."""
        self.paused = True

    def resume(self) -> None:
        """Go on."""
        self.paused = False
        for lane in self._lanes.values():
            lane.more.set()

    async def assigned(self, partitions: Sequence[int]) -> None:
        """Begin to work on partitions."""
        if partitions:
            log.info("partitions came: %s", ", ".join(map(str, partitions)))
            self._begin()
        for number in partitions:
            self._lanes[number] = Lane(self._work, lambda: self.paused)

    async def revoked(self, partitions: Sequence[int], wait_s: float) -> None:
        """Stop working on partitions; what is in hand is finished within the wait."""
        log.info("partitions go: %s", ", ".join(map(str, partitions)))
        lanes = {number: self._lanes[number] for number in partitions if number in self._lanes}
        for lane in lanes.values():
            lane.give_up()
        if lanes:
            await asyncio.wait([lane.task for lane in lanes.values()], timeout=wait_s)
        for number, lane in lanes.items():
            del self._lanes[number]
            if not lane.task.done():
                lane.lost = True
                self._lost.add(lane.task)
                lane.task.add_done_callback(self._lost.discard)
                log.warning("partition %d was given up with a record in hand", number)

    def arrived(self, batch: Sequence[Raw]) -> None:
        """Put records behind those that their lanes have."""
        for each in batch:
            lane = self._lanes.get(each.partition())
            if lane is not None and not lane.given_up:
                lane.records.append(each)
                lane.more.set()

    def held(self) -> Mapping[int, int]:
        """Count what each partition has here that is not done. Called in the feed's thread."""
        return {number: len(lane.records) for number, lane in list(self._lanes.items())}

    def now(self) -> dict[str, Any]:
        """Return what `KafkaStats` has of lanes."""
        lanes = dict(self._lanes)
        in_hand = sum(each.in_hand for each in lanes.values())
        held = self.held()
        return {
            "in_hand": in_hand,
            "waiting": sum(held.values()) - in_hand,
            "partitions": tuple(sorted(lanes)),
            "full": any(count >= HELD_MAX for count in held.values()),
            "paused": self.paused,
        }

    def failed(self, error: BaseException) -> None:
        """End the listener."""
        if not self.failure.done():
            self.failure.set_exception(error)

    async def drain(self, grace_s: float) -> bool:
        """Begin nothing more, and wait for what is in hand; tell whether it was finished."""
        lanes = {lane.task: lane for lane in self._lanes.values()}
        tasks = [*self._lost, *lanes]
        for lane in self._lanes.values():
            lane.give_up()
        if not tasks:
            return True
        _, late = await asyncio.wait(tasks, timeout=grace_s)
        for task in late:
            if task in lanes:
                lanes[task].lost = True  # whatever comes of what is cancelled, it is not done
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return not late

    async def _work(self, lane: Lane) -> None:
        taken = 0
        try:
            while (raw := await lane.next()) is not None:
                await self._known()
                await self._do(raw, lane)
                lane.finished()
                taken += 1
                if taken % BREATH == 0:
                    await asyncio.sleep(0)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():  # else: the grace is over
                self.failed(RuntimeError("what was to be done with a record was cancelled"))
            raise
        except Exception as error:  # noqa: BLE001  the listener ends of it, and its record stays
            self.failed(error)

    async def _do(self, raw: Raw, lane: Lane) -> None:
        headers = raw.headers() or ()
        if meant_for(self._group, headers):
            await self._treat(_record(raw, headers), lane.is_lost)
        if self.feed is not None and not lane.lost:
            self.feed.done(raw.partition(), raw.offset())


def _record(raw: Raw, headers: Sequence[tuple[str, bytes | None]]) -> Record:
    kind, at_ms = raw.timestamp()
    at = None
    if kind != TIMESTAMP_NOT_AVAILABLE:
        with suppress(OverflowError, ValueError, OSError):  # of a producer without a clock
            at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return Record(
        topic=raw.topic(),
        partition=raw.partition(),
        offset=raw.offset(),
        key=raw.key(),
        value=raw.value(),
        headers=without_ours(headers),
        timestamp=at,
        attempt=_attempt(headers),
    )


def _attempt(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Read which attempt this is; 1 where no header says so, or a wrong one."""
    written = last_header(headers, ATTEMPT_HEADER)
    if written is None:
        return 1
    if not written.isdigit() or len(written) > 9 or not int(written):
        log.warning("header %s is %r, not a number: counted as the first", ATTEMPT_HEADER, written)
        return 1
    return int(written)
