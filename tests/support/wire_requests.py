"""Requests of the wire, by hand: what tests send when no client library should stand in between.

Every function is pure. A connection that uses them must send `metadata(client_id)` with each call.
"""

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from latermq_proto.google.protobuf import duration_pb2, timestamp_pb2

CHANNEL_OPTIONS: Final = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a channel of its own, also after a restart
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 100),
)

_serial = itertools.count(1)


def metadata(client_id: str, *more: tuple[str, str | bytes]) -> tuple[tuple[str, str | bytes], ...]:
    return (
        ("x-mq-client-id", client_id),
        ("x-mq-language", "PYTHON"),
        ("x-mq-client-version", "5.1.2"),
        ("x-mq-protocol", "v2"),
        *more,
    )


def new_message_id() -> str:
    """Unlike any other of this run; long enough to be taken for a client's."""
    return f"01{os.getpid():08X}{next(_serial):024X}"


def resource(name: str) -> definition_pb2.Resource:
    return definition_pb2.Resource(name=name)


def duration(ms: int) -> duration_pb2.Duration:
    return duration_pb2.Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def timestamp(ms: int) -> timestamp_pb2.Timestamp:
    return timestamp_pb2.Timestamp(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def timestamp_ms(instant: timestamp_pb2.Timestamp) -> int:
    return instant.seconds * 1000 + instant.nanos // 1_000_000


def message(
    topic: str,
    body: bytes,
    *,
    message_id: str = "",
    tag: str = "",
    keys: Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
    deliver_at_ms: int = 0,
) -> definition_pb2.Message:
    """One message as a client builds it; delayed if `deliver_at_ms` is set."""
    kind = definition_pb2.MessageType.DELAY if deliver_at_ms else definition_pb2.MessageType.NORMAL
    made = definition_pb2.Message(
        topic=resource(topic),
        user_properties=dict(properties or {}),
        system_properties=definition_pb2.SystemProperties(
            message_id=message_id or new_message_id(),
            keys=list(keys),
            message_type=kind,
            body_encoding=definition_pb2.Encoding.IDENTITY,
            born_host="test",
        ),
        body=body,
    )
    if tag:
        made.system_properties.tag = tag
    if deliver_at_ms:
        made.system_properties.delivery_timestamp.CopyFrom(timestamp(deliver_at_ms))
    return made


def send(messages: Sequence[definition_pb2.Message]) -> service_pb2.SendMessageRequest:
    return service_pb2.SendMessageRequest(messages=messages)


def receive(
    topic: str,
    group: str,
    *,
    count_max: int = 32,
    invisible_ms: int = 30_000,
    wait_ms: int = 5_000,
    auto_renew: bool = False,
    tags: str = "*",
    attempt_id: str = "",
) -> service_pb2.ReceiveMessageRequest:
    """`auto_renew`: as push consumers ask; `invisible_ms` is then not sent."""
    request = service_pb2.ReceiveMessageRequest(
        group=resource(group),
        message_queue=definition_pb2.MessageQueue(topic=resource(topic), id=-1),
        filter_expression=definition_pb2.FilterExpression(
            type=definition_pb2.FilterType.TAG, expression=tags
        ),
        batch_size=count_max,
        auto_renew=auto_renew,
        long_polling_timeout=duration(wait_ms),
        attempt_id=attempt_id or None,
    )
    if not auto_renew:
        request.invisible_duration.CopyFrom(duration(invisible_ms))
    return request


def ack(topic: str, group: str, handles: Sequence[str]) -> service_pb2.AckMessageRequest:
    entries = [service_pb2.AckMessageEntry(message_id="?", receipt_handle=h) for h in handles]
    return service_pb2.AckMessageRequest(
        group=resource(group), topic=resource(topic), entries=entries
    )


def change_invisible(
    topic: str, group: str, handle: str, invisible_ms: int
) -> service_pb2.ChangeInvisibleDurationRequest:
    return service_pb2.ChangeInvisibleDurationRequest(
        group=resource(group),
        topic=resource(topic),
        receipt_handle=handle,
        invisible_duration=duration(invisible_ms),
        message_id="?",
    )


def forward(
    topic: str, group: str, handle: str
) -> service_pb2.ForwardMessageToDeadLetterQueueRequest:
    return service_pb2.ForwardMessageToDeadLetterQueueRequest(
        group=resource(group), topic=resource(topic), receipt_handle=handle, message_id="?"
    )
