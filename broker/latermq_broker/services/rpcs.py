"""From the descriptors to the method table: an RPC is answered by the method that has its name.

    rpc AckMessage → `ack_message(request, caller)`, of one of the objects that serve its service

What such a method may do is in `answers`. Beside it, where an RPC needs them, stand

    refuse_ack_message(status, request)    what carries an error's status, if not the status alone
    read_ack_message(data, call)           reads the request, if protobuf alone does not
    parsed_telemetry(commands, call)       a stream for who has parsed what the client sends

Whether a method streams, and what it takes and gives, the descriptor says; what it needs of memory
and whether it lasts is its row of `NEEDS`, which rights it needs its row in `auth/access_rules.py`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from latermq_broker.background.jobs import Background
from latermq_broker.services.admin import admin_messages
from latermq_broker.services.call.answers import (
    ADMIN,
    MESSAGING,
    reader,
    refusal_of,
    server_stream,
    unary,
)
from latermq_broker.services.call.handler import Method, MethodTable
from latermq_broker.services.call.lasting import lasting, lasting_stream
from latermq_broker.services.v1 import (
    v1_backups,
    v1_dead_letters,
    v1_messages,
    v1_pending,
    v1_queues,
)
from latermq_proto.apache.rocketmq.v2 import definition_pb2

_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What of `Method` is not in the descriptor."""

    large: bool = False
    small: bool = False
    reply_bytes: int = 0
    lasting: bool = False  # answered in turns of the background; its kind there is the RPC's name


LASTING: Final = Needs(lasting=True)


def _listing(bytes_max: int) -> Needs:
    return Needs(reply_bytes=bytes_max, lasting=True)


NEEDS: Final[Mapping[str, Needs]] = {
    f"{MESSAGING}/SendMessage": Needs(large=True),
    f"{MESSAGING}/ReceiveMessage": Needs(small=True),
    f"{MESSAGING}/PullMessage": Needs(small=True),
    f"{ADMIN}/QueryMessage": Needs(reply_bytes=admin_messages.REPLY_BYTES_MAX, lasting=True),
    "/latermq.v1.Backups/ReadLog": Needs(reply_bytes=v1_backups.SLICE_BYTES, lasting=True),
    "/latermq.v1.Clients/GetClient": LASTING,
    "/latermq.v1.Clients/KickClient": LASTING,
    "/latermq.v1.Clients/ListClients": LASTING,
    "/latermq.v1.Cluster/CopyCatalogue": LASTING,
    "/latermq.v1.DeadLetters/DropDeadLetters": LASTING,
    "/latermq.v1.DeadLetters/GetDeadLetter": _listing(v1_dead_letters.PAGE_BYTES_MAX),
    "/latermq.v1.DeadLetters/ListDeadLetters": _listing(v1_dead_letters.PAGE_BYTES_MAX),
    "/latermq.v1.DeadLetters/RedriveDeadLetters": LASTING,
    "/latermq.v1.Groups/ListGroups": LASTING,
    "/latermq.v1.Messages/DescribeMessage": _listing(v1_messages.LIVES_BYTES_MAX),
    "/latermq.v1.Messages/FindMessages": _listing(v1_messages.PAGE_BYTES_MAX),
    "/latermq.v1.Pending/CancelPending": LASTING,
    "/latermq.v1.Pending/CommitPending": LASTING,
    "/latermq.v1.Pending/CountPending": LASTING,
    "/latermq.v1.Pending/ExpeditePending": LASTING,
    "/latermq.v1.Pending/ListPending": _listing(v1_pending.PAGE_BYTES),
    "/latermq.v1.Pending/PostponePending": LASTING,
    "/latermq.v1.Queues/DescribeQueues": _listing(v1_queues.PAGE_BYTES_MAX),
    "/latermq.v1.Queues/ReadQueue": _listing(v1_queues.PAGE_BYTES_MAX),
    "/latermq.v1.Topics/ListTopics": LASTING,
}
_NONE: Final = Needs()


def methods_of(
    service: Any, handlers: Sequence[object], background: Background | None = None
) -> MethodTable:
    """List the methods of a service whose RPCs the handlers answer.

    Args:
        service: its descriptor.
        handlers: no two of them answer one RPC.
        background: gives calls that last their turns; None: none of these RPCs does.
    """
    table: MethodTable = {}
    for rpc in service.methods:
        name = name_of(rpc)
        answering = [handler for handler in handlers if hasattr(handler, name)]
        assert len(answering) <= 1, f"two answer {rpc.full_name}"
        for handler in answering:
            table[path_of(rpc)] = _method(rpc, handler, name, background)
    return table


def path_of(rpc: Any) -> str:
    """Name an RPC as gRPC does: `/package.Service/Method`."""
    return f"/{rpc.containing_service.full_name}/{rpc.name}"


def name_of(rpc: Any) -> str:
    """Name the method that answers an RPC: `AckMessage` is answered by `ack_message`."""
    return _CAPITAL.sub("_", rpc.name).lower()


def _method(rpc: Any, handler: object, name: str, background: Background | None) -> Method:
    answer = getattr(handler, name)
    if rpc.client_streaming:
        return Method.bidi_stream(answer, parsed=getattr(handler, f"parsed_{name}"))
    needs = NEEDS.get(path_of(rpc), _NONE)
    read = getattr(handler, f"read_{name}", None) or reader(GetMessageClass(rpc.input_type))
    of_a_client = path_of(rpc).startswith(MESSAGING)
    own = getattr(handler, f"refuse_{name}", None)
    reply_bytes = needs.reply_bytes
    if needs.lasting:
        assert background is not None, f"{rpc.full_name} lasts"
        if rpc.server_streaming:
            answer = lasting_stream(background, rpc.name, answer)
        else:
            answer = lasting(background, rpc.name, answer, reply_bytes)
            reply_bytes = 0  # not before its turn: calls that wait would take it from others
    if rpc.server_streaming:
        return server_stream(
            read,
            answer,
            own or _only_element(rpc),
            client_id_required=of_a_client,
            reply_bytes=reply_bytes,
            small=needs.small,
        )
    return unary(
        read,
        answer,
        own or _status_alone(rpc),
        client_id_required=of_a_client,
        large=needs.large,
        reply_bytes=reply_bytes,
    )


def _status_alone(rpc: Any) -> Callable[[definition_pb2.Status, Message], Message]:
    refusal = refusal_of(rpc)
    return lambda status, _: refusal(status)


def _only_element(rpc: Any) -> Callable[[definition_pb2.Status, Message], Sequence[Message]]:
    refusal = refusal_of(rpc)
    return lambda status, _: [refusal(status)]
