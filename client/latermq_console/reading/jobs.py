"""Redrives and drops of many letters: started by a page, going on without it, watched by any.

A job has a connection of its own, with the rights of the user who began it. Ending it stops the
broker between two letters: what was done until then stays done. Bounded in number.
"""

import asyncio
import os
import re
import secrets
from array import array
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from latermq.admin import check_status
from latermq.errors import GroupNotFoundError, LaterMQError, RequestError, UnavailableError
from latermq_console import clock
from latermq_console.reading.desk import Desk
from latermq_console.reading.letters import contains
from latermq_proto.latermq.v1 import dead_letter_pb2 as dead_pb2
from latermq_proto.latermq.v1 import group_pb2

RUNNING_MAX: Final = 16  # jobs of everybody
RUNNING_PER_USER_MAX: Final = 4  # where the broker has users; else all are nobody's
KEPT_MAX: Final = 200
KEPT_PER_USER_MAX: Final = 50
OFFSETS_MAX: Final = 10_000  # that one call names
PAGE: Final = 500
FOLLOWED_MAX: Final = (
    20  # messages of a job that are named, so that one can see what became of them
)
DRY_RUN_S: Final = 5.0
_NO_CONNECTION: Final = re.compile(r"\[Errno (\d+)\] Connect call failed")  # asyncio's words
RATE_MAX: Final = 100_000
EVERY: Final = dead_pb2.DeadLetterFilter(state=dead_pb2.DEAD)


class TooManyJobsError(Exception):
    """So many of one user, or of everybody, run already; the text says how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which letters of a group, and what becomes of them.

    Fields:
        verb: redrive or drop.
        text: looked for here; the broker knows no such filter.
        to_topic: "": back to the group.
        rate: per second; 0: as fast as it goes.
        count_max: 0: all of them.
    """

    group: str
    verb: str
    filter: dead_pb2.DeadLetterFilter
    text: str = ""
    to_topic: str = ""
    rate: int = 0
    count_max: int = 0


class Left(NamedTuple):
    """How many letters a job left; `whole`: these are all."""

    letters: int
    whole: bool


@dataclass(slots=True)
class Job:
    """How far it is. state: running, done, failed, stopped."""

    id: str
    user: str
    place: str  # of the group in an address: billing, or billing@1 in a cluster
    plan: Plan
    about: str  # what the letters have in common
    again: dict[str, str]  # the filter that leads to the rest of them; empty: chosen one by one
    began_ms: int
    expected: int = 0
    state: str = "running"
    scanned: int = 0
    changed: int = 0
    failed: int = 0
    last_error: str = ""
    ended_ms: int = 0
    messages: list[tuple[str, str]] = field(default_factory=list)  # (id, topic), the first few
    left: Left | None = None  # when it was counted last
    left_s: float = 0.0
    task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self.state == "running"

    @property
    def percent(self) -> float:
        if not self.running and self.state == "done":
            return 100.0
        return min(100.0, (self.changed + self.failed) / max(1, self.expected) * 100)


class Jobs:
    def __init__(self) -> None:
        self._kept: OrderedDict[str, Job] = OrderedDict()

    def of_user(self, user: str) -> list[Job]:
        """Return a user's jobs, the newest first."""
        return [job for job in reversed(self._kept.values()) if job.user == user]

    def get(self, user: str, id: str) -> Job | None:
        job = self._kept.get(id)
        return job if job is not None and job.user == user else None

    def begin(
        self,
        desk: Desk,
        place: str,
        plan: Plan,
        about: str,
        again: dict[str, str],
        expected: int,
    ) -> Job:
        """Start a job. Raises TooManyJobsError."""
        running = [job for job in self._kept.values() if job.running]
        own = sum(job.user == desk.access_key for job in running)
        if desk.access_key and own >= RUNNING_PER_USER_MAX:
            raise TooManyJobsError(f"{own} jobs of yours run already")
        if len(running) >= RUNNING_MAX:
            raise TooManyJobsError(f"{len(running)} jobs run already")
        job = Job(
            secrets.token_urlsafe(9), desk.access_key, place, plan, about, again,
            clock.now_ms(), expected=expected,
        )  # fmt: skip
        self._kept[job.id] = job
        if desk.access_key:
            self._forget(self.of_user(desk.access_key), KEPT_PER_USER_MAX)
        self._forget(list(reversed(self._kept.values())), KEPT_MAX)
        job.task = asyncio.ensure_future(_run(job, desk))
        return job

    def _forget(self, newest_first: list[Job], most: int) -> None:
        """Forget the oldest jobs that have ended, beyond `most`."""
        ended = [job for job in newest_first if not job.running]
        for job in ended[max(0, most - (len(newest_first) - len(ended))) :]:
            del self._kept[job.id]

    async def stop(self, job: Job) -> None:
        if job.task is not None and not job.task.done():
            job.task.cancel()
            await asyncio.wait((job.task,))
        if job.running:  # ended before its first step
            job.state, job.ended_ms = "stopped", clock.now_ms()

    async def stop_all(self) -> None:
        for job in list(self._kept.values()):
            await self.stop(job)


async def _run(job: Job, watcher: Desk) -> None:
    """Carry a job out; `watcher` is the desk whose pages shall see it."""
    desk = watcher.another()
    try:
        await _name_messages(job, desk)
        async for request in _requests(job, desk):
            await _carry_out(job, desk, request)
        job.state = "done"
    except asyncio.CancelledError:
        job.state = "stopped"
    except LaterMQError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # what a call says that was ended halfway
            job.state = "stopped"
        else:
            job.state, job.last_error = "failed", words_of(error)
    finally:
        job.ended_ms = clock.now_ms()
        watcher.forget()
        await desk.close()


async def _carry_out(job: Job, desk: Desk, request: Any) -> None:
    done = (job.scanned, job.changed, job.failed)
    methods = desk.admin.dead_letters
    redrives = job.plan.verb == "redrive"
    method = methods.RedriveDeadLetters if redrives else methods.DropDeadLetters
    over = False
    async with aclosing(desk.stream(method, request)) as elements:
        async for progress in elements:
            check_status(progress)
            over = progress.done
            job.scanned = done[0] + progress.scanned_count
            job.changed = done[1] + progress.changed_count
            job.failed = done[2] + progress.failed_count
            job.last_error = progress.last_error or job.last_error
    if not over:
        raise UnavailableError("the broker ended the job before it was done")


async def _requests(job: Job, desk: Desk) -> AsyncIterator[Any]:
    """Yield the calls of a job: one, or for a text that the broker does not filter by, several."""
    plan = job.plan
    if not plan.text:
        yield _request(plan, plan.filter, plan.count_max)
        return
    offsets = array("q")  # 8 bytes a letter, of which there may be millions
    async for letter in matching(desk, plan):
        offsets.append(letter.queue_offset)
    for at in range(0, len(offsets), OFFSETS_MAX):
        filter = dead_pb2.DeadLetterFilter(queue_offsets=offsets[at : at + OFFSETS_MAX])
        yield _request(plan, filter, 0)


def _request(plan: Plan, filter: dead_pb2.DeadLetterFilter, count_max: int) -> Any:
    if plan.verb == "drop":
        return dead_pb2.DropDeadLettersRequest(group=plan.group, filter=filter, max_count=count_max)
    return dead_pb2.RedriveDeadLettersRequest(
        group=plan.group,
        filter=filter,
        to_topic=plan.to_topic,
        max_count=count_max,
        rate_per_second=plan.rate,
    )


async def _name_messages(job: Job, desk: Desk) -> None:
    """Remember which messages these are, if they are few."""
    if job.expected > FOLLOWED_MAX or (job.plan.verb == "redrive" and job.plan.to_topic):
        return
    async for letter in matching(desk, job.plan):
        job.messages.append((letter.message_id, letter.origin_topic))
        if len(job.messages) >= FOLLOWED_MAX:
            return


async def matching(desk: Desk, plan: Plan) -> AsyncGenerator[dead_pb2.DeadLetter, None]:
    """Yield the letters a plan means, in the order in which they are changed: the oldest first."""
    token, count, wanted = "", 0, plan.text.casefold()
    while True:
        size = min(PAGE, plan.count_max) if plan.count_max and not wanted else PAGE
        request = dead_pb2.ListDeadLettersRequest(
            group=plan.group, filter=plan.filter, page_size=size, page_token=token
        )
        answer = await desk.admin.call(desk.admin.dead_letters.ListDeadLetters, request)
        for letter in answer.letters:
            if not wanted or contains(letter, wanted):
                yield letter
                count += 1
                if plan.count_max and count >= plan.count_max:
                    return
        token = answer.next_page_token
        if not token:
            return


async def dry_run(desk: Desk, plan: Plan) -> tuple[int, bool]:
    """Count what a plan would change, and tell whether that is all: after DRY_RUN_S it ends.

    Raises:
        LaterMQError: it would be refused.
    """
    count = 0
    try:
        async with asyncio.timeout(DRY_RUN_S):
            if plan.filter == EVERY and not plan.text:
                known = await _count_all(desk, plan)
                if known is not None:
                    return known, True
            if plan.text:
                async with aclosing(matching(desk, plan)) as letters:
                    async for _ in letters:
                        count += 1
                return count, True
            async for so_far in _dry(desk, plan, 0):
                count = so_far
    except TimeoutError:
        return count, False
    return count, True


async def _count_all(desk: Desk, plan: Plan) -> int | None:
    """Count a group's letters, which the broker knows, and see that they may be changed.

    Returns:
        None: the group was deleted, and nobody counts its letters.
    """
    async for count in _dry(desk, plan, 1):
        if not count:
            return 0
    request = group_pb2.GetGroupRequest(name=plan.group)
    try:
        answer = await desk.look(desk.admin.groups.GetGroup, request)
    except GroupNotFoundError:
        return None
    return int(answer.group.dead_letter_count)


async def _dry(desk: Desk, plan: Plan, count_max: int) -> AsyncGenerator[int, None]:
    """Yield how many letters a dry run has counted so far. Raises LaterMQError."""
    request = _request(plan, plan.filter, count_max)
    request.dry_run = True
    methods = desk.admin.dead_letters
    method = methods.DropDeadLetters if plan.verb == "drop" else methods.RedriveDeadLetters
    async with aclosing(desk.stream(method, request)) as elements:
        async for progress in elements:
            check_status(progress)
            yield progress.changed_count


def words_of(error: LaterMQError) -> str:
    """Say what an error means to whoever looks at a page."""
    if isinstance(error, RequestError):
        return error.message or "the broker gave no reason"
    text = error.grpc_text or str(error) or "the broker does not answer"
    refused = _NO_CONNECTION.search(text)
    return f"no connection: {os.strerror(int(refused[1])).lower()}" if refused else text


def offsets_filter(offsets: Sequence[int]) -> dead_pb2.DeadLetterFilter:
    return dead_pb2.DeadLetterFilter(queue_offsets=offsets[:OFFSETS_MAX])
