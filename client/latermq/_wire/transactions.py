"""The translator between this package's terms and the protocol's bytes: transactions and recall.

Pure, like `session_calls`.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from latermq._values.settings import Profile
from latermq._wire.messages import Arrival, read_message
from latermq._wire.session_calls import SERVICE, check, parsed, resource_of
from latermq.codes import Code
from latermq.errors import ServerError
from latermq.message import Resolution
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2 as rpc

END_TRANSACTION: Final = f"{SERVICE}/EndTransaction"
RECALL_MESSAGE: Final = f"{SERVICE}/RecallMessage"

_RESOLUTIONS: Final = {
    Resolution.COMMIT: v2.COMMIT,
    Resolution.ROLLBACK: v2.ROLLBACK,
    Resolution.UNKNOWN: v2.TRANSACTION_RESOLUTION_UNSPECIFIED,
}


class Source(IntEnum):
    """Why a transaction is ended now; the numbers are the protocol's."""

    CLIENT = 1
    SERVER_CHECK = 2


class Half(NamedTuple):
    """A half message the broker has stored."""

    topic: str
    message_id: str
    transaction_id: str


def read_half(data: bytes, topic: str) -> Half:
    """Take the answer to the send of one half message apart. Raises what its status stands for."""
    answer = parsed(rpc.SendMessageResponse, data)
    check(answer.status)
    if len(answer.entries) != 1:
        raise ServerError(Code.INTERNAL_ERROR, f"{len(answer.entries)} results for a message")
    entry = answer.entries[0]
    check(entry.status)
    return Half(topic, entry.message_id, entry.transaction_id)


def ask_end(profile: Profile, half: Half, resolution: Resolution, source: Source) -> bytes:
    return rpc.EndTransactionRequest(
        topic=resource_of(profile, half.topic),
        message_id=half.message_id,
        transaction_id=half.transaction_id,
        resolution=_RESOLUTIONS[resolution],
        source=int(source),
    ).SerializeToString()


def read_end(data: bytes) -> None:
    check(parsed(rpc.EndTransactionResponse, data).status)


def read_orphan(message: bytes, transaction_id: str) -> tuple[Half, Arrival]:
    """Read the half message that the broker asks about."""
    arrival = read_message(parsed(v2.Message, message))
    received = arrival.received
    return Half(received.topic, received.message_id, transaction_id), arrival


def ask_recall(profile: Profile, topic: str, recall_handle: str) -> bytes:
    return rpc.RecallMessageRequest(
        topic=resource_of(profile, topic), recall_handle=recall_handle
    ).SerializeToString()


def read_recall(data: bytes) -> str:
    """Return the recalled message's id."""
    answer = parsed(rpc.RecallMessageResponse, data)
    check(answer.status)
    return answer.message_id
