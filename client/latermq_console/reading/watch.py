"""The last hour's figures: what the broker counted, and how the groups were, kept in memory.

One watch for each user who is signed in, however many tabs look. It asks every PERIOD_S, sees what
its user may see, and of many groups looks at a few in turn.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from latermq.errors import ForbiddenError, LaterMQError, UnauthorizedError
from latermq_console import clock
from latermq_console.reading.desk import Desk
from latermq_console.reading.jobs import words_of
from latermq_proto.latermq.v1 import broker_pb2, group_pb2

log = logging.getLogger("latermq.console")

PERIOD_S: Final = 5.0
KEPT_MS: Final = 3_600_000
SAMPLES_MAX: Final = 720
GROUP_ROUNDS: Final = 3  # groups are looked at in each third round
GROUPS_LISTED_MAX: Final = 10_000
GROUPS_LOOKED_MAX: Final = 20  # one by one, in one round
HISTORIES_MAX: Final = 500  # groups whose lag is remembered: those with the most
GROUP_SAMPLES_MAX: Final = 240
POINTS_MAX: Final = 120
PAGE: Final = 1_000


class Sample(NamedTuple):
    """What the broker said at a moment. Counters run from its start."""

    at_ms: int
    started_at_ms: int
    sent: int
    delivered: int
    acknowledged: int
    failed: int
    dead: int
    waiting: int  # delayed, in flight, in backoff, ready again
    lag: int  # ready and unread of the groups that were looked at; -1: not known
    lateness_ms: float
    loop_lag_ms: float
    free_percent: float


@dataclass(slots=True)
class GroupState:
    """A group when it was last looked at, and how it was before."""

    group: group_pb2.Group
    lags: deque[int] = field(default_factory=lambda: deque(maxlen=GROUP_SAMPLES_MAX))
    deads: deque[tuple[int, int]] = field(
        default_factory=lambda: deque(maxlen=GROUP_SAMPLES_MAX)
    )  # (at_ms, count), one for each change
    unequal: list[str] = field(default_factory=list)  # topics that its consumers filter differently

    @property
    def name(self) -> str:
        return self.group.name

    @property
    def dead(self) -> int:
        return self.group.dead_letter_count

    @property
    def lag(self) -> int:
        return self.group.progress.ready_count

    @property
    def in_flight(self) -> int:
        return self.group.progress.in_flight_count

    @property
    def backoff(self) -> int:
        return self.group.progress.backoff_count

    @property
    def parked(self) -> int:
        return self.group.progress.parked_message_group_count

    @property
    def died_lately(self) -> int:
        """Count the letters that came in the time that is kept; redriven ones make it less."""
        return max(0, self.dead - min((count for _, count in self.deads), default=self.dead))

    def note_dead(self, now_ms: int) -> None:
        """Remember the count if it is another; forget what was before the time that is kept."""
        if not self.deads or self.deads[-1][1] != self.dead:
            self.deads.append((now_ms, self.dead))
        while len(self.deads) > 1 and self.deads[1][0] < now_ms - KEPT_MS:
            self.deads.popleft()


class Watch:
    """Runs from `start` to `stop`. What others sampled of the broker it is given as `samples`."""

    def __init__(self, desk: Desk, samples: deque[Sample] | None = None) -> None:
        self.desk = desk
        self.samples: deque[Sample] = deque(samples or (), maxlen=SAMPLES_MAX)
        self.broker: broker_pb2.Broker | None = None
        self.groups: dict[str, GroupState] = {}
        self.more_groups = False  # than are listed
        self.groups_error = ""  # why none are known
        self.error = ""  # why the broker's figures are old
        self._turn = 0
        self._task: asyncio.Task[None] | None = None
        self._first = asyncio.Event()

    @property
    def over(self) -> bool:
        """Tell whether it has stopped for good: its user is one no longer."""
        return self._task is not None and self._task.done()

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await self.desk.close()

    async def ready(self, wait_s: float) -> None:
        """Wait for the first look, but not for long."""
        try:
            async with asyncio.timeout(wait_s):
                await self._first.wait()
        except TimeoutError:
            return

    async def _run(self) -> None:
        rounds = 0
        while True:
            try:
                await self._look_at_broker()
                if rounds % GROUP_ROUNDS == 0:
                    await self._look_at_groups()
                self.error = ""
                rounds += 1
            except UnauthorizedError as error:
                self.error = words_of(error)
                return
            except LaterMQError as error:
                self.error = words_of(error)
            except Exception:
                log.exception("looking at the broker failed")
                self.error = "an error of the console's own; its log has it"
            self._first.set()
            await asyncio.sleep(PERIOD_S)

    async def _look_at_broker(self) -> None:
        admin = self.desk.admin
        request = broker_pb2.GetBrokerRequest()
        broker = (await admin.call(admin.brokers.GetBroker, request)).broker
        totals, waits, disk = broker.totals, broker.waiting, broker.disk
        self.broker = broker
        now_ms = clock.now_ms()
        self.samples.append(
            Sample(
                at_ms=now_ms,
                started_at_ms=broker.started_at_ms,
                sent=totals.messages_sent,
                delivered=totals.messages_delivered,
                acknowledged=totals.messages_acknowledged,
                failed=totals.attempts_failed,
                dead=totals.dead_letters,
                waiting=waits.delayed + waits.in_flight + waits.backoff + waits.ready_retries,
                lag=sum(each.lag for each in self.groups.values()) if self.groups else -1,
                lateness_ms=totals.lateness_p99_ms,
                loop_lag_ms=totals.loop_lag_p99_ms,
                free_percent=disk.free_bytes / max(1, disk.total_bytes) * 100,
            )
        )
        while self.samples[0].at_ms < now_ms - KEPT_MS:
            self.samples.popleft()

    async def _look_at_groups(self) -> None:
        try:
            listed = await self._listed()
        except ForbiddenError as error:
            self.groups, self.groups_error = {}, words_of(error)
            return
        self.groups_error = ""
        now_ms = clock.now_ms()
        states = {}
        for group in listed:
            state = self.groups.get(group.name)
            if state is None:
                state = GroupState(group)
                if self._first.is_set():  # it is new: what is dead has died since
                    state.deads.append((now_ms, 0))
            state.group = group
            state.note_dead(now_ms)
            states[group.name] = state
        self.groups = states
        behind = sorted(states.values(), key=lambda state: -state.lag)
        for state in behind[:HISTORIES_MAX]:
            state.lags.append(state.lag)
        for state in behind[HISTORIES_MAX:]:
            state.lags.clear()
        await asyncio.gather(*(self._look_at_filters(state) for state in self._in_turn()))

    async def _listed(self) -> list[group_pb2.Group]:
        admin = self.desk.admin
        request = group_pb2.ListGroupsRequest(page_size=PAGE)
        listed: list[group_pb2.Group] = []
        while True:
            answer = await admin.call(admin.groups.ListGroups, request)
            listed += answer.groups
            request.page_token = answer.next_page_token
            self.more_groups = bool(answer.next_page_token)
            if not answer.next_page_token or len(listed) >= GROUPS_LISTED_MAX:
                return listed

    def _in_turn(self) -> Sequence[GroupState]:
        """Choose whose filters to look at: a listing does not tell of them."""
        states = list(self.groups.values())
        if len(states) <= GROUPS_LOOKED_MAX:
            return states
        start = self._turn % len(states)
        self._turn += GROUPS_LOOKED_MAX
        return (states + states)[start : start + GROUPS_LOOKED_MAX]

    async def _look_at_filters(self, state: GroupState) -> None:
        groups = self.desk.admin.groups
        request = group_pb2.GetGroupRequest(name=state.name)
        try:
            answer = await self.desk.admin.call(groups.GetGroup, request)
        except LaterMQError:  # deleted since it was listed, or nobody answers: the next look tells
            return
        state.unequal = [each.topic for each in answer.group.unequal_filters]


def thinned(samples: Sequence[Sample]) -> list[Sample]:
    """Return at most POINTS_MAX of the samples, the newest among them."""
    step = max(1, -(-len(samples) // POINTS_MAX))
    return list(samples)[::-1][::step][::-1]


def grown(samples: Sequence[Sample], name: str) -> list[int]:
    """Return how much a counter has grown since the first sample; a restart takes nothing away."""
    growth, whole = [0] * bool(samples), 0
    for before, after in pairwise(samples):
        if before.started_at_ms == after.started_at_ms:
            whole += max(0, getattr(after, name) - getattr(before, name))
        growth.append(whole)
    return growth


def rates(samples: Sequence[Sample], name: str) -> list[float]:
    """Return a counter's growth per second between samples; none across a restart."""
    growth = []
    for before, after in pairwise(samples):
        grown = getattr(after, name) - getattr(before, name)
        same = before.started_at_ms == after.started_at_ms
        seconds = max(1, after.at_ms - before.at_ms) / 1_000
        growth.append(max(0.0, grown / seconds) if same else 0.0)
    return growth
