"""The translator between this package's terms and the protocol's bytes: lite subscriptions.

Pure, like `session_calls`.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from latermq._values.settings import Profile
from latermq._wire.session_calls import SERVICE, check, parsed, resource_of
from latermq.message import Begin
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2 as rpc

SYNC_LITE: Final = f"{SERVICE}/SyncLiteSubscription"


class Action(IntEnum):
    """The numbers are the protocol's."""

    ADD = 0
    REMOVE = 1
    BECOME = 2


def ask_sync_lite(
    profile: Profile,
    parent: str,
    action: Action,
    lite_topics: Iterable[str],
    *,
    version: int = 0,
    begin: Begin | None = None,
) -> bytes:
    """Build a change of what this client reads.

    Args:
        version: of a whole set; the broker goes by the highest.
        begin: where what is added begins; None: where the group is.
    """
    request = rpc.SyncLiteSubscriptionRequest(
        action=int(action),
        topic=resource_of(profile, parent),
        group=resource_of(profile, profile.group),
        lite_topic_set=sorted(lite_topics),
    )
    if version:
        request.version = version
    if begin is not None:
        request.offset_option.CopyFrom(_offset_of(begin))
    return request.SerializeToString()


def _offset_of(begin: Begin) -> v2.OffsetOption:
    if begin.offset is not None:
        return v2.OffsetOption(offset=begin.offset)
    if begin.last is not None:
        return v2.OffsetOption(tail_n=begin.last)
    return v2.OffsetOption(policy=v2.OffsetOption.MAX if begin.new_only else v2.OffsetOption.MIN)


def read_sync_lite(data: bytes) -> None:
    """Raises RequestError."""
    check(parsed(rpc.SyncLiteSubscriptionResponse, data).status)
