"""The last hour's figures: what the broker counted, and how the groups were, kept in memory.

One watch for each user who is signed in, however many tabs look. It asks every shard each PERIOD_S,
sees what its user may see, and of many groups looks at a few in turn. A shard that is silent counts
for nothing, and goes on where it was when it is back.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from latermq.errors import ForbiddenError, LaterMQError, UnauthorizedError
from latermq_console import clock
from latermq_console.reading.desk import Desk
from latermq_console.reading.jobs import words_of
from latermq_console.reading.shards import ShardLook
from latermq_proto.latermq.v1 import broker_pb2, group_pb2
from latermq_text.whole import whole_group

log = logging.getLogger("latermq.console")

PERIOD_S: Final = 5.0
KEPT_MS: Final = 3_600_000
SAMPLES_MAX: Final = 720
GROUP_ROUNDS: Final = 3  # in each third round many groups are listed, and lags remembered
GROUPS_FEW: Final = 500  # so many are listed in each round
GROUPS_MANY: Final = 1_000
GROUPS_LISTED_MAX: Final = 10_000
GROUPS_LOOKED_MAX: Final = 20  # one by one, in one round
HISTORIES_MAX: Final = 500  # groups whose lag is remembered: those with the most
GROUP_SAMPLES_MAX: Final = 240  # of lags
POINTS_MAX: Final = 120
PAGE: Final = 1_000
COUNTERS: Final = {
    "sent": "messages_sent",
    "delivered": "messages_delivered",
    "acknowledged": "messages_acknowledged",
    "failed": "attempts_failed",
    "dead": "dead_letters",
}  # of samples, as brokers call them


class Sample(NamedTuple):
    """What all shards that answered said at a moment: sums, the longest delays, the least room.

    Counters run from the console's first look.
    """

    at_ms: int
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
class Deaths:
    """How many letters a group has in one shard: (at_ms, count), one for each change."""

    counts: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))

    @property
    def lately(self) -> int:
        """Count the letters that came in the time that is kept; redriven ones make it less."""
        return self.counts[-1][1] - min(count for _, count in self.counts)

    def note(self, now_ms: int, dead: int) -> None:
        """Remember the count if it is another; forget what was before the time that is kept."""
        if not self.counts or self.counts[-1][1] != dead:
            self.counts.append((now_ms, dead))
        while len(self.counts) > 1 and self.counts[1][0] < now_ms - KEPT_MS:
            self.counts.popleft()


@dataclass(slots=True)
class GroupState:
    """A group when it was last looked at, in all shards that answered, and how it was before."""

    group: group_pb2.Group
    lags: deque[int] = field(default_factory=lambda: deque(maxlen=GROUP_SAMPLES_MAX))
    deaths: dict[int, Deaths] = field(default_factory=dict)  # by shard
    unequal: list[str] = field(default_factory=list)  # topics that its consumers filter differently
    hung_since_ms: int = 0  # since then consumers hold messages and none ends; 0: it is not so

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

    def note_progress(self, now_ms: int) -> None:
        """Remember since when its consumers hold messages of which none is done, and none fails."""
        progress = self.group.progress
        if not self.in_flight or progress.out_per_s or progress.failed_per_s:
            self.hung_since_ms = 0
        elif not self.hung_since_ms:
            self.hung_since_ms = now_ms

    @property
    def parked(self) -> int:
        return self.group.progress.parked_message_group_count

    @property
    def died_lately(self) -> int:
        return sum(each.lately for each in self.deaths.values())

    def dead_line(self) -> list[int]:
        """Return how the letters of all shards became more and less: one count for each change."""
        changes = sorted(
            (at_ms, shard, count)
            for shard, deaths in self.deaths.items() for at_ms, count in deaths.counts
        )  # fmt: skip
        now: dict[int, int] = {}
        line: dict[int, int] = {}
        for at_ms, shard, count in changes:
            now[shard] = count
            line[at_ms] = sum(now.values())
        return list(line.values())


class Watch:
    """Runs from `start` to `stop`. What others sampled of the broker it is given as `samples`."""

    def __init__(self, desk: Desk, samples: deque[Sample] | None = None) -> None:
        self.desk = desk
        self.shards = ShardLook(desk)
        self.samples: deque[Sample] = deque(samples or (), maxlen=SAMPLES_MAX)
        self.brokers: dict[int, broker_pb2.Broker] = {}  # by shard, those that answered
        self.several = False  # shards, whether they answer or not
        self.groups: dict[str, GroupState] = {}
        self.more_groups = False  # than are listed
        self.groups_error = ""  # why none are known
        self.groups_silent: list[str] = []  # why shards are that did not tell of their groups
        self.error = ""  # why the broker's figures are old
        self._turn = 0
        self._task: asyncio.Task[None] | None = None
        self._first = asyncio.Event()

    @property
    def many(self) -> bool:
        """Tell whether there are so many groups that pages had better look less often."""
        return len(self.groups) > GROUPS_MANY

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
        await self.shards.close()
        await self.desk.close()

    async def ready(self, wait_s: float) -> None:
        """Wait for the first look, but not for long."""
        try:
            async with asyncio.timeout(wait_s):
                await self._first.wait()
        except TimeoutError:
            return

    def lists_groups(self, rounds: int) -> bool:
        """Tell whether groups are listed in this round: few always, to agree with what is counted.

        Whoever may not list them is asked for as seldom as many are.
        """
        few = len(self.groups) <= GROUPS_FEW and not self.groups_error
        return few or rounds % GROUP_ROUNDS == 0

    async def _run(self) -> None:
        rounds = 0
        while True:
            try:
                await self._look_at_brokers()
                if self.lists_groups(rounds):
                    await self._look_at_groups()
                if rounds % GROUP_ROUNDS == 0:
                    await self._remember_groups()
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

    async def _look_at_brokers(self) -> None:
        method, request = self.desk.admin.brokers.GetBroker, broker_pb2.GetBrokerRequest()
        parts = await self.shards.each(method, lambda _: request, age_s=0)
        before, self.brokers = self.brokers, {n: answer.broker for n, answer in parts.answers}
        self.several = parts.several
        brokers = list(self.brokers.values())
        waits = [broker.waiting for broker in brokers]
        now_ms = clock.now_ms()
        self.samples.append(
            Sample(
                at_ms=now_ms,
                **counted(self.samples, before, self.brokers),
                waiting=sum(
                    each.delayed + each.in_flight + each.backoff + each.ready_retries
                    for each in waits
                ),
                lag=sum(each.lag for each in self.groups.values()) if self.groups else -1,
                lateness_ms=max(broker.totals.lateness_p99_ms for broker in brokers),
                loop_lag_ms=max(broker.totals.loop_lag_p99_ms for broker in brokers),
                free_percent=min(free_percent(broker.disk) for broker in brokers),
            )
        )
        while self.samples[0].at_ms < now_ms - KEPT_MS:
            self.samples.popleft()

    async def _look_at_groups(self) -> None:
        try:
            parts = await self.shards.every(lambda _, desk: _listed(desk))
        except ForbiddenError as error:
            self.groups, self.groups_error = {}, words_of(error)
            return
        self.groups_error, self.groups_silent = "", parts.silent
        self.more_groups = any(more for _, (_, more) in parts.answers)
        now_ms = clock.now_ms()
        by_name: dict[str, dict[int, group_pb2.Group]] = {}
        for shard, (listed, _) in parts.answers:
            for group in listed:
                by_name.setdefault(group.name, {})[shard] = group
        states = {}
        for name, of_shards in by_name.items():
            whole = whole_group(list(of_shards.values()))
            state = states[name] = self.groups.get(name) or GroupState(whole)
            state.group = whole
            state.note_progress(now_ms)
            for shard, group in of_shards.items():
                deaths = state.deaths.setdefault(shard, Deaths())
                if self._first.is_set() and name not in self.groups:  # its dead have died since
                    deaths.note(now_ms, 0)
                deaths.note(now_ms, group.dead_letter_count)
        self.groups = states

    async def _remember_groups(self) -> None:
        """Note how far groups are behind, and look whether consumers of a few filter alike."""
        behind = sorted(self.groups.values(), key=lambda state: -state.lag)
        for state in behind[:HISTORIES_MAX]:
            state.lags.append(state.lag)
        for state in behind[HISTORIES_MAX:]:
            state.lags.clear()
        await asyncio.gather(*(self._look_at_filters(state) for state in self._in_turn()))

    def _in_turn(self) -> Sequence[GroupState]:
        """Choose whose filters to look at: a listing does not tell of them."""
        states = list(self.groups.values())
        if len(states) <= GROUPS_LOOKED_MAX:
            return states
        start = self._turn % len(states)
        self._turn += GROUPS_LOOKED_MAX
        return (states + states)[start : start + GROUPS_LOOKED_MAX]

    async def _look_at_filters(self, state: GroupState) -> None:
        groups, request = self.desk.admin.groups, group_pb2.GetGroupRequest(name=state.name)
        try:
            parts = await self.shards.each(groups.GetGroup, lambda _: request, age_s=0)
        except LaterMQError:  # deleted since it was listed, or nobody answers: the next look tells
            return
        group = whole_group([answer.group for _, answer in parts.answers])
        state.unequal = [each.topic for each in group.unequal_filters]


async def _listed(desk: Desk) -> tuple[list[group_pb2.Group], bool]:
    """Return a shard's groups, and whether there are more than are listed."""
    admin = desk.admin
    request = group_pb2.ListGroupsRequest(page_size=PAGE)
    listed: list[group_pb2.Group] = []
    while True:
        answer = await admin.call(admin.groups.ListGroups, request)
        listed += answer.groups
        request.page_token = answer.next_page_token
        if not answer.next_page_token or len(listed) >= GROUPS_LISTED_MAX:
            return listed, bool(answer.next_page_token)


def counted(
    samples: Sequence[Sample],
    before: Mapping[int, broker_pb2.Broker],
    now: Mapping[int, broker_pb2.Broker],
) -> dict[str, int]:
    """Return a new sample's counters: the last one's, and how much each shard has counted since.

    One that did not answer before, or has started since, is counted from now on.
    """
    counts = {}
    for name, total in COUNTERS.items():
        counts[name] = getattr(samples[-1], name) if samples else 0
        for shard, broker in now.items():
            then = before.get(shard)
            if then is not None and then.started_at_ms == broker.started_at_ms:
                growth = getattr(broker.totals, total) - getattr(then.totals, total)
                counts[name] += max(0, growth)
    return counts


def free_percent(disk: broker_pb2.BrokerDisk) -> float:
    return disk.free_bytes / max(1, disk.total_bytes) * 100


def thinned(samples: Sequence[Sample]) -> list[Sample]:
    """Return at most POINTS_MAX of the samples, the newest among them."""
    step = max(1, -(-len(samples) // POINTS_MAX))
    return list(samples)[::-1][::step][::-1]


def grown(samples: Sequence[Sample], name: str) -> list[int]:
    """Return how much a counter has grown since the first sample."""
    return [getattr(sample, name) - getattr(samples[0], name) for sample in samples]


def rates(samples: Sequence[Sample], name: str) -> list[float]:
    """Return a counter's growth per second between samples."""
    growth = []
    for before, after in pairwise(samples):
        seconds = max(1, after.at_ms - before.at_ms) / 1_000
        growth.append((getattr(after, name) - getattr(before, name)) / seconds)
    return growth
