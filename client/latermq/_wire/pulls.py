"""The translator between this package's terms and the protocol's bytes: queues read by position."""

from datetime import timedelta
from typing import Final

from latermq._values.route import Queue
from latermq._values.settings import Profile
from latermq._wire.messages import Arrival, read_message
from latermq._wire.session_calls import SERVICE, check, duration_of, filter_of, parsed, resource_of
from latermq.codes import Code
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2 as rpc

PULL_MESSAGE: Final = f"{SERVICE}/PullMessage"
QUERY_OFFSET: Final = f"{SERVICE}/QueryOffset"


def ask_end(profile: Profile, queue: Queue) -> bytes:
    """Ask for the offset that the next message of the queue will have."""
    request = rpc.QueryOffsetRequest(
        message_queue=_queue(profile, queue), query_offset_policy=v2.END
    )
    return request.SerializeToString()


def read_end(data: bytes) -> int:
    answer = parsed(rpc.QueryOffsetResponse, data)
    check(answer.status)
    return answer.offset


def ask_pull(
    profile: Profile, queue: Queue, tags: str, offset: int, *, count_max: int, wait: timedelta
) -> bytes:
    """Ask for messages from an offset on, waiting for the first."""
    request = rpc.PullMessageRequest(
        group=resource_of(profile, profile.group),
        message_queue=_queue(profile, queue),
        offset=offset,
        batch_size=count_max,
        filter_expression=filter_of(tags),
        long_polling_timeout=duration_of(wait),
    )
    return request.SerializeToString()


def read_pull(data: bytes) -> Arrival | int | bool:
    """Take one element of a pull apart: a message; the offset to go on from; or whether the offset
    asked for is there.

    Raises:
        RequestError: a status other than that.
    """
    answer = parsed(rpc.PullMessageResponse, data)
    kind = answer.WhichOneof("content")
    if kind == "message":
        return read_message(answer.message)
    if kind == "next_offset":
        return int(answer.next_offset)
    code = int(answer.status.code)
    if code not in (Code.MESSAGE_NOT_FOUND, Code.ILLEGAL_OFFSET):
        check(answer.status)
    return code != Code.ILLEGAL_OFFSET


def _queue(profile: Profile, queue: Queue) -> v2.MessageQueue:
    return v2.MessageQueue(topic=resource_of(profile, queue.topic), id=queue.id)
