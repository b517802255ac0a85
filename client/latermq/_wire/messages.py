"""The translator between this package's terms and the protocol's bytes: sent and delivered.

Pure, like `session_calls`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from latermq._values.failure import Failure
from latermq._values.identity import host_name
from latermq._values.route import Queue
from latermq._values.settings import Profile
from latermq._wire.session_calls import (
    SERVICE,
    check,
    duration_of,
    endpoints_of,
    filter_of,
    instant_of,
    parsed,
    resource_of,
    write_timestamp,
)
from latermq.codes import Code
from latermq.errors import GroupNotFoundError, RequestError, ServerError, error_for
from latermq.message import DEDUP_PROPERTY, DeadLetterOrigin, Message, Received, SendReceipt
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2 as rpc
from latermq_proto.latermq.v1 import failure_pb2
from latermq_text.bodies import GZIP, DamagedBodyError, unpacked

SEND_MESSAGE: Final = f"{SERVICE}/SendMessage"
RECEIVE_MESSAGE: Final = f"{SERVICE}/ReceiveMessage"
ACK_MESSAGE: Final = f"{SERVICE}/AckMessage"
CHANGE_INVISIBLE: Final = f"{SERVICE}/ChangeInvisibleDuration"
FORWARD_TO_DEAD_LETTERS: Final = f"{SERVICE}/ForwardMessageToDeadLetterQueue"

FAILURE_HEADER: Final = "latermq-failure-bin"
INSISTENCE: Final = (
    "latermq-wait",
    "insist",
)  # the wait asked for, whatever the group's backoff is
CHANGE_HEADER: Final = "latermq-change"
EXTENDS: Final = (CHANGE_HEADER, "extend")  # more time, of a push consumer too; the handle stays
ENDS: Final = (CHANGE_HEADER, "end")  # of a lease, which may be told again
DELAY_LEVEL_HEADER: Final = "latermq-delay-level"
GROUP_DELETED: Final = "GROUP_DELETED"  # as the message of a status that says that nothing came
DUPLICATE: Final = "DUPLICATE"  # as the message of a status that is OK: nothing was stored
# CRC32 is left alone: its text form differs from one client to the next.
HASHES: Final = {v2.MD5: hashlib.md5, v2.SHA1: hashlib.sha1}


class Draft(NamedTuple):
    """A message about to be sent, with what every try of it repeats."""

    message: Message
    message_id: str
    born_at: datetime
    due: datetime | None
    half: bool = False  # of a transaction
    check_after: timedelta | None = None  # of a half message; None: when the broker likes


@dataclass(frozen=True, slots=True)
class Arrival:
    """A delivered message, the lease it comes with, and what is wrong with its body ("" = fine)."""

    received: Received
    handle: str
    damage: str


def ask_send(profile: Profile, queue: Queue, drafts: Sequence[Draft], *, delayed: bool) -> bytes:
    """Build a send of messages to one topic; `delayed`: a delay level travels beside it.

    Each is written where it is to be: what a constructor is given is made first and copied then,
    which takes more than twice as long.
    """
    request = rpc.SendMessageRequest()
    for draft in drafts:
        _write(request.messages.add(), profile, queue, draft, delayed)
    return request.SerializeToString()


def _write(sent: v2.Message, profile: Profile, queue: Queue, draft: Draft, delayed: bool) -> None:
    message = draft.message
    sent.body = message.body
    topic = sent.topic
    topic.name = queue.topic
    if profile.namespace:
        topic.resource_namespace = profile.namespace
    system = sent.system_properties
    system.message_id = draft.message_id
    system.body_encoding = v2.IDENTITY
    write_timestamp(system.born_timestamp, draft.born_at)
    system.born_host = host_name()
    system.queue_id = max(queue.id, 0)
    system.message_type = v2.NORMAL
    if message.keys:
        system.keys.extend(message.keys)
    if message.tag is not None:
        system.tag = message.tag
    if message.message_group is not None:
        system.message_group = message.message_group
        system.message_type = v2.FIFO
    if message.priority is not None:
        system.priority = message.priority
        system.message_type = v2.PRIORITY
    if message.lite_topic is not None:
        system.lite_topic = message.lite_topic
        system.message_type = v2.LITE
    if draft.due is not None:
        write_timestamp(system.delivery_timestamp, draft.due)
    if draft.due is not None or delayed:
        system.message_type = v2.DELAY
    if draft.half:
        system.message_type = v2.TRANSACTION
    if draft.check_after is not None:
        wait = duration_of(draft.check_after)
        system.orphaned_transaction_recovery_duration.CopyFrom(wait)
    if message.properties:
        properties = sent.user_properties
        for name, value in message.properties.items():  # `update` takes three times as long
            properties[name] = value
    if message.dedup_id is not None:
        sent.user_properties[DEDUP_PROPERTY] = message.dedup_id


def read_send(
    data: bytes, topic: str, message_ids: Sequence[str]
) -> list[SendReceipt | RequestError]:
    """Return each message's receipt or error, in order.

    Raises:
        RequestError: the whole request was refused.
    """
    answer = parsed(rpc.SendMessageResponse, data)
    status = answer.status
    if int(status.code) != Code.MULTIPLE_RESULTS:
        check(status)
    entries = answer.entries
    if len(entries) != len(message_ids):
        raise ServerError(
            Code.INTERNAL_ERROR, f"{len(entries)} results for {len(message_ids)} messages"
        )
    return [
        _outcome(entry, topic, message_id)
        for entry, message_id in zip(entries, message_ids, strict=True)
    ]


def _outcome(entry: rpc.SendResultEntry, topic: str, sent_id: str) -> SendReceipt | RequestError:
    status, stored_id = entry.status, entry.message_id
    if int(status.code) != Code.OK:
        return error_for(int(status.code), status.message)
    return SendReceipt(
        topic=topic,
        message_id=stored_id,
        queue_offset=entry.offset,
        recall_handle=entry.recall_handle,
        duplicate=stored_id != sent_id and status.message == DUPLICATE,
    )


# Receiving --------------------------------------------------------------------------------------


def ask_receive(
    profile: Profile,
    queue: Queue,
    tags: str,
    *,
    count_max: int,
    wait: timedelta,
    invisible: timedelta | None,
    attempt_id: str = "",
) -> bytes:
    """Build a receive; without `invisible` the broker keeps the leases alive.

    An ordered group answers the same `attempt_id` again with the same messages.
    """
    request = rpc.ReceiveMessageRequest(
        group=resource_of(profile, profile.group),
        message_queue=v2.MessageQueue(
            topic=resource_of(profile, queue.topic),
            id=queue.id,
            permission=v2.READ_WRITE if queue.writable else v2.READ,
            broker=v2.Broker(
                name=queue.broker_name,
                id=queue.broker_id,
                endpoints=endpoints_of(queue.endpoints),
            ),
        ),
        filter_expression=filter_of(tags),
        batch_size=count_max,
        long_polling_timeout=duration_of(wait),
    )
    if invisible is None:
        request.auto_renew = True
    else:
        request.invisible_duration.CopyFrom(duration_of(invisible))
    if attempt_id:
        request.attempt_id = attempt_id
    return request.SerializeToString()


class GroupDeletedError(GroupNotFoundError):
    """The group was deleted while this consumer read it; nothing comes until it is created."""


def read_receive(data: bytes) -> Arrival | None:
    """Take one element of a receive apart; None for what carries no message.

    Raises:
        GroupDeletedError: as its name says.
        RequestError: the element is a status other than OK and "nothing came".
    """
    answer = parsed(rpc.ReceiveMessageResponse, data)
    kind = answer.WhichOneof("content")
    if kind == "message":
        return read_message(answer.message)
    if kind == "status":
        if int(answer.status.code) != Code.MESSAGE_NOT_FOUND:
            check(answer.status)
        elif answer.status.message == GROUP_DELETED:
            text = "the group was deleted; nothing comes until it is created"
            raise GroupDeletedError(Code.CONSUMER_GROUP_NOT_FOUND, text)
    return None


def read_message(message: v2.Message) -> Arrival:
    system = message.system_properties
    body, damage = _unpacked(message)
    origin = None
    if system.HasField("dead_letter_queue"):
        letter = system.dead_letter_queue
        origin = DeadLetterOrigin(letter.topic, letter.message_id)
    stored, due = system.store_timestamp, system.delivery_timestamp
    received = Received(
        topic=message.topic.name,
        body=body,
        message_id=system.message_id,
        attempt=max(system.delivery_attempt, 1),
        tag=system.tag if system.HasField("tag") else None,
        keys=tuple(system.keys),
        properties=dict(message.user_properties),
        message_group=system.message_group if system.HasField("message_group") else None,
        priority=system.priority if system.HasField("priority") else None,
        lite_topic=system.lite_topic if system.HasField("lite_topic") else None,
        born_at=instant_of(system.born_timestamp),
        born_host=system.born_host,
        stored_at=instant_of(stored) if system.HasField("store_timestamp") else None,
        delivery_at=instant_of(due) if system.HasField("delivery_timestamp") else None,
        queue_id=system.queue_id,
        queue_offset=system.queue_offset,
        origin=origin,
    )
    return Arrival(received, system.receipt_handle, damage)


def _unpacked(message: v2.Message) -> tuple[bytes, str]:
    """Return the body as its sender meant it, and what is wrong with it."""
    system, body = message.system_properties, message.body
    digest = system.body_digest
    make = HASHES.get(digest.type)
    if make is not None:
        actual = make(body, usedforsecurity=False).hexdigest().upper()
        if actual != digest.checksum and actual != digest.checksum.upper():
            return body, f"the body's digest is {actual}, not {digest.checksum.upper()}"
    if system.body_encoding != v2.GZIP:
        return body, ""
    try:
        return unpacked(body, GZIP), ""
    except DamagedBodyError as error:
        return body, str(error)


# Settling ---------------------------------------------------------------------------------------


class Lease(NamedTuple):
    """What the broker wants to be told of a message that is settled."""

    message_id: str
    handle: str
    lite_topic: str | None = None


def ask_ack(profile: Profile, topic: str, leases: Sequence[Lease]) -> bytes:
    return rpc.AckMessageRequest(
        group=resource_of(profile, profile.group),
        topic=resource_of(profile, topic),
        entries=[
            rpc.AckMessageEntry(
                message_id=lease.message_id,
                receipt_handle=lease.handle,
                lite_topic=lease.lite_topic,
            )
            for lease in leases
        ],
    ).SerializeToString()


def read_ack(data: bytes, count: int) -> list[RequestError | None]:
    """Return each message's error, None where it is acknowledged, in order.

    Raises:
        RequestError: the whole request was refused.
    """
    answer = parsed(rpc.AckMessageResponse, data)
    if len(answer.entries) != count:
        check(answer.status)
        if not answer.entries:
            return [None] * count
        raise ServerError(
            Code.INTERNAL_ERROR, f"{len(answer.entries)} results for {count} acknowledgements"
        )
    return [
        None
        if int(entry.status.code) == Code.OK
        else error_for(int(entry.status.code), entry.status.message)
        for entry in answer.entries
    ]


def ask_change_invisible(
    profile: Profile,
    topic: str,
    lease: Lease,
    invisible: timedelta,
    *,
    suspend: bool,
) -> bytes:
    request = rpc.ChangeInvisibleDurationRequest(
        group=resource_of(profile, profile.group),
        topic=resource_of(profile, topic),
        receipt_handle=lease.handle,
        message_id=lease.message_id,
        lite_topic=lease.lite_topic,
        invisible_duration=duration_of(invisible),
    )
    if suspend:
        request.suspend = True
    return request.SerializeToString()


def read_change_invisible(data: bytes) -> str:
    """Return the handle that replaces the one in the request."""
    answer = parsed(rpc.ChangeInvisibleDurationResponse, data)
    check(answer.status)
    return answer.receipt_handle


def ask_forward(
    profile: Profile, topic: str, lease: Lease, attempt: int, max_attempts: int
) -> bytes:
    return rpc.ForwardMessageToDeadLetterQueueRequest(
        group=resource_of(profile, profile.group),
        topic=resource_of(profile, topic),
        receipt_handle=lease.handle,
        message_id=lease.message_id,
        lite_topic=lease.lite_topic,
        delivery_attempt=attempt,
        max_delivery_attempts=max_attempts,
    ).SerializeToString()


def read_forward(data: bytes) -> None:
    check(parsed(rpc.ForwardMessageToDeadLetterQueueResponse, data).status)


def failure_header(failure: Failure) -> tuple[str, bytes]:
    """Return the header that tells the broker why an attempt failed."""
    header = failure_pb2.Failure(
        class_name=failure.class_name,
        text=failure.text,
        stack_hash=failure.stack_hash,
        stack=failure.stack,
        rejected=failure.rejected,
    )
    return FAILURE_HEADER, header.SerializeToString()


def delay_level_header(level: int) -> tuple[str, str]:
    return DELAY_LEVEL_HEADER, str(level)
