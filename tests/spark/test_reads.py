"""latermq.spark.queue_client and reader against a server that breaks off, hangs, loses and refuses.

No Spark: these are the calls that its planner and workers make.
"""

import logging
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import grpc
import pytest

pytest.importorskip("pyarrow")

from latermq.spark.errors import (
    BrokerRefusedError,
    BrokerUnreachableError,
    DataLossError,
    ProtocolError,
)
from latermq.spark.options import Options, Subscription
from latermq.spark.queue_client import QueueClient
from latermq.spark.ranges import QueueEnds, QueueRange, TopicEnds
from latermq.spark.reader import read
from latermq_proto.apache.rocketmq.v2.definition_pb2 import Code, Status
from support.queue_server import QueueServer

NAMES = ("queue_offset", "body")
ROW_COUNT = 100
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def server() -> Iterator[QueueServer]:
    with QueueServer() as server:
        server.shelf.create("t")
        server.shelf.append("t", 0, ROW_COUNT)
        yield server


def options(*endpoints: str, **changed: Any) -> Options:
    subscription = Subscription(topics=("t", "u"))
    given = {"retry_ms": 2_000, "request_timeout_ms": 5_000, "page_rows_max": 10} | changed
    return Options(endpoints=endpoints, subscription=subscription, **given)


def whole(server: QueueServer) -> QueueRange:
    return QueueRange("t", server.shelf.topics["t"].epoch, 0, 0, ROW_COUNT)


def rows_of(server: QueueServer, **changed: Any) -> list[str]:
    return list(row_by_row(QueueClient(options(server.endpoint, **changed)), whole(server)))


def row_by_row(client: QueueClient, *ranges: QueueRange) -> Iterator[str]:
    for batch in read(client, NAMES, ranges):
        yield from (body.decode() for body in batch.column("body").to_pylist())


ALL_ROWS = [f"row {number}" for number in range(ROW_COUNT)]


def test_ends(server: QueueServer) -> None:
    assert QueueClient(options(server.endpoint)).describe(at_ms=2) == {
        "t": TopicEnds(f"{1:016x}", {0: QueueEnds(0, ROW_COUNT, ROW_COUNT)})
    }


def test_a_stream_that_breaks_off_is_taken_up_at_the_next_row(server: QueueServer) -> None:
    server.break_after_pages = [3, 0, 0, 1]
    assert rows_of(server) == ALL_ROWS
    assert [call.start_offset for call in server.calls] == [0, 30, 30, 30, 40]


def test_only_what_is_wanted_is_asked_for(server: QueueServer) -> None:
    client = QueueClient(options(server.endpoint, page_bytes_max=77))
    assert sum(batch.num_rows for batch in read(client, ("queue_id",), [whole(server)])) == 100
    assert list(server.calls[-1].columns) == ["queue_offset"]
    assert (server.calls[-1].page_rows_max, server.calls[-1].page_bytes_max) == (10, 77)


def test_a_reader_that_stops_early_stops_the_broker_too(server: QueueServer) -> None:
    pages: list[int] = []

    def slowly(number: int) -> None:
        pages.append(number)
        time.sleep(0.01)

    server.before_page = slowly
    client = QueueClient(options(server.endpoint, page_rows_max=1))
    batches = read(client, NAMES, [whole(server)])
    assert next(batches).num_rows == 1
    batches.close()
    time.sleep(0.1)
    page_count = len(pages)
    time.sleep(0.1)
    assert len(pages) == page_count < ROW_COUNT


def test_a_call_that_hangs_is_made_again(server: QueueServer) -> None:
    over = threading.Event()

    def hang_once(_: int) -> None:
        if len(server.calls) == 1:
            over.wait(5)

    server.before_page = hang_once
    assert rows_of(server, request_timeout_ms=300) == ALL_ROWS
    assert len(server.calls) == 2
    over.set()


def test_a_consumer_slower_than_the_deadline_loses_nothing(server: QueueServer) -> None:
    client = QueueClient(options(server.endpoint, request_timeout_ms=100, page_rows_max=40))
    rows = []
    for batch in read(client, NAMES, [whole(server)]):
        time.sleep(0.15)
        rows += batch.column("body").to_pylist()
    assert [row.decode() for row in rows] == ALL_ROWS


def test_the_next_endpoint_is_tried(server: QueueServer) -> None:
    client = QueueClient(options(NOWHERE, server.endpoint))
    assert list(row_by_row(client, whole(server))) == ALL_ROWS


def test_a_broker_that_comes_back_in_time(server: QueueServer) -> None:
    endpoint = server.endpoint
    server.__exit__()
    client = QueueClient(options(endpoint, retry_ms=10_000))
    later = threading.Timer(0.5, lambda: again.__enter__())
    again = QueueServer(server.shelf, listen=endpoint)
    later.start()
    try:
        assert client.describe()["t"].queues[0].next == ROW_COUNT
    finally:
        later.join()
        again.__exit__()


def test_a_broker_that_stays_away() -> None:
    client = QueueClient(options(NOWHERE, retry_ms=300))
    with pytest.raises(
        BrokerUnreachableError,
        match=r"^LATERMQ_UNREACHABLE: DescribeQueues at 127\.0\.0\.1:1 failed for 0\.[3-9] s "
        r"\(UNAVAILABLE .*the checkpoint is safe",
    ):
        client.describe()
    with pytest.raises(BrokerUnreachableError, match="ReadQueue of t queue 0 at 127"):
        list(row_by_row(client, QueueRange("t", "", 0, 0, 1)))


def test_a_busy_broker_is_asked_again(server: QueueServer) -> None:
    server.answer = Status(code=Code.TOO_MANY_REQUESTS, message="slow down")
    threading.Timer(0.3, lambda: setattr(server, "answer", None)).start()
    assert rows_of(server) == ALL_ROWS


def test_a_refusal_is_final(server: QueueServer) -> None:
    server.answer = Status(code=Code.FORBIDDEN, message="not you")
    with pytest.raises(BrokerRefusedError, match=r"^LATERMQ_REFUSED: FORBIDDEN not you$"):
        rows_of(server)
    assert len(server.calls) == 1


def test_another_kind_of_server_is_told_apart() -> None:
    other = grpc.server(ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    with pytest.raises(BrokerRefusedError, match="is this a LaterMQ broker"):
        QueueClient(options(f"127.0.0.1:{port}")).describe()
    other.stop(None).wait()


def test_a_page_with_a_gap_is_refused(server: QueueServer) -> None:
    rows = row_by_row(QueueClient(options(server.endpoint)), whole(server))
    server.before_page = lambda page: setattr(server, "shift", 5 if page >= 3 else 0)
    assert next(rows) == "row 0"
    with pytest.raises(
        ProtocolError, match=r"to 100 were asked for, 10 rows from \d*5 to \d*4 came"
    ):
        list(rows)


class TestLoss:
    """What is lost between planning and reading."""

    def lose_at_page(self, server: QueueServer, number: int, lose: Any) -> None:
        lost = threading.Event()

        def before_page(page: int) -> None:
            if page == number and not lost.is_set():
                lost.set()
                lose()

        server.before_page = before_page

    @pytest.mark.parametrize("earliest", [60, ROW_COUNT])
    def test_retention_wins_the_race(
        self, server: QueueServer, earliest: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.lose_at_page(server, 3, lambda: server.shelf.retain("t", 0, earliest))
        planned = whole(server)
        client = QueueClient(options(server.endpoint))
        rows = row_by_row(client, planned)
        assert [next(rows) for _ in range(30)] == ALL_ROWS[:30]
        text = f"topic t queue 0: offset 30 .* oldest retained is {earliest}: {earliest - 30} mess"
        with pytest.raises(DataLossError, match=rf"^LATERMQ_DATA_LOSS: {text}"):
            next(rows)
        lenient = QueueClient(replace(client.options, fail_on_data_loss=False))
        with caplog.at_level(logging.WARNING, "latermq.spark"):
            assert list(row_by_row(lenient, planned)) == ALL_ROWS[earliest:]

    def test_a_topic_made_anew(self, server: QueueServer) -> None:
        planned = whole(server)
        self.lose_at_page(server, 3, lambda: server.shelf.create("t"))
        client = QueueClient(options(server.endpoint))
        with pytest.raises(DataLossError, match="topic t does not exist any more"):
            list(row_by_row(client, planned))
        lenient = QueueClient(replace(client.options, fail_on_data_loss=False))
        assert list(row_by_row(lenient, planned)) == []

    @pytest.mark.parametrize("end", [30, 50])
    def test_a_log_that_lost_its_end(self, server: QueueServer, end: int) -> None:
        planned = whole(server)
        self.lose_at_page(server, 3, lambda: server.shelf.truncate("t", 0, end))
        client = QueueClient(options(server.endpoint))
        with pytest.raises(DataLossError, match=f"ends at offset {end}, 100 was"):
            list(row_by_row(client, planned))
        lenient = QueueClient(replace(client.options, fail_on_data_loss=False))
        assert list(row_by_row(lenient, planned)) == ALL_ROWS[:end]


def test_a_client_that_was_used_can_be_pickled(server: QueueServer) -> None:
    client = QueueClient(options(server.endpoint))
    client.describe()
    assert pickle.loads(pickle.dumps(client)).describe() == client.describe()
