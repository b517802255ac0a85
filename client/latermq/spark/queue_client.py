"""The two calls of `latermq.v1.Queues`, made from drivers and from Spark's reused workers.

Nothing of gRPC exists before the first call: Spark forks its workers and pickles its readers, and a
channel survives neither. Afterwards each process keeps its channels, over batches and queries.

A call that fails for a passing reason is made again, at the next endpoint, for `retryFor`.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import lru_cache
from typing import Any, Final

import grpc

from latermq._values.credentials import Credentials
from latermq.spark.errors import BrokerRefusedError, ProtocolError, TopicNotFoundError
from latermq.spark.options import Options
from latermq.spark.ranges import Ends, QueueEnds, QueueRange, TopicEnds
from latermq.spark.retry import Patience
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import queue_pb2, queue_pb2_grpc

Code = definition_pb2.Code

_CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),  # a page is bounded by pageBytes, or is one message
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
_PASSING_CALL: Final = {
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.UNKNOWN,
}
_PASSING_ANSWER: Final = {
    Code.HA_NOT_AVAILABLE,
    Code.INTERNAL_ERROR,
    Code.INTERNAL_SERVER_ERROR,
    Code.PROXY_TIMEOUT,
    Code.REQUEST_TIMEOUT,
    Code.TOO_MANY_REQUESTS,
}


class OffsetGoneError(Exception):
    """The offset to read is below the oldest (retention) or past the end (a lost log)."""

    def __init__(self, earliest: int, next_offset: int) -> None:
        super().__init__(earliest, next_offset)
        self.earliest = earliest
        self.next_offset = next_offset


class TopicGoneError(Exception):
    """The topic was deleted, or made anew under another epoch."""


class _PassingError(Exception):
    """The broker asked to be called again later."""


class QueueClient:
    """Holds options only, so that it may be pickled."""

    def __init__(self, options: Options) -> None:
        self.options: Final = options

    def describe(self, at_ms: int = 0) -> Ends:
        """What the queues of the subscription hold; topics that do not exist are left out.

        at_ms: > 0: fill `QueueEnds.at`.

        Raises:
            BrokerUnreachableError, BrokerRefusedError.
        """
        subscription = self.options.subscription
        request = queue_pb2.DescribeQueuesRequest(
            topics=subscription.topics, topic_pattern=subscription.pattern, at_ms=at_ms
        )
        patience = Patience(self.options.retry_ms)
        while True:
            endpoint = self._endpoint(patience)
            try:
                answer = self._stub(endpoint).DescribeQueues(
                    request,
                    timeout=self.options.request_timeout_ms / 1_000,
                    metadata=self._signature(),
                )
                return _ends(answer)
            except (grpc.RpcError, _PassingError) as error:
                patience.failed(f"DescribeQueues at {endpoint}", _reason(error))

    def read(self, wanted: QueueRange, fields: list[str]) -> Iterator[queue_pb2.ReadQueuePage]:
        """The rows of a range in order, page by page, each row once, each page with rows.

        A call that breaks off is made again from the row after the last one handed out. Ends at
        the end of the range and not before.

        Raises:
            OffsetGoneError, TopicGoneError: there is no such row any more.
            BrokerUnreachableError, BrokerRefusedError, ProtocolError.
        """
        position = wanted.start
        patience = Patience(self.options.retry_ms)
        while position < wanted.end:
            endpoint = self._endpoint(patience)
            asked_from = position
            try:
                with closing(self._pages(endpoint, wanted, position, fields)) as pages:
                    for page in pages:
                        position = _end_of(page, wanted, position)
                        patience.progressed()
                        yield page
                if position == asked_from:  # an end that the broker caps at where the queue ends
                    raise OffsetGoneError(wanted.start, position)
            except (grpc.RpcError, _PassingError) as error:
                patience.failed(
                    f"ReadQueue of {wanted.topic} queue {wanted.queue_id} at {endpoint}",
                    _reason(error),
                )

    def _pages(
        self, endpoint: str, wanted: QueueRange, position: int, fields: list[str]
    ) -> Generator[queue_pb2.ReadQueuePage]:
        """One call. Its deadline covers the whole stream, which is then simply taken up again."""
        request = queue_pb2.ReadQueueRequest(
            topic=wanted.topic,
            epoch=wanted.epoch,
            queue_id=wanted.queue_id,
            start_offset=position,
            end_offset=wanted.end,
            page_rows_max=self.options.page_rows_max,
            page_bytes_max=self.options.page_bytes_max,
            columns=fields,
        )
        call = self._stub(endpoint).ReadQueue(
            request,
            timeout=self.options.request_timeout_ms / 1_000,
            metadata=self._signature(),
        )
        try:
            for page in call:
                _check_page(page)
                if page.rows:
                    yield page
        finally:
            call.cancel()

    def _stub(self, endpoint: str) -> Any:
        return _stub(os.getpid(), endpoint, self.options.tls, self.options.ca)

    def _signature(self) -> tuple[tuple[str, str], ...]:
        if not self.options.access_key:
            return ()
        return Credentials(self.options.access_key, self.options.secret_key).headers()

    def _endpoint(self, patience: Patience) -> str:
        return self.options.endpoints[patience.failure_count % len(self.options.endpoints)]


@lru_cache(maxsize=8)
def _stub(pid: int, endpoint: str, tls: bool, ca: bytes) -> Any:
    """By process: a forked worker never touches a channel of its parent."""
    if tls:
        trusted = grpc.ssl_channel_credentials(ca or None)
        channel = grpc.secure_channel(endpoint, trusted, options=_CHANNEL_OPTIONS)
    else:
        channel = grpc.insecure_channel(endpoint, options=_CHANNEL_OPTIONS)
    return queue_pb2_grpc.QueuesStub(channel)


def _ends(answer: queue_pb2.DescribeQueuesResponse) -> Ends:
    _require_ok(answer.status)
    ends = {}
    for topic in answer.topics:
        if topic.status.code == Code.TOPIC_NOT_FOUND:
            continue
        _require_ok(topic.status)
        queues = {
            queue.queue_id: QueueEnds(queue.earliest_offset, queue.next_offset, queue.offset_at)
            for queue in topic.queues
        }
        ends[topic.topic] = TopicEnds(topic.epoch, queues)
    return ends


def _check_page(page: queue_pb2.ReadQueuePage) -> None:
    if page.status.code == Code.ILLEGAL_OFFSET:
        raise OffsetGoneError(page.earliest_offset, page.next_offset)
    if page.status.code in (Code.TOPIC_NOT_FOUND, Code.PRECONDITION_FAILED):
        raise TopicGoneError
    _require_ok(page.status)


def _end_of(page: queue_pb2.ReadQueuePage, wanted: QueueRange, position: int) -> int:
    """The offset after a page that begins at `position`."""
    first, last = page.rows[0].queue_offset, page.rows[-1].queue_offset
    if first != position or last - first + 1 != len(page.rows) or last >= wanted.end:
        raise ProtocolError(
            f"topic {wanted.topic} queue {wanted.queue_id}: rows from {position} to {wanted.end} "
            f"were asked for, {len(page.rows)} rows from {first} to {last} came"
        )
    return last + 1


def _require_ok(status: definition_pb2.Status) -> None:
    if status.code == Code.OK:
        return
    name = Code.Name(status.code) if status.code in Code.values() else f"code {status.code}"
    text = f"{name} {status.message}"
    if status.code in _PASSING_ANSWER:
        raise _PassingError(text)
    if status.code == Code.TOPIC_NOT_FOUND:
        raise TopicNotFoundError(status.message)
    raise BrokerRefusedError(text)


def _reason(error: Exception) -> str:
    """Why a call failed, if it is worth another try.

    Raises:
        BrokerRefusedError: it is not.
    """
    if not isinstance(error, grpc.RpcError):
        return str(error)
    code, details = error.code(), error.details()
    if code in _PASSING_CALL:
        return f"{code.name} {details}"
    hint = "; is this a LaterMQ broker?" if code is grpc.StatusCode.UNIMPLEMENTED else ""
    raise BrokerRefusedError(f"{code.name} {details}{hint}") from error
