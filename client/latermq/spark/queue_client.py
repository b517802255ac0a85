"""The two calls of `latermq.v1.Queues`, made from drivers and from Spark's reused workers.

Of a cluster every shard is asked; a topic in a shard has a name of its own (`places`).

No connection exists before the first call: Spark forks its workers and pickles its readers, and a
connection survives neither. Afterwards each process keeps its own, over batches and queries.

A call that fails for a passing reason is made again, at the next endpoint, for `retryFor`.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import lru_cache
from typing import Final

from latermq import admin
from latermq._values.tls import Tls
from latermq.errors import LaterMQError
from latermq.spark.errors import BrokerRefusedError, ProtocolError, TopicNotFoundError
from latermq.spark.options import Options
from latermq.spark.places import place_of, shard_of, topic_of
from latermq.spark.ranges import Ends, QueueEnds, QueueRange, TopicEnds
from latermq.spark.retry import Patience
from latermq_h2.grpc_code import GrpcCode
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import cluster_pb2, queue_pb2

Code = definition_pb2.Code

BROKERS_MAX: Final = 256  # connections that a process keeps
_PASSING_CALL: Final = {
    GrpcCode.ABORTED,
    GrpcCode.CANCELLED,
    GrpcCode.DEADLINE_EXCEEDED,
    GrpcCode.INTERNAL,
    GrpcCode.RESOURCE_EXHAUSTED,
    GrpcCode.UNAVAILABLE,
    GrpcCode.UNKNOWN,
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
        """Ask what the queues of the subscription hold; topics that do not exist are left out.

        at_ms: > 0: fill `QueueEnds.at`.

        Raises:
            BrokerUnreachableError, BrokerRefusedError.
        """
        subscription = self.options.subscription
        request = queue_pb2.DescribeQueuesRequest(
            topics=subscription.topics, topic_pattern=subscription.pattern, at_ms=at_ms, lives=True
        )
        patience = Patience(self.options.retry_ms)
        while True:
            endpoint = self._endpoint(patience)
            try:
                ends: dict[str, TopicEnds] = {}
                for shard, address in self._shards(endpoint):
                    broker = self._broker(address)
                    timeout_s = self.options.request_timeout_ms / 1_000
                    answer = broker.ask(broker.queues.DescribeQueues, request, timeout_s=timeout_s)
                    for topic, held in _ends(answer).items():
                        ends[place_of(topic, shard)] = held
                return ends
            except (LaterMQError, _PassingError) as error:
                patience.failed(f"DescribeQueues at {endpoint}", _reason(error))

    def read(self, wanted: QueueRange, fields: list[str]) -> Iterator[queue_pb2.ReadQueuePage]:
        """Yield the rows of a range in order, page by page, each row once, each page with rows.

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
            except (LaterMQError, _PassingError) as error:
                patience.failed(
                    f"ReadQueue of {wanted.topic} queue {wanted.queue_id} at {endpoint}",
                    _reason(error),
                )

    def _pages(
        self, endpoint: str, wanted: QueueRange, position: int, fields: list[str]
    ) -> Generator[queue_pb2.ReadQueuePage]:
        """Make one call. Its deadline covers the whole stream, which is then taken up again."""
        request = queue_pb2.ReadQueueRequest(
            topic=topic_of(wanted.topic),
            epoch=wanted.epoch,
            queue_id=wanted.queue_id,
            start_offset=position,
            end_offset=wanted.end,
            page_rows_max=self.options.page_rows_max,
            page_bytes_max=self.options.page_bytes_max,
            columns=fields,
        )
        broker = self._broker(dict(self._shards(endpoint)).get(shard_of(wanted.topic), endpoint))
        timeout_s = self.options.request_timeout_ms / 1_000
        with closing(broker.stream(broker.queues.ReadQueue, request, timeout_s=timeout_s)) as pages:
            for page in pages:
                _check_page(page)
                if page.rows:
                    yield page

    def _broker(self, endpoint: str) -> admin.Admin:
        return _broker(os.getpid(), endpoint, self.options.endpoints, *self._identity())

    def _shards(self, endpoint: str) -> tuple[tuple[int, str], ...]:
        """List each shard of the broker's cluster, and where it is."""
        return _shards(os.getpid(), endpoint, self.options.endpoints, *self._identity())

    def _identity(self) -> tuple[bool, bytes, str, str]:
        options = self.options
        return options.tls, options.ca, options.access_key, options.secret_key

    def _endpoint(self, patience: Patience) -> str:
        return self.options.endpoints[patience.failure_count % len(self.options.endpoints)]


@lru_cache(maxsize=BROKERS_MAX)
def _broker(
    pid: int,
    endpoint: str,
    named: tuple[str, ...],
    tls: bool,
    ca: bytes,
    access_key: str,
    secret: str,
) -> admin.Admin:
    """Connect once a process: a forked worker never touches a connection of its parent."""
    security = Tls(ca=ca) if ca else tls
    return admin.connect(
        endpoint, access_key=access_key, secret=secret, tls=security, named_by=named
    )


@lru_cache(maxsize=8)
def _shards(
    pid: int,
    endpoint: str,
    named: tuple[str, ...],
    tls: bool,
    ca: bytes,
    access_key: str,
    secret: str,
) -> tuple[tuple[int, str], ...]:
    """Ask once in a process: how many there are never changes."""
    broker = _broker(pid, endpoint, named, tls, ca, access_key, secret)
    request = cluster_pb2.DescribeClusterRequest(endpoints=broker.access_point)
    try:
        shards = broker.call(broker.cluster.DescribeCluster, request).shards
    except LaterMQError as error:
        if error.grpc_code != GrpcCode.UNIMPLEMENTED:
            raise
        return ((0, endpoint),)
    return tuple((shard.number, str(admin.read_endpoints(shard.endpoints))) for shard in shards)


def _ends(answer: queue_pb2.DescribeQueuesResponse) -> Ends:
    _require_ok(answer.status)
    ends = {}
    for topic in answer.topics:
        if topic.status.code == Code.TOPIC_NOT_FOUND:
            continue
        _require_ok(topic.status)
        queues = {
            queue.queue_id: QueueEnds(
                queue.earliest_offset,
                queue.next_offset,
                queue.offset_at,
                tuple((begin.offset, begin.life) for begin in queue.lives),
            )
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
    """Check a page that begins at `position`; return the offset after it. Raises ProtocolError."""
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
    """Say why a call failed, if it is worth another try.

    Raises:
        BrokerRefusedError: it is not.
    """
    if not isinstance(error, LaterMQError):
        return str(error)
    if not error.grpc_code:
        raise BrokerRefusedError(str(error)) from error
    code, details = GrpcCode(error.grpc_code), error.grpc_text
    if code in _PASSING_CALL:
        return f"{code.name} {details}"
    hint = "; is this a LaterMQ broker?" if code is GrpcCode.UNIMPLEMENTED else ""
    raise BrokerRefusedError(f"{code.name} {details}{hint}") from error
