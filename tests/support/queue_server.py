"""`latermq.v1.Queues` over a QueueShelf, in this process: what a real broker does not do on call.

A call may be refused, broken off after some pages, or left hanging; what is on the shelf may change
in the middle of a read.
"""

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

import grpc

from latermq_proto.apache.rocketmq.v2.definition_pb2 import Code, Status
from latermq_proto.latermq.v1 import queue_pb2, queue_pb2_grpc
from support.queue_shelf import QueueShelf, ShelvedTopic

PAGE_ROWS_MAX: Final = 2_000


class QueueServer(queue_pb2_grpc.QueuesServicer):
    """Serves on a free port while its block lasts."""

    def __init__(self, shelf: QueueShelf | None = None, listen: str = "127.0.0.1:0") -> None:
        self.shelf = shelf or QueueShelf()
        self.lock = threading.Lock()  # hold it to change the shelf while a query runs
        self.calls: list[Any] = []  # requests, as they came
        self.break_after_pages: list[int] = []  # one for each coming ReadQueue, from the front
        self.before_page: Callable[[int], None] = lambda number: None
        self.answer: Status | None = None  # instead of every answer
        self.shift = 0  # added to the offset that is read: a broken broker
        self._server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        queue_pb2_grpc.add_QueuesServicer_to_server(self, self._server)
        port = self._server.add_insecure_port(listen)
        self.endpoint = f"{listen.rpartition(':')[0]}:{port}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(grace=None).wait()

    def DescribeQueues(  # noqa: N802
        self, request: queue_pb2.DescribeQueuesRequest, context: grpc.ServicerContext
    ) -> queue_pb2.DescribeQueuesResponse:
        self.calls.append(request)
        response = queue_pb2.DescribeQueuesResponse(status=self.answer or Status(code=Code.OK))
        with self.lock:
            if request.topic_pattern:
                pattern = re.compile(request.topic_pattern)
                ends = self.shelf.describe(
                    lambda topic: pattern.fullmatch(topic) is not None, request.at_ms
                )
                names = sorted(ends)
            else:
                ends = self.shelf.describe(set(request.topics).__contains__, request.at_ms)
                names = list(request.topics)
        for name in names:
            topic = response.topics.add(topic=name)
            held = ends.get(name)
            topic.status.code = Code.TOPIC_NOT_FOUND if held is None else Code.OK
            if held is not None:
                topic.epoch = held.epoch
                for queue_id, (earliest, following, at, _) in held.queues.items():
                    topic.queues.add(
                        queue_id=queue_id,
                        earliest_offset=earliest,
                        next_offset=following,
                        offset_at=at,
                    )
        return response

    def ReadQueue(  # noqa: N802
        self, request: queue_pb2.ReadQueueRequest, context: grpc.ServicerContext
    ) -> Iterator[queue_pb2.ReadQueuePage]:
        self.calls.append(request)
        pages_left = self.break_after_pages.pop(0) if self.break_after_pages else -1
        position = request.start_offset
        number = 0
        while position < request.end_offset:
            if pages_left == number:
                context.abort(grpc.StatusCode.UNAVAILABLE, "broken off")
            self.before_page(number)
            with self.lock:
                page = self._page(request, position + self.shift)
            yield page
            if not page.rows:
                return
            position += len(page.rows)
            number += 1

    def _page(self, request: queue_pb2.ReadQueueRequest, position: int) -> queue_pb2.ReadQueuePage:
        if self.answer is not None:
            return queue_pb2.ReadQueuePage(status=self.answer)
        topic: ShelvedTopic | None = self.shelf.topics.get(request.topic)
        if topic is None:
            return queue_pb2.ReadQueuePage(status=Status(code=Code.TOPIC_NOT_FOUND))
        if request.epoch not in ("", topic.epoch):
            return queue_pb2.ReadQueuePage(status=Status(code=Code.PRECONDITION_FAILED))
        queue = topic.queues[request.queue_id]
        page = queue_pb2.ReadQueuePage(
            status=Status(code=Code.OK),
            first_offset=position,
            earliest_offset=queue.earliest,
            next_offset=queue.next,
        )
        if not queue.earliest <= position <= queue.next:
            page.status.code = Code.ILLEGAL_OFFSET
            return page
        end = min(
            position + (request.page_rows_max or PAGE_ROWS_MAX), request.end_offset, queue.next
        )
        for offset in range(position, end):
            index = offset - queue.earliest
            page.rows.add(
                queue_offset=offset,
                message_id=f"{request.topic}-{request.queue_id}-{offset}",
                message_type="normal",
                body=queue.rows[index].encode(),
                body_encoding="identity",
                store_timestamp=queue.times_ms[index],
            )
        return page
