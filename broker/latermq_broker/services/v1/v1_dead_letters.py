"""latermq.v1 DeadLetters: list, show with their whole life, redrive, drop.

Long work is a stream of progress. It goes on in turns of the background, each slice is acknowledged
before it is counted, and a caller who goes away stops it between two slices: letters changed until
then stay changed. A job ends at the letter that was the newest when it began: a redriven message
that dies again is not redriven for ever.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message

from latermq_broker.catalog.access import User
from latermq_broker.catalog.catalog import DLQ_PREFIX
from latermq_broker.catalog.shares import key_of
from latermq_broker.deferred import Later
from latermq_broker.engine.state.model import DeadFilter, DeadLetter, DeadState
from latermq_broker.errors import (
    BadRequestError,
    ForbiddenError,
    GroupNotFoundError,
    MessageNotFoundError,
    RequestError,
    TopicNotFoundError,
)
from latermq_broker.services.auth.access_rules import BROWSE, may_move, meets
from latermq_broker.services.auth.access_rules import group as group_wants
from latermq_broker.services.call import names
from latermq_broker.services.call.answers import Caller, ok_status
from latermq_broker.services.call.paging import after, page_size, page_token
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.messaging.redrive_pace import RedrivePaces
from latermq_broker.services.v1.v1_letters import dead_filter, letter_message
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import dead_letter_pb2

SLICE_LETTERS_MAX: Final = 64  # changed before that is acknowledged
LOOK_MS_MAX: Final = 150  # a page ends then with the letters found: a filter may match few
LOOK_NS_MIN: Final = 20_000_000  # of a page's own work, before it ends for that
PAGE_BYTES_MAX: Final = 2 << 20  # then a page ends early; it has at least one letter
PROGRESS_LETTERS: Final = 1_000
PROGRESS_MS: Final = 1_000
_NAP_MS: Final = 50  # between two looks at the clock while a rate limit holds a job back

Progress = dead_letter_pb2.DeadLetterProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What a redrive or a drop does. to_topic None: drop."""

    group: str
    filter: DeadFilter
    to_topic: str | None
    count_max: int  # 0: no bound
    rate: int  # letters per second; 0: no bound
    dry_run: bool


class DeadLettersService:
    def __init__(self, rooms: Rooms) -> None:
        self._engine = rooms.engine
        self._committer = rooms.committer
        self._paces = RedrivePaces()

    async def list_dead_letters(
        self, request: dead_letter_pb2.ListDeadLettersRequest, caller: Caller
    ) -> dead_letter_pb2.ListDeadLettersResponse:
        """Answer ListDeadLetters of dead_letter.proto.

        A page may be short of page_size, and empty, when its letters are large or hard to find; the
        token leads on.

        Raises:
            GroupNotFoundError: neither the group nor dead letters of it exist.
            BadRequestError: the filter, the size or the token.
        """
        names.check_group(request.group)
        filter, size = dead_filter(request.filter), page_size(request.page_size)
        offset = _offset(request.page_token)
        response = dead_letter_pb2.ListDeadLettersResponse(status=ok_status())
        taken_bytes, began_ms, job = 0, self._committer.now_ms(), caller.lasting
        while True:
            page = self._engine.dead.scan(
                request.group,
                filter,
                start_offset=offset,
                count_max=min(size - len(response.letters), job.count),
                newest_first=request.newest_first,
                scan_max=job.count,
            )
            for letter in page.letters:
                message = letter_message(letter, stacks=False, body=request.include_body)
                taken_bytes += message.ByteSize()
                if response.letters and taken_bytes > PAGE_BYTES_MAX:
                    response.next_page_token = page_token(str(letter.queue_offset))
                    return response
                response.letters.append(message)
            offset = page.next_offset
            if offset < 0 or caller.call.cancelled:
                return response
            late = self._committer.now_ms() - began_ms >= LOOK_MS_MAX
            late &= job.used_ns >= LOOK_NS_MIN
            if len(response.letters) >= size or late:
                response.next_page_token = page_token(str(offset))
                return response
            await job.turn()

    async def get_dead_letter(
        self, request: dead_letter_pb2.GetDeadLetterRequest, caller: Caller
    ) -> dead_letter_pb2.GetDeadLetterResponse:
        """Answer GetDeadLetter of dead_letter.proto.

        Raises:
            GroupNotFoundError, MessageNotFoundError: as named.
        """
        names.check_group(request.group)
        if request.message_id:
            letter = await self._newest(request.group, request.message_id, caller)
        else:
            letter = self._engine.dead.get(request.group, request.queue_offset)
        return dead_letter_pb2.GetDeadLetterResponse(
            status=ok_status(), letter=letter_message(letter, stacks=True, body=True)
        )

    async def _newest(self, group: str, message_id: str, caller: Caller) -> DeadLetter:
        """Find the newest letter with that id, in any state."""
        filter = DeadFilter(message_ids=frozenset((message_id,)), state=None)
        offset = -1
        while not caller.call.cancelled:
            page = self._engine.dead.scan(
                group,
                filter,
                start_offset=offset,
                count_max=1,
                newest_first=True,
                scan_max=caller.lasting.count,
            )
            if page.letters:
                return page.letters[0]
            offset = page.next_offset
            if offset < 0:
                break
            await caller.lasting.turn()
        raise MessageNotFoundError(
            f"no dead letter of group {group} with message id {names.shown(message_id)}"
        )

    def refuse_redrive_dead_letters(
        self, status: definition_pb2.Status, request: Message
    ) -> Sequence[Progress]:
        """End the job with the status, before or after what it did."""
        return [Progress(status=status, done=True)]

    def redrive_dead_letters(
        self, request: dead_letter_pb2.RedriveDeadLettersRequest, caller: Caller
    ) -> AsyncIterator[Progress]:
        """Answer RedriveDeadLetters of dead_letter.proto.

        Raises:
            GroupNotFoundError, TopicNotFoundError: as named; nothing was changed.
            BadRequestError: bounds, or a filter for letters that are not dead.
        """
        job = _Job(
            group=request.group,
            filter=_changeable(request.filter),
            to_topic=request.to_topic,
            count_max=request.max_count,
            rate=request.rate_per_second,
            dry_run=request.dry_run,
        )
        return self._run(self._checked(job), caller)

    refuse_drop_dead_letters = refuse_redrive_dead_letters

    def drop_dead_letters(
        self, request: dead_letter_pb2.DropDeadLettersRequest, caller: Caller
    ) -> AsyncIterator[Progress]:
        """Answer DropDeadLetters of dead_letter.proto.

        Raises:
            GroupNotFoundError: as named.
            BadRequestError: bounds, or a filter for letters that are not dead.
        """
        job = _Job(
            group=request.group,
            filter=_changeable(request.filter),
            to_topic=None,
            count_max=request.max_count,
            rate=0,
            dry_run=request.dry_run,
        )
        return self._run(self._checked(job), caller)

    async def _run(self, job: _Job, caller: Caller) -> AsyncIterator[Progress]:
        """Do the job, step by step; the last element has done = True."""
        turns = caller.lasting
        told_ms = self._committer.now_ms()
        paced = not (job.dry_run or job.to_topic is None)
        number = self._paces.begin(told_ms) if paced else 0
        told_count = 0
        offset, end = self._range(job.group)
        progress = Progress(status=ok_status())
        while offset < end and not _enough(job, progress):
            if caller.call.cancelled:
                break
            now_ms = self._committer.now_ms()
            allowed = min(_left(job, progress), SLICE_LETTERS_MAX)
            if paced:
                allowed = self._paces.allowed(job.group, number, job.rate, allowed, now_ms)
            if paced and job.to_topic:  # it adds messages to the log: at the caller's own rate
                allowed = min(allowed, self._engine.gate.room(key_of(caller.call.user), now_ms))
            if allowed > 0:
                before = progress.changed_count + progress.failed_count
                offset = await self._slice(job, offset, end, allowed, progress, caller)
                if paced:
                    tried = progress.changed_count + progress.failed_count - before
                    self._paces.take(job.group, tried)
            many = progress.scanned_count - told_count >= PROGRESS_LETTERS
            if many or now_ms - told_ms >= PROGRESS_MS:
                told_count, told_ms = progress.scanned_count, now_ms
                yield _copy(progress)
            if allowed <= 0:
                turns.rest()
                await asyncio.sleep(_NAP_MS / 1_000)
            await turns.turn()
        if paced:
            self._paces.end(job.group, number)
        if caller.call.cancelled:
            return
        progress.done = True
        yield progress

    async def _slice(
        self,
        job: _Job,
        offset: int,
        end: int,
        count_max: int,
        progress: Progress,
        caller: Caller,
    ) -> int:
        """Change letters while the slice lasts, count them once that is acknowledged.

        Returns:
            The offset to go on from.
        """
        first, changed, tried, turns = offset, 0, 0, caller.lasting
        written: Later[None] | None = None
        try:
            while offset < end and tried < count_max:
                page = self._engine.dead.scan(
                    job.group,
                    job.filter,
                    start_offset=offset,
                    count_max=min(count_max - tried, turns.count),
                    scan_max=turns.count,
                )
                letters = [letter for letter in page.letters if letter.queue_offset < end]
                tried += len(letters)
                changed += self._change(job, letters, progress, caller)
                offset = end if page.next_offset < 0 else min(end, page.next_offset)
                if not turns.goes_on():
                    break
        finally:  # letters changed before one that ends the job are written, too
            if tried and not job.dry_run:
                written = self._committer.written()
        if written is not None:
            turns.rest()
            await written
        progress.changed_count += changed
        progress.scanned_count += offset - first
        return offset

    def _change(
        self, job: _Job, letters: Sequence[DeadLetter], progress: Progress, caller: Caller
    ) -> int:
        """Redrive or drop the letters, unless this is a dry run; return how many changed."""
        if job.to_topic:
            _require_moves(caller.call.user, job.group, job.to_topic, letters)
        if job.dry_run or not letters:
            return len(letters)
        if job.to_topic is None:
            offsets = [letter.queue_offset for letter in letters]
            self._engine.dead.drop(job.group, offsets, self._committer.now_ms())
            return len(letters)
        return self._redrive(job, job.to_topic, letters, progress, caller)

    def _redrive(
        self,
        job: _Job,
        to_topic: str,
        letters: Sequence[DeadLetter],
        progress: Progress,
        caller: Caller,
    ) -> int:
        """Redrive each; how many went. One that cannot go is counted and stays dead.

        Raises:
            StoreFullError: none of the others can go either.
        """
        redriven, user = 0, key_of(caller.call.user)
        for letter in letters:
            try:
                self._engine.dead.redrive(
                    job.group, letter.queue_offset, to_topic, self._committer.now_ms()
                )
                redriven += 1
                if to_topic:
                    size = len(letter.rest) + len(letter.sys)
                    self._engine.gate.take(user, 1, size, self._committer.now_ms())
            except RequestError as error:
                progress.failed_count += 1
                why = _shown_reason(caller.call.user, job.group, error)
                progress.last_error = f"offset {letter.queue_offset}: {why}"
        return redriven

    def _range(self, group: str) -> tuple[int, int]:
        """Find the offsets from the oldest letter to one past the newest."""
        try:
            ends = self._engine.queues.ends(DLQ_PREFIX + group, 0)
        except TopicNotFoundError:  # nothing has died yet
            return 0, 0
        return ends.earliest_offset, ends.next_offset

    def _checked(self, job: _Job) -> _Job:
        names.check_group(job.group)
        catalog = self._engine.catalog
        # The letters of a deleted group stay; they can still go to a topic, or be dropped.
        kept = job.to_topic != "" and catalog.topic(DLQ_PREFIX + job.group) is not None
        if catalog.group(job.group) is None and not kept:
            raise GroupNotFoundError(job.group)
        if job.to_topic:
            names.check_topic(job.to_topic)
            catalog.require_topic(job.to_topic)
        if job.count_max < 0 or job.rate < 0:
            raise BadRequestError("max_count and rate_per_second are at least 0")
        return job


def _require_moves(
    user: User | None, group: str, to_topic: str, letters: Sequence[DeadLetter]
) -> None:
    """Check that a user may have each letter sent to a topic. Raises ForbiddenError."""
    for letter in letters:
        if user is not None and not may_move(user, group, letter.origin_topic, to_topic):
            raise ForbiddenError(
                f"the dead letter at offset {letter.queue_offset} did not come from topic "
                f"{to_topic}; to send it there user {user.access_key} needs the rights browse and "
                f"body on group {group}, or origin_topic in the filter has to leave it out"
            )


def _shown_reason(user: User | None, group: str, error: RequestError) -> str:
    """Return why a letter stays dead; to a user who may not see letters without their topics."""
    if user is None or meets(user, group_wants(group, BROWSE)):
        return str(error)
    return definition_pb2.Code.Name(error.code)


def _changeable(message: dead_letter_pb2.DeadLetterFilter) -> DeadFilter:
    filter = dead_filter(message)
    if filter.state is not DeadState.DEAD:
        raise BadRequestError("only letters in state DEAD can be redriven or dropped")
    return filter


def _left(job: _Job, progress: Progress) -> int:
    """Count how many letters a job may still change."""
    return job.count_max - progress.changed_count if job.count_max else SLICE_LETTERS_MAX


def _enough(job: _Job, progress: Progress) -> bool:
    return 0 < job.count_max <= progress.changed_count


def _copy(progress: Progress) -> Progress:
    copy = Progress()
    copy.CopyFrom(progress)
    return copy


def _offset(token: str) -> int:
    text = after(token)
    if not text:
        return -1
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise BadRequestError(f"page token {names.shown(token)} is not one of ours")
    return int(text)
