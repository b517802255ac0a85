"""RecallMessage: a delayed message that must not be delivered after all.

The handle is the id of the message's wait, as `latermq pending` shows it. The timer and a recall
meet in the engine, one after the other: exactly one of them has the message.
"""

import re
from typing import Final

from latermq_broker.deferred import Later
from latermq_broker.engine.state.model import TopicType
from latermq_broker.errors import (
    BadRequestError,
    MessageNotFoundError,
    NotFoundError,
    TypeConflictError,
    unknown_topic,
)
from latermq_broker.services.call.answers import Caller, ok_status
from latermq_broker.services.call.names import shown
from latermq_broker.services.clients.rooms import Rooms
from latermq_broker.services.clients.shards import Shards
from latermq_broker.services.wire import wire
from latermq_broker.services.wire.wire_stored import stored_message
from latermq_proto.apache.rocketmq.v2 import service_pb2

_HANDLE: Final = re.compile(r"d-[0-9a-f]{1,16}-[0-9a-f]{1,16}(-[0-9a-f]{1,8})?")


class RecallService:
    def __init__(self, rooms: Rooms, shards: Shards | None = None) -> None:
        self._shards = shards
        self._engine = rooms.engine
        self._committer = rooms.committer
        self._strict = rooms.config.compat.strict

    def recall_message(
        self, request: service_pb2.RecallMessageRequest, caller: Caller
    ) -> Later[bytes]:
        """Cancel a delayed message, which is never delivered; its id is answered.

        Raises:
            IllegalTopicError, TopicNotFoundError.
            TypeConflictError: the topic's type is neither delay, priority nor mixed.
            BadRequestError: not a recall handle of this broker.
            NotFoundError: delivered or recalled already, or not of this topic. Not
                MESSAGE_NOT_FOUND: the Python and Node.js clients take that for success.
            ElsewhereError: the message waits in another shard.
        """
        name = wire.topic_name(request.topic)
        handle = request.recall_handle
        if self._shards is not None:
            handle = self._shards.own_handle(handle, caller.call)
        topic = self._engine.catalog.topic(name)
        if topic is None:
            raise unknown_topic(name, strict=self._strict)
        if topic.type not in (TopicType.DELAY, TopicType.PRIORITY, TopicType.MIXED):
            raise TypeConflictError(
                f"topic {name} of type {topic.type.name} has no delayed messages to recall"
            )
        if _HANDLE.fullmatch(handle) is None:
            raise BadRequestError(f"{shown(handle)} is no recall handle of this broker")
        try:
            item = self._engine.pending.cancel(handle, self._committer.now_ms(), topic=name)
        except MessageNotFoundError as error:
            why = "delivered or recalled already"
            if self._engine.pending.moves_forgotten:
                why += ", or its time was moved: `latermq pending` shows its handle of now"
            raise NotFoundError(f"topic {name} has no delayed message {handle}: {why}") from error
        message_id = stored_message(item.rest, item.sys).message_id
        response = service_pb2.RecallMessageResponse(status=ok_status(), message_id=message_id)
        return self._committer.acknowledged(response.SerializeToString())
