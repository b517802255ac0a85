"""latermq.v1 Queues: ends and pages of a topic's queues, for bulk readers.

No lease, no attempt, no group: the same request gives the same rows. Nothing is told before its
sender is promised it: a reader that remembers an offset would miss what comes to stand there after
a crash. A page is built in turns of the background; the transport takes the next page when
it has room.
"""

from collections.abc import AsyncIterator
from typing import Final

from latermq_broker.background.jobs import Job
from latermq_broker.catalog.catalog import consumer_group_of
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import Topic
from latermq_broker.errors import (
    BadRequestError,
    IllegalOffsetError,
    PreconditionFailedError,
    TopicNotFoundError,
)
from latermq_broker.services.call.answers import (
    Caller,
    ok_status,
    status_of,
)
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.v1.topic_pattern import TopicPattern
from latermq_broker.services.v1.v1_rows import RowBuilder
from latermq_proto.latermq.v1 import queue_pb2

PAGE_ROWS_MAX: Final = 2_000
PAGE_BYTES_DEFAULT: Final = 1 << 20
PAGE_BYTES_MAX: Final = 2 << 20  # reserved for each reader while its page is made
TOPICS_MAX: Final = 10_000
NAMES_PER_STEP: Final = 4  # matched with a pattern: 0.3 ms at the worst


class QueuesService:
    def __init__(self, rooms: Rooms) -> None:
        self._engine = rooms.engine
        self._committer = rooms.committer

    async def describe_queues(
        self, request: queue_pb2.DescribeQueuesRequest, caller: Caller
    ) -> queue_pb2.DescribeQueuesResponse:
        """Answer DescribeQueues of queue.proto. A missing topic is an entry that says so.

        Raises:
            BadRequestError: names and a pattern, neither, too many, or not a regular expression.
        """
        if bool(request.topics) == bool(request.topic_pattern):
            raise BadRequestError("either topics or topic_pattern is required")
        if len(request.topics) > TOPICS_MAX:
            raise BadRequestError(f"{len(request.topics)} topics, at most {TOPICS_MAX} are allowed")
        names = list(request.topics) or await self._matching(request.topic_pattern, caller)
        response = queue_pb2.DescribeQueuesResponse(status=ok_status())
        for name in names:
            response.topics.append(self._ends(name, request.at_ms, lives=request.lives))
            await caller.lasting.turn()
        # A reader remembers these ends: a crash must not take them back and give them out again.
        caller.lasting.rest()
        await self._committer.synced()
        return response

    async def _matching(self, text: str, caller: Caller) -> list[str]:
        """List the topics whose whole names match. Raises BadRequestError."""
        pattern = TopicPattern(text)
        names: list[str] = []
        for index, topic in enumerate(list(self._engine.catalog.topics()), 1):
            if pattern.matches(topic.name):
                names.append(topic.name)
            if index % NAMES_PER_STEP == 0:
                await caller.lasting.turn()
        return names

    def _ends(self, name: str, at_ms: int, *, lives: bool) -> queue_pb2.TopicEnds:
        try:
            topic = self._topic(name)
        except TopicNotFoundError as error:
            return queue_pb2.TopicEnds(topic=name, status=status_of(error))
        if topic is None:
            return queue_pb2.TopicEnds(
                topic=name, status=ok_status(), queues=[queue_pb2.QueueEnds(queue_id=0)]
            )
        ends = queue_pb2.TopicEnds(topic=name, status=ok_status(), epoch=topic.epoch)
        for queue in self._engine.topics.ends(topic):
            begins = self._engine.queues.lives(name, queue.queue_id) if lives else []
            ends.queues.add(
                queue_id=queue.queue_id,
                earliest_offset=queue.earliest_offset,
                next_offset=queue.next_offset,
                offset_at=self._engine.queues.offset_at(name, queue.queue_id, at_ms)
                if at_ms > 0
                else 0,
                lives=[queue_pb2.LifeBegin(offset=offset, life=life) for offset, life in begins],
            )
        return ends

    def _topic(self, name: str) -> Topic | None:
        """Find the topic.

        None: the `%DLQ%` topic of a group in which nothing has died yet; it counts as empty.

        Raises:
            TopicNotFoundError: no such topic.
        """
        topic = self._engine.catalog.topic(name)
        if topic is None:
            owner = consumer_group_of(name)
            if owner is None or self._engine.catalog.group(owner) is None:
                raise TopicNotFoundError(name)
        return topic

    async def read_queue(
        self, request: queue_pb2.ReadQueueRequest, caller: Caller
    ) -> AsyncIterator[queue_pb2.ReadQueuePage]:
        """Answer ReadQueue of queue.proto. At least one page, so that its status is told.

        Raises:
            TopicNotFoundError, PreconditionFailedError: as named.
            BadRequestError: no such queue, a negative number, or an unknown column.
        """
        rows_max, bytes_max = _bounds(request)
        builder = RowBuilder(request.topic, request.columns)
        if self._topic(request.topic) is None:
            yield _page_of_nothing(request)
            return
        reader = _Reader(self._engine, request, builder, rows_max, bytes_max, caller.lasting)
        while not caller.call.cancelled:
            try:
                page = await reader.page()
            except IllegalOffsetError as error:
                yield queue_pb2.ReadQueuePage(
                    status=status_of(error),
                    first_offset=reader.offset,
                    earliest_offset=error.earliest_offset,
                    next_offset=error.next_offset,
                )
                return
            caller.lasting.rest()
            await self._committer.synced()
            yield page
            if reader.done:
                return


class _Reader:
    """One read's position. `offset`: the next to read; `done`: nothing is left of the range."""

    def __init__(
        self,
        engine: Engine,
        request: queue_pb2.ReadQueueRequest,
        builder: RowBuilder,
        rows_max: int,
        bytes_max: int,
        turns: Job,
    ) -> None:
        self._engine = engine
        self._request = request
        self._builder = builder
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._turns = turns
        self.offset = request.start_offset
        self.done = False

    async def page(self) -> queue_pb2.ReadQueuePage:
        """Read the next page; empty only when the range is.

        Raises:
            IllegalOffsetError: what is next was removed, or never was.
            TopicNotFoundError, PreconditionFailedError: the topic is gone, or another one.
        """
        page = queue_pb2.ReadQueuePage(status=ok_status(), first_offset=self.offset)
        size = 0
        while True:
            size += self._step(page, self._bytes_max - size)
            ends = self._engine.queues.ends(self._request.topic, self._request.queue_id)
            self.done = self.offset >= min(self._request.end_offset, ends.next_offset)
            if self.done or len(page.rows) >= self._rows_max or size >= self._bytes_max:
                page.earliest_offset = ends.earliest_offset
                page.next_offset = ends.next_offset
                return page
            await self._turns.turn()

    def _step(self, page: queue_pb2.ReadQueuePage, bytes_left: int) -> int:
        """Add the next rows to the page; their bytes, `bytes_left` when the next does not fit."""
        request = self._request
        rows = self._engine.queues.read(
            request.topic,
            request.epoch,
            request.queue_id,
            self.offset,
            request.end_offset,
            rows_max=min(self._turns.count, self._rows_max - len(page.rows)),
            # Bodies that do not travel are still read: bound what is in memory at a time.
            bytes_max=bytes_left if self._builder.heavy else PAGE_BYTES_MAX,
            letters=self._builder.letters,
        )
        size = 0
        for row in rows:
            built = self._builder.build(row)
            size += built.ByteSize()
            if page.rows and size > bytes_left:
                return bytes_left
            page.rows.append(built)
            self.offset += 1
        return size


def _bounds(request: queue_pb2.ReadQueueRequest) -> tuple[int, int]:
    """Bound a page: (rows, bytes) at most."""
    numbers = (
        request.start_offset,
        request.end_offset,
        request.page_rows_max,
        request.page_bytes_max,
    )
    if min(numbers) < 0:
        raise BadRequestError("offsets and page bounds are at least 0")
    rows_max = min(request.page_rows_max or PAGE_ROWS_MAX, PAGE_ROWS_MAX)
    bytes_max = min(request.page_bytes_max or PAGE_BYTES_DEFAULT, PAGE_BYTES_MAX)
    return rows_max, bytes_max


def _page_of_nothing(request: queue_pb2.ReadQueueRequest) -> queue_pb2.ReadQueuePage:
    """Make what reading a `%DLQ%` topic that is not there yet gives."""
    if request.epoch:
        raise PreconditionFailedError(f"topic {request.topic} is not there; epoch is unset")
    if request.queue_id != 0:
        raise BadRequestError(f"topic {request.topic} has queue 0 only, not {request.queue_id}")
    if request.start_offset:
        error = IllegalOffsetError(
            f"offset {request.start_offset} of topic {request.topic} is past its end, 0",
            earliest_offset=0,
            next_offset=0,
        )
        return queue_pb2.ReadQueuePage(status=status_of(error), first_offset=request.start_offset)
    return queue_pb2.ReadQueuePage(status=ok_status())
