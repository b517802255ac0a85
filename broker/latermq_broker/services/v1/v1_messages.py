"""latermq.v1 Messages: find messages by id, key or time; tell where one is in its life.

The engine looks at a bounded part of the index per call; between two calls the loop does everything
else, until a page is full.
"""

from collections.abc import Callable
from typing import Final

from latermq_broker.engine.state.model import DeadState
from latermq_broker.engine.views.message_life import GroupLife, Life
from latermq_broker.engine.views.message_place import Whereabouts
from latermq_broker.engine.views.message_query import FROM_THE_END, Found, TimeCursor
from latermq_broker.errors import BadRequestError, IndexRebuildingError, MessageNotFoundError
from latermq_broker.services.call.answers import Caller, ok_status
from latermq_broker.services.call.names import shown
from latermq_broker.services.call.paging import after, page_size, page_token
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.wire.wire_stored import StoredMessage, stored_message
from latermq_proto.latermq.v1 import message_pb2

PAGE_BYTES_MAX: Final = 2 << 20  # of bodies; a first message goes whatever its size
SLICE_MAX: Final = 32  # messages, whose bodies are in memory at a time
LIVES_MAX: Final = 32
LIVES_BYTES_MAX: Final = 8 << 20  # of messages with one id: with these no more are looked for
DAMAGED_MAX: Final = 1_000  # positions an answer names

_Step = Callable[[str, int], tuple[list[Found], str]]  # (cursor, how many) → (found, cursor)


class MessagesService:
    def __init__(self, rooms: Rooms) -> None:
        self._engine = rooms.engine
        self._committer = rooms.committer

    async def find_messages(
        self, request: message_pb2.FindMessagesRequest, caller: Caller
    ) -> message_pb2.FindMessagesResponse:
        """Answer FindMessages of message.proto.

        Raises:
            TopicNotFoundError, IndexRebuildingError.
            BadRequestError: nothing to find by, too much of it, or not a token of ours.
        """
        damaged: set[int] = set()
        step, matches = self._search(request, damaged), _exactly(request)
        size = page_size(request.page_size)
        response = message_pb2.FindMessagesResponse(status=ok_status())
        cursor = after(request.page_token)
        seen: set[int] = set()
        room = PAGE_BYTES_MAX
        while not caller.call.cancelled:
            try:
                count = min(caller.lasting.count, SLICE_MAX, size - len(response.messages))
                hits, cursor = step(cursor, count)
            except IndexRebuildingError:
                if not response.messages:
                    raise
                break  # the next page says so
            for hit in hits:
                stored = stored_message(hit.rest, hit.sys)
                if hit.first_position in seen or not matches(stored):
                    continue
                seen.add(hit.first_position)
                place = self._engine.lives.place(hit)
                message = self._message_of(_at(hit, place), stored, body=request.with_body)
                message.waits_until_ms = place.waits_until_ms
                message.cancelled = place.cancelled
                room -= len(message.body)
                response.messages.append(message)
            if not cursor or len(response.messages) >= size or room <= 0:
                break
            await caller.lasting.turn()
        response.next_page_token = page_token(cursor) if cursor else ""
        response.damaged_positions.extend(sorted(damaged)[:DAMAGED_MAX])
        return response

    def _search(self, request: message_pb2.FindMessagesRequest, damaged: set[int]) -> _Step:
        times = bool(request.begin_ms or request.end_ms)
        if min(request.begin_ms, request.end_ms) < 0:
            raise BadRequestError("begin_ms and end_ms are at least 0")
        if request.end_ms and request.begin_ms > request.end_ms:
            raise BadRequestError(f"begin_ms {request.begin_ms} is after end_ms {request.end_ms}")
        if request.message_id and (request.key or times):
            raise BadRequestError("say either a message id, or a key and a time")
        queries = self._engine.messages
        if request.message_id:
            return _by_position(
                lambda below: queries.by_id(
                    request.message_id, request.topic, below, damaged=damaged
                )
            )
        if not request.topic:
            raise BadRequestError("a message id is required, or a topic with a key or a time")
        if request.key:
            return _by_position(
                lambda below: queries.by_key(
                    request.topic,
                    request.key,
                    request.begin_ms,
                    request.end_ms,
                    below,
                    damaged=damaged,
                )
            )
        if not times:
            raise BadRequestError("a message id, a key or a time is required")
        return self._by_time(request, damaged)

    def _by_time(self, request: message_pb2.FindMessagesRequest, damaged: set[int]) -> _Step:
        def step(cursor: str, count: int) -> tuple[list[Found], str]:
            last = TimeCursor._make(_numbers(cursor, 3)) if cursor else None
            hits, last = self._engine.messages.by_time(
                request.topic, request.begin_ms, request.end_ms, last, count, damaged=damaged
            )
            return hits, ":".join(map(str, last)) if last else ""

        return step

    def _message_of(
        self, hit: Found, stored: StoredMessage, *, body: bool
    ) -> message_pb2.FoundMessage:
        shown = hit._replace(stored_ms=self._engine.wall.time_of_day(hit.stored_ms))
        return _found_message(shown, stored, body=body)

    async def describe_message(
        self, request: message_pb2.DescribeMessageRequest, caller: Caller
    ) -> message_pb2.DescribeMessageResponse:
        """Answer DescribeMessage of message.proto.

        Raises:
            MessageNotFoundError, TopicNotFoundError, IndexRebuildingError, BadRequestError.
        """
        damaged: set[int] = set()
        hits = await self.all_with_id(request.message_id, request.topic, caller, damaged)
        if not hits:
            where = f" in topic {request.topic}" if request.topic else ""
            name = shown(request.message_id)
            if damaged:
                raise MessageNotFoundError(
                    f"message {name} could not be read: damaged at position {min(damaged)}"
                )
            raise MessageNotFoundError(f"no message {name}{where}")
        response = message_pb2.DescribeMessageResponse(status=ok_status())
        response.damaged_positions.extend(sorted(damaged)[:DAMAGED_MAX])
        for hit in hits:
            response.lives.append(self._life(hit, body=request.with_body))
            await caller.lasting.turn()
        return response

    async def all_with_id(
        self, message_id: str, topic: str, caller: Caller, damaged: set[int]
    ) -> list[Found]:
        """Find the newest messages with an id, up to LIVES_MAX and LIVES_BYTES_MAX.

        `damaged` gets where others stand that cannot be read.
        """
        if not message_id:
            raise BadRequestError("a message id is required")
        hits: dict[int, Found] = {}
        below = FROM_THE_END
        size = 0
        while (
            below and len(hits) < LIVES_MAX and size < LIVES_BYTES_MAX and not caller.call.cancelled
        ):
            more, below = self._engine.messages.by_id(message_id, topic, below, damaged=damaged)
            for hit in more:
                if (
                    stored_message(hit.rest, hit.sys).message_id == message_id
                    and hit.first_position not in hits
                ):
                    hits[hit.first_position] = hit
                    size += len(hit.rest)
            await caller.lasting.turn()
        return list(hits.values())[:LIVES_MAX]

    def _life(self, hit: Found, *, body: bool) -> message_pb2.MessageLife:
        life: Life = self._engine.lives.life(hit)
        stored = stored_message(hit.rest, hit.sys)
        placed = hit._replace(queue_id=life.queue_id, queue_offset=life.queue_offset)
        message = self._message_of(placed, stored, body=body)
        message.waits_until_ms = life.waits_until_ms
        message.cancelled = life.cancelled
        return message_pb2.MessageLife(
            message=message,
            letter_state=_letter_state(life.letter_state),
            waits_until_ms=life.waits_until_ms,
            expired=life.expired,
            half=life.half,
            groups=map(_group_life, life.groups),
        )


def _at(hit: Found, place: Whereabouts) -> Found:
    return hit._replace(queue_id=place.queue_id, queue_offset=place.queue_offset)


def _by_position(query: Callable[[int], tuple[list[Found], int]]) -> _Step:
    def step(cursor: str, count: int) -> tuple[list[Found], str]:
        below = _numbers(cursor, 1)[0] if cursor else FROM_THE_END
        hits, below = query(below)
        if len(hits) > count:
            hits = hits[:count]
            below = hits[-1].position
        return hits, str(below) if below else ""

    return step


def _numbers(cursor: str, count: int) -> list[int]:
    parts = cursor.split(":")
    plain = all(part.isascii() and part.isdigit() and len(part) <= 19 for part in parts)
    if len(parts) != count or not plain:
        raise BadRequestError("the page token belongs to another search")
    return [int(part) for part in parts]


def _exactly(request: message_pb2.FindMessagesRequest) -> Callable[[StoredMessage], bool]:
    """Make the test whether a message is what was asked for: hashes only led to it."""
    if request.message_id:
        return lambda stored: stored.message_id == request.message_id
    if request.key:
        return lambda stored: request.key in stored.keys
    return lambda stored: True


def _found_message(hit: Found, stored: StoredMessage, *, body: bool) -> message_pb2.FoundMessage:
    return message_pb2.FoundMessage(
        topic=hit.topic,
        message_id=stored.message_id,
        queue_id=hit.queue_id,
        queue_offset=hit.queue_offset,
        stored_at_ms=hit.stored_ms,
        due_at_ms=hit.due_ms,
        born_at_ms=stored.born_ms,
        born_host=stored.born_host,
        message_type=stored.message_type,
        tag=stored.tag,
        keys=stored.keys,
        message_group=stored.message_group,
        priority=stored.priority,
        lite_topic=stored.lite_topic,
        properties=stored.properties,
        body=stored.body if body else b"",
        body_size=len(stored.body),
        body_encoding=stored.body_encoding,
        origin_topic=hit.origin_topic,
    )


def _letter_state(state: DeadState | None) -> str:
    return state.name if state else "DEAD_LETTER_STATE_UNSPECIFIED"


def _group_life(life: GroupLife) -> message_pb2.GroupLife:
    return message_pb2.GroupLife(
        group=life.group,
        state=message_pb2.LifeState.Name(life.state),
        attempt=life.attempt,
        max_attempts=life.max_attempts,
        until_ms=life.until_ms,
        client_id=life.client_id,
        ahead_count=life.ahead_count,
        dead_offset=life.dead_offset,
        dead_at_ms=life.dead_ms,
        dead_state=_letter_state(life.dead_state),
        parked=life.parked,
    )
