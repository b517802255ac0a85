"""Every error the broker raises on purpose.

`RequestError` and its subclasses are answers to a client: they carry the RocketMQ status `code`
(wire.json, enum Code) that goes into the response body; the gRPC call itself ends OK. `StoreError`
and `ConfigError` are for the operator; of them only StoreFullError is told to a client in its own
words (`services/call/answers.py`). Anything else that is raised is a bug of ours.
"""

from typing import ClassVar

from latermq_text.printable import shortened


class LaterMQError(Exception):
    """Root of the tree."""


class ConfigError(LaterMQError):
    """A setting is out of its bounds or contradicts another."""

    def __init__(self, setting: str, reason: str) -> None:
        super().__init__(f"{setting}: {reason}")
        self.setting = setting
        self.reason = reason


class UnansweredError(ConfigError):
    """Says that nobody answers at the address of a setting: starting the broker again may help."""


class HandoverError(LaterMQError):
    """The broker that runs cannot be replaced; it runs on."""


class StoreError(LaterMQError):
    """The data directory cannot be used as asked."""


class StoreLockedError(StoreError):
    """Another broker holds the data directory."""


class StoreUnusableError(StoreError):
    """The data directory cannot be created, read or written."""


class CorruptRecordError(StoreError):
    """Bytes that were durable once no longer match their checksum."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"damaged record at position {position}: {reason}")
        self.position = position
        self.reason = reason


class GivenUpError(CorruptRecordError):
    """Records were given up there: a replay that brought a state along cannot go on behind them."""

    def __init__(self, position: int) -> None:
        super().__init__(
            position,
            "records were given up here, and nothing behind them says from what a broker goes on: "
            "run `latermq log repair --skip DIR --yes` again",
        )


class UnreplayableError(CorruptRecordError):
    """A record matches its checksum, and what it says cannot be: no broker wrote it so."""


class HalfRestoredError(StoreError):
    """A checkpoint matches its checksum, and what it says cannot be: begin anew, without it."""


class DamagedQueueError(StoreError):
    """A consume queue's file is not what was written; the next start rebuilds it from the log."""


class UnusableCheckpointError(StoreError):
    """A checkpoint, or a file it names, does not verify; an older one or a replay takes over."""


class UnsupportedFormatError(StoreError):
    """Written by a newer version, or not ours at all."""


class StoreReadOnlyError(StoreError):
    """A write or sync failed; nothing is accepted any more until a restart has recovered."""


class FencedError(StoreError):
    """Another owner's fence stands in the replicated log: this one writes no more, for ever."""


class LogUnavailableError(StoreError):
    """The replicated log did not answer: what it was asked to do may or may not happen."""


class StoreGoneError(StoreError):
    """The directory, or a file of the log in it, is not where a start would look for it."""


class StoreFullError(StoreError):
    """No room for another segment; nothing of the refused request was stored."""


class StoreBusyError(StoreFullError):
    """A file cannot be opened or mapped just now: no descriptor is left, or no memory."""


class EntriesGoneError(StoreError):
    """The replicated log begins behind the entry that a reader needs next."""


class EntriesLostError(StoreError):
    """The replicated log no longer has what it acknowledged: nobody can go on from there."""


class DamagedBatchError(StoreError):
    """An entry of the replicated log is not what was written, or does not follow what is there."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"damaged batch at offset {offset} of the replicated log: {reason}")
        self.offset = offset
        self.reason = reason


class RequestError(LaterMQError):
    """A request that is answered with a RocketMQ status code."""

    code: ClassVar[int] = 50000


class BadRequestError(RequestError):
    code = 40000


class IllegalTopicError(RequestError):
    code = 40002


class IllegalGroupError(RequestError):
    code = 40003


class IllegalTagError(RequestError):
    code = 40004


class IllegalKeyError(RequestError):
    code = 40005


class IllegalMessageGroupError(RequestError):
    code = 40006


class IllegalPropertyKeyError(RequestError):
    code = 40007


class InvalidTransactionIdError(RequestError):
    """Blank, unknown, or ended the other way."""

    code = 40008


class IllegalMessageIdError(RequestError):
    code = 40009


class IllegalFilterError(RequestError):
    code = 40010


class IllegalInvisibleTimeError(RequestError):
    code = 40011


class IllegalDeliveryTimeError(RequestError):
    code = 40012


class InvalidReceiptHandleError(RequestError):
    """Acknowledged, expired, superseded, or never ours."""

    code = 40013


class TypeConflictError(RequestError):
    code = 40014


class UnrecognizedClientError(RequestError):
    code = 40015


class MessageCorruptedError(RequestError):
    code = 40016


class ClientIdRequiredError(RequestError):
    code = 40017


class IllegalPollingTimeError(RequestError):
    code = 40018


class IllegalOffsetError(RequestError):
    code = 40019

    def __init__(self, message: str, *, earliest_offset: int, next_offset: int) -> None:
        super().__init__(message)
        self.earliest_offset = earliest_offset
        self.next_offset = next_offset


class IllegalLiteTopicError(RequestError):
    code = 40020


class InvalidClientPropertiesError(RequestError):
    code = 40021


class UnauthorizedError(RequestError):
    """Not signed, or not by a user of ours."""

    code = 40100


class NotSignedError(UnauthorizedError):
    """By nobody who is a user: no signature, or one that no user's secret makes."""


class ForbiddenError(RequestError):
    code = 40300


class NotFoundError(RequestError):
    code = 40400


class MessageNotFoundError(RequestError):
    code = 40401


class TopicNotFoundError(RequestError):
    code = 40402

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic not found: {shortened(topic)}")
        self.topic = topic


class NoRouteError(TopicNotFoundError):
    """Says that a topic is not there in the words of RocketMQ, which test suites look for."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        words = "CODE: 17  DESC: No topic route info in name server for the topic"
        self.args = (f"{words}: {shortened(topic)}",)


def unknown_topic(topic: str, *, strict: bool) -> TopicNotFoundError:
    return NoRouteError(topic) if strict else TopicNotFoundError(topic)


class GroupNotFoundError(RequestError):
    code = 40403

    def __init__(self, group: str) -> None:
        super().__init__(f"consumer group not found: {shortened(group)}")
        self.group = group


class OffsetNotFoundError(RequestError):
    code = 40404


class BodyTooLargeError(RequestError):
    code = 41301


class BodyEmptyError(RequestError):
    code = 41302


class PreconditionFailedError(RequestError):
    code = 42800


class TooManyRequestsError(RequestError):
    code = 42900


class LiteTopicQuotaError(RequestError):
    """The parent has as many lite topics as it may have."""

    code = 42901


class LiteSubscriptionQuotaError(RequestError):
    """The client subscribes to as many lite topics as it may."""

    code = 42902


class IndexRebuildingError(TooManyRequestsError):
    """That part of the message index is being made again from the log."""


class PropertiesTooLargeError(RequestError):
    code = 43101


class InternalServerError(RequestError):
    """Something on the broker's side, said in words a client can log."""

    code = 50001
