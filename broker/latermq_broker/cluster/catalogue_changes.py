"""Changes of the catalogue: shard 0 makes them, and answers when the others have them."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from inspect import isawaitable
from typing import Any, Final, cast

from latermq_broker.catalog.catalog import Catalog, TopicType
from latermq_broker.cluster.catalogue_source import CatalogueSource
from latermq_broker.cluster.placement import SPREAD
from latermq_broker.cluster.shard_headers import sender_of
from latermq_broker.deferred import Later
from latermq_broker.errors import BadRequestError
from latermq_broker.services.call.answers import refusal_of, status_of
from latermq_broker.services.call.handler import Call, Method
from latermq_proto.latermq.v1 import topic_pb2

ALTER_TOPIC: Final = "/latermq.v1.Topics/AlterTopic"
CHANGES: Final = (
    "/latermq.v1.Topics/CreateTopic", ALTER_TOPIC, "/latermq.v1.Topics/DeleteTopic",
    "/latermq.v1.Groups/CreateGroup", "/latermq.v1.Groups/AlterGroup",
    "/latermq.v1.Groups/DeleteGroup", "/latermq.v1.Limits/SetLimit",
    "/latermq.v1.Limits/UnsetLimit", "/latermq.v1.Users/CreateUser", "/latermq.v1.Users/AlterUser",
    "/latermq.v1.Users/RotateUser", "/latermq.v1.Users/DeleteUser",
    "/latermq.v1.Users/GrantRights", "/latermq.v1.Users/RevokeRights",
)  # fmt: skip


def spreading(method: Method, source: CatalogueSource) -> Method:
    """Give a unary method that answers when the shards that are there know what it changed."""
    inner = cast(Callable[[bytes, Call], bytes | Later[bytes] | Awaitable[bytes]], method.handler)

    async def handler(data: bytes, call: Call) -> bytes:
        result = inner(data, call)
        answer = await result if isawaitable(result) else result
        await source.spread(sender_of(call))
        return answer

    return replace(method, handler=handler, parsed=lambda _, data, call: handler(data, call))


def keeping_places(method: Method, catalog: Catalog, rpc: Any) -> Method:
    """Give an AlterTopic that refuses types with which messages would lie elsewhere."""
    inner = cast(Callable[[bytes, Call], Any], method.handler)

    def handler(data: bytes, call: Call) -> Any:
        request = topic_pb2.AlterTopicRequest()
        request.MergeFromString(data)
        topic = catalog.topic(request.name)
        if topic is not None and request.type and topic.type.value != request.type:
            spread = [kind in SPREAD for kind in (topic.type.value, request.type)]
            if spread[0] != spread[1]:
                error = BadRequestError(
                    f"topic {request.name} of type {topic.type.name.lower()} cannot become "
                    f"{TopicType(request.type).name.lower()} in a cluster: one is in all shards, "
                    "the other in its home; make another topic"
                )
                refused: bytes = refusal_of(rpc)(status_of(error)).SerializeToString()
                return refused
        return inner(data, call)

    return replace(method, handler=handler, parsed=lambda _, data, call: handler(data, call))
