"""latermq.v1 Pending: what waits and until when; cancel, expedite, postpone.

Unknown topics and groups in a filter are errors, never an empty listing. A page may be shorter than
asked for, even empty, before the listing's end: only an empty token ends it.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from latermq_broker.catalog.catalog import RETRY_PREFIX, SCHEDULE_TOPIC
from latermq_broker.engine.state.model import PendingCount, PendingFilter, PendingItem, PendingKind
from latermq_broker.errors import (
    BadRequestError,
    GroupNotFoundError,
    MessageNotFoundError,
    TopicNotFoundError,
)
from latermq_broker.services.auth.naming import require_told
from latermq_broker.services.call.answers import (
    ANSWERED,
    Caller,
    common_status,
    ok_status,
    status_of,
)
from latermq_broker.services.call.names import choice, shown
from latermq_broker.services.call.paging import page_size
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.wire.wire_stored import stored_message
from latermq_proto.latermq.v1 import pending_pb2

IDS_MAX: Final = 1_000
PAGE_BYTES: Final = 2 << 20  # of a long page: it has no bodies

_PENDING_ID: Final = re.compile(r"d(-[0-9a-f]+){2,3}|t(-[0-9a-f]+){1,2}|r-[0-9a-f]+")
_Change = Callable[[str, int], PendingItem]  # (id, now_ms)


class PendingService:
    def __init__(self, rooms: Rooms) -> None:
        self._engine = rooms.engine
        self._committer = rooms.committer

    async def list_pending(
        self, request: pending_pb2.ListPendingRequest, caller: Caller
    ) -> pending_pb2.ListPendingResponse:
        """Answer ListPending of pending.proto.

        Raises:
            TopicNotFoundError, GroupNotFoundError: the filter names what does not exist.
            BadRequestError: the filter, the size or the token.
        """
        filter, size = self._filter(request.filter, caller), page_size(request.page_size)
        response = pending_pb2.ListPendingResponse(status=ok_status())
        walk = self._engine.pending.walk(filter, request.page_token)
        job = caller.lasting
        while True:
            left = min(size - len(response.messages), job.count)
            items = self._engine.pending.items(walk, left, job.count)
            response.messages.extend(map(_message, items))
            token = walk.token
            if not token or len(response.messages) >= size or caller.call.cancelled:
                response.next_page_token = token
                return response
            await job.turn()

    async def count_pending(
        self, request: pending_pb2.CountPendingRequest, caller: Caller
    ) -> pending_pb2.CountPendingResponse:
        """Answer CountPending of pending.proto. Raises as `list_pending` does."""
        filter = self._filter(request.filter, caller)
        if filter.due_before_ms or filter.delay_level:
            counts = await self._count_each(filter, caller)
        else:
            counts = self._engine.pending.count(filter)
        response = pending_pb2.CountPendingResponse(
            status=ok_status(), total=sum(each.count for each in counts)
        )
        for each in counts:
            response.counts.append(_count(each))
            await caller.lasting.turn()
        return response

    async def _count_each(self, filter: PendingFilter, caller: Caller) -> Sequence[PendingCount]:
        """Count all that match one by one, where no counter helps."""
        job = caller.lasting
        counts: dict[tuple[PendingKind, str, str], PendingCount] = {}
        walk = self._engine.pending.walk(filter)
        while not caller.call.cancelled:
            items = self._engine.pending.items(walk, job.count, job.count)
            for item in items:
                key = (item.kind, item.topic, item.group)
                first = counts.get(key)
                counts[key] = PendingCount(
                    kind=item.kind,
                    topic=item.topic,
                    group=item.group,
                    count=first.count + 1 if first else 1,
                    next_due_ms=first.next_due_ms if first else item.due_ms or item.redriven_ms,
                    ready=(first.ready if first else 0) + item.ready,
                )
            if not walk.token:
                break
            await job.turn()
        return [counts[key] for key in sorted(counts)]

    async def cancel_pending(
        self, request: pending_pb2.ChangePendingRequest, caller: Caller
    ) -> pending_pb2.ChangePendingResponse:
        """Answer CancelPending of pending.proto. Each id has a result of its own."""
        return await self._change(request, caller, self._engine.pending.cancel)

    async def commit_pending(
        self, request: pending_pb2.ChangePendingRequest, caller: Caller
    ) -> pending_pb2.ChangePendingResponse:
        """Answer CommitPending of pending.proto. Each id has a result of its own."""
        return await self._change(request, caller, self._engine.pending.commit)

    async def expedite_pending(
        self, request: pending_pb2.ChangePendingRequest, caller: Caller
    ) -> pending_pb2.ChangePendingResponse:
        """Answer ExpeditePending of pending.proto. Each id has a result of its own."""
        return await self._change(request, caller, self._engine.pending.expedite)

    async def postpone_pending(
        self, request: pending_pb2.ChangePendingRequest, caller: Caller
    ) -> pending_pb2.ChangePendingResponse:
        """Answer PostponePending of pending.proto. Each id has a result of its own.

        Raises:
            BadRequestError: no due time.
        """
        if request.due_at_ms <= 0:
            raise BadRequestError("due_at_ms is required: when it shall be due")

        def change(pending_id: str, now_ms: int) -> PendingItem:
            return self._engine.pending.postpone(pending_id, request.due_at_ms, now_ms)

        return await self._change(request, caller, change)

    async def _change(
        self, request: pending_pb2.ChangePendingRequest, caller: Caller, change: _Change
    ) -> pending_pb2.ChangePendingResponse:
        if not 1 <= len(request.ids) <= IDS_MAX:
            raise BadRequestError(f"{len(request.ids)} ids: 1 to {IDS_MAX} are required")
        results: list[pending_pb2.ChangePendingResult] = []
        for pending_id in request.ids:
            result = pending_pb2.ChangePendingResult(id=pending_id, status=ok_status())
            try:
                waiting = await self._named(pending_id, caller)
                item = change(waiting, self._committer.now_ms())
                result.message_id = stored_message(item.rest, item.sys).message_id
            except ANSWERED as error:
                result.status.CopyFrom(status_of(error))
            results.append(result)
            await caller.lasting.turn()
        await self._committer.written()
        return pending_pb2.ChangePendingResponse(
            status=common_status([result.status for result in results]), results=results
        )

    async def _named(self, pending_id: str, caller: Caller) -> str:
        """Return the id of a wait, searched for where a message id was given."""
        if _PENDING_ID.fullmatch(pending_id):
            return pending_id
        pending_ids: set[str] = set()
        walk = self._engine.pending.walk(PendingFilter())
        while True:
            more = self._engine.pending.search(pending_id, walk, caller.lasting.count)
            pending_ids.update(more)
            if not walk.token:
                break
            await caller.lasting.turn()
        if not pending_ids:
            raise MessageNotFoundError(f"nothing waits under {shown(pending_id)}")
        if len(pending_ids) > 1:
            raise BadRequestError(
                f"{len(pending_ids)} waits belong to message {shown(pending_id)}: name one"
            )
        return pending_ids.pop()

    def _filter(self, message: pending_pb2.PendingFilter, caller: Caller) -> PendingFilter:
        catalog, topic = self._engine.catalog, message.topic
        if message.group and topic not in ("", SCHEDULE_TOPIC):
            require_told(self._engine, caller.call.user, message.group, topic)
        if topic.startswith(RETRY_PREFIX):
            group = topic.removeprefix(RETRY_PREFIX)
            catalog.require_group(group)
        elif topic not in ("", SCHEDULE_TOPIC) and catalog.topic(topic) is None:
            raise TopicNotFoundError(topic)
        if message.group and catalog.group(message.group) is None:
            raise GroupNotFoundError(message.group)
        if message.due_before_ms < 0 or message.delay_level < 0:
            raise BadRequestError("due_before_ms and delay_level are at least 0")
        return PendingFilter(
            topic=topic,
            group=message.group,
            kind=choice(PendingKind, message.kind, "pending kind"),
            due_before_ms=message.due_before_ms,
            delay_level=message.delay_level,
        )


def _count(each: PendingCount) -> pending_pb2.PendingCount:
    return pending_pb2.PendingCount(
        kind=pending_pb2.PendingKind.Name(each.kind),
        topic=each.topic,
        group=each.group,
        count=each.count,
        next_due_at_ms=each.next_due_ms,
        ready_count=each.ready,
    )


def _message(item: PendingItem) -> pending_pb2.PendingMessage:
    stored = stored_message(item.rest, item.sys)
    return pending_pb2.PendingMessage(
        kind=pending_pb2.PendingKind.Name(item.kind),
        pending_id=item.pending_id,
        topic=item.topic,
        group=item.group,
        message_id=stored.message_id,
        tag=stored.tag,
        keys=stored.keys,
        priority=stored.priority,
        lite_topic=stored.lite_topic,
        due_at_ms=item.due_ms or item.redriven_ms,
        stored_at_ms=item.stored_ms,
        attempt=item.attempt,
        max_attempts=item.max_attempts,
        body_size=len(stored.body),
        delay_level=item.delay_level,
        last_failure_class=item.failure.class_name if item.failure else "",
        last_failure_text=item.failure.text if item.failure else "",
        checks=item.checks,
        checks_max=item.checks_max,
        ready=item.ready,
        client_id=item.client_id,
    )
