"""Work that lasts, in turns on the event loop: coroutines that ask before each step.

    async with background.job(user, "ListPending") as job:
        while …:
            await job.turn()            at once, while the job's slice lasts; else in its turn
            page = look_at(job.count)   a step: as many items as take about STEP_NS

One job has its turn at a time, and between two turns the loop does everything that is ready. A turn
is from the moment a waiting job is woken to the moment it gives the loop back, whatever for. What a
job does after it waited for anything but its turn is not charged: it asks for a turn again first.

Whose turn it is, and when, is decided in `fair_share.py`.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, Self

from latermq_broker.background.fair_share import SLICE_NS, FairShare, Work
from latermq_broker.clock import monotonic_ns
from latermq_broker.config.background import BackgroundConfig
from latermq_broker.engine.state.figures import Histogram, Lately

WAIT_MS: Final = (1, 5, 10, 50, 100, 500, 1_000, 5_000, 30_000, 300_000)
STEP_NS: Final = 400_000
FIRST_COUNT: Final = 4  # items of a job's first step
COUNT_MAX: Final = 1_024

OWN: Final = ""  # the user of the broker's own work
SCRAPE: Final = "scrape"  # kinds of it
EXPORT: Final = "export"


class KindFigures:
    """How long works of one kind waited for each of their turns, and used them."""

    def __init__(self) -> None:
        self.wait_ms = Histogram(WAIT_MS)
        self.wait_lately = Lately(self.wait_ms)
        self.used_ns = 0


class Job(Work):
    """One piece of work in turns, while it is entered; made by `Background.job`.

    Attributes:
        count: items that the next step should take, by how long the last one took.
        used_ns: of turns that are over.
    """

    __slots__ = ("_background", "_began_ns", "count", "used_ns", "wake")

    def __init__(self, background: "Background", user: str, kind: str) -> None:
        super().__init__(user, kind)
        self.count = FIRST_COUNT
        self.used_ns = 0
        self.wake: asyncio.Future[None] | None = None
        self._background = background
        self._began_ns = -1  # when the step under way did; -1: none is

    async def __aenter__(self) -> Self:
        """Begin, and wait for the first turn. Raises TooManyRequestsError."""
        self._background.begin(self)
        try:
            await self.turn()
        except BaseException:
            self._background.end(self)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """End; the rest of its slice is charged."""
        self._background.end(self)

    async def turn(self) -> None:
        """Wait for the job's turn; return at once while its slice lasts."""
        background = self._background
        if background.at_once or self.goes_on():
            return
        wake = self.wake = background.loop.create_future()
        background.ask(self, background.now_ns())
        try:
            await wake
        except asyncio.CancelledError:
            background.rest(self)
            raise
        self._began_ns = background.now_ns()
        background.began(self, self._began_ns)

    def goes_on(self) -> bool:
        """Return whether the job may do another step in its current slice."""
        background = self._background
        if background.running is not self:
            return False
        now_ns = background.now_ns()
        self.measure(now_ns)
        lasts = now_ns < background.until_ns
        if lasts:
            self._began_ns = now_ns
        return lasts

    def rest(self) -> None:
        """Give the job's place to another job of its user until the job asks for a turn again."""
        self._background.rest(self)

    def measure(self, now_ns: int) -> None:
        """Set how many items the next step takes; a step is under way, or nothing happens."""
        if self._began_ns < 0:
            return
        took_ns = now_ns - self._began_ns
        self._began_ns = -1
        if took_ns > STEP_NS:
            self.count = max(1, self.count * STEP_NS // took_ns)
        elif 2 * took_ns < STEP_NS:
            self.count = min(COUNT_MAX, 2 * self.count)


class Background:
    """Schedules jobs on the running loop, in which it must be created; one for each broker.

    Args:
        now_ns: a clock without a date.
    """

    def __init__(self, config: BackgroundConfig, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self.fair = FairShare(
            config.percent, config.running_per_user_max, config.waiting_per_user_max
        )
        self.figures: dict[str, KindFigures] = {}  # by kind
        self.loop = asyncio.get_running_loop()
        self.at_once = False
        """Grant every turn at once: an embedded broker runs no loop of its own between calls."""
        self.running: Job | None = None
        self.until_ns = 0  # the slice of the running one lasts until then
        self._slice_ns = SLICE_NS
        self.now_ns = now_ns
        self.foreground_count: Callable[[], int] | None = None
        """Returns a number that grows with each foreground call; None: foreground calls are not
        counted, and jobs may use the loop's whole time."""
        self._seen = 0  # of what `foreground_count` returns
        self._lasting = 0  # calls that it counts, and that have become jobs
        self._began_ns = -1  # of the running one's turn; -1: it has not woken yet
        self._armed = False
        self._timer: asyncio.TimerHandle | None = None

    def job(self, user: str, kind: str, *, is_call: bool = False) -> Job:
        """Make a job, which begins when it is entered.

        Args:
            user: on whose behalf; OWN: the broker's own.
            kind: of a fixed set of names.
            is_call: `foreground_count` counts it, too.
        """
        self._lasting += is_call
        return Job(self, user, kind)

    # --- of jobs -------------------------------------------------------------------------------

    def begin(self, job: Job) -> None:
        self.fair.begin(job)

    def end(self, job: Job) -> None:
        self.fair.end(job)
        self._arm()

    def rest(self, job: Job) -> None:
        self.fair.rest(job)
        self._arm()

    def ask(self, job: Job, now_ns: int) -> None:
        self.fair.ask(job, now_ns)
        self._arm()

    def began(self, job: Job, now_ns: int) -> None:
        """Note when the job whose turn it is woke up."""
        if self.running is job and self._began_ns < 0:
            self._began_ns = now_ns
            self.until_ns = now_ns + self._slice_ns

    def on_second(self, now_ms: int) -> None:
        """Remember the figures of the last minutes; called each second."""
        for figures in self.figures.values():
            figures.wait_lately.mark(now_ms)

    # --- turns ---------------------------------------------------------------------------------

    def _arm(self) -> None:
        if not self._armed and self.running is None and self.fair.wanted:
            self._armed = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Wake the next job, or set a timer for when the share allows one."""
        self._timer = None
        now_ns = self.now_ns()
        self._look(now_ns)
        job = self._next(now_ns)
        if job is not None:
            # The future wakes the job by `call_soon`: it runs right before `_end`.
            assert job.wake is not None
            job.wake.set_result(None)
            self.loop.call_soon(self._end)
            return
        self._armed = False
        if self.fair.wanted:
            self._armed = True
            self._timer = self.loop.call_later(self.fair.wait_ns(now_ns) / 1e9, self._turn)

    def _next(self, now_ns: int) -> Job | None:
        """Return the next job with a turn, skipping jobs whose task was cancelled."""
        while (turn := self.fair.take(now_ns)) is not None:
            job = turn.work
            assert isinstance(job, Job)
            if job.wake is not None and not job.wake.done():
                self.running, self._began_ns, self.until_ns = job, -1, 0
                self._slice_ns = turn.slice_ns
                self._figures_of(job.kind).wait_ms.observe(turn.waited_ns / 1e6)
                return job
            self.fair.charge(job, 0)
        return None

    def _end(self) -> None:
        """Charge the job that had its turn."""
        job, self.running = self.running, None
        assert job is not None
        now_ns = self.now_ns()
        used_ns = 0 if self._began_ns < 0 else now_ns - self._began_ns
        job.measure(now_ns)
        self.fair.charge(job, used_ns)
        self._figures_of(job.kind).used_ns += used_ns
        job.used_ns += used_ns
        if self.foreground_count is not None:
            self._seen = self.foreground_count() - self._lasting
        self._armed = False
        self._arm()

    def _look(self, now_ns: int) -> None:
        """Note whether the foreground count grew since the last slice."""
        if self.foreground_count is None:
            return
        count = self.foreground_count() - self._lasting
        if count != self._seen:
            self._seen = count
            self.fair.foreground(now_ns)

    def _figures_of(self, kind: str) -> KindFigures:
        figures = self.figures.get(kind)
        if figures is None:
            figures = self.figures[kind] = KindFigures()
        return figures


async def in_turns(
    background: Background | None, kind: str, pieces: Callable[[], Iterator[str]]
) -> str:
    """Join a text that is made piece by piece, in turns of the broker's own work.

    Args:
        background: None: in one go.
    """
    if background is None:
        return "".join(pieces())
    made: list[str] = []
    async with background.job(OWN, kind) as job:
        for piece in pieces():
            made.append(piece)
            await job.turn()
    return "".join(made)
