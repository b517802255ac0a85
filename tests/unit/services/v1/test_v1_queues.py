"""latermq.v1 Queues (queue.proto)."""

from collections.abc import Iterator
from typing import Any

import pytest

from latermq_broker.engine.state.model import Failure
from latermq_broker.services.v1.v1_queues import PAGE_ROWS_MAX
from latermq_broker.services.v1.v1_rows import COLUMNS
from latermq_proto.apache.rocketmq.v2.definition_pb2 import Code
from latermq_proto.latermq.v1 import queue_pb2 as pb
from support.v1_rig import V1Rig

QUEUES = "/latermq.v1.Queues"


@pytest.fixture
def rig() -> Iterator[V1Rig]:
    rig = V1Rig()
    yield rig
    rig.close()


def describe(rig: V1Rig, *topics: str, **fields: Any) -> Any:
    request = pb.DescribeQueuesRequest(topics=topics, **fields)
    return rig.call(f"{QUEUES}/DescribeQueues", request, pb.DescribeQueuesResponse)


def read(rig: V1Rig, start: int = 0, end: int = 1 << 40, **fields: Any) -> list[pb.ReadQueuePage]:
    request = pb.ReadQueueRequest(
        topic=fields.pop("topic", "orders"), start_offset=start, end_offset=end, **fields
    )
    return rig.stream(f"{QUEUES}/ReadQueue", request, pb.ReadQueuePage)


def rows(pages: list[pb.ReadQueuePage]) -> list[pb.QueueRow]:
    assert all(page.status.code == Code.OK for page in pages), pages[-1].status
    return [row for page in pages for row in page.rows]


def test_the_columns_are_those_of_the_message() -> None:
    assert {field.name for field in pb.QueueRow.DESCRIPTOR.fields} == COLUMNS


def test_ends_of_many_topics_in_one_call(rig: V1Rig) -> None:
    rig.send_message("m-1")
    rig.send_message("m-2", topic="mails")
    answer = describe(rig, "orders", "nothing", "mails")
    assert answer.status.code == Code.OK
    orders, nothing, mails = answer.topics
    assert (orders.topic, orders.status.code) == ("orders", Code.OK)
    assert (orders.queues[0].earliest_offset, orders.queues[0].next_offset) == (0, 1)
    assert nothing.status.code == Code.TOPIC_NOT_FOUND
    assert orders.epoch != mails.epoch != ""


def test_nothing_is_told_before_its_sender_is_promised_it(rig: V1Rig) -> None:
    rig.send_message("m-1")
    for ask in (lambda: describe(rig, "orders"), lambda: read(rig)):
        waits = rig.committer.waits
        ask()
        assert rig.committer.waits == waits + 1


def test_the_offset_at_a_time(rig: V1Rig) -> None:
    rig.send_message("m-0")
    rig.advance(1000)
    rig.send_message("m-1")
    ends = describe(rig, "orders", at_ms=rig.now_ms).topics[0].queues[0]
    assert ends.offset_at == 1
    assert describe(rig, "orders", at_ms=rig.now_ms + 1).topics[0].queues[0].offset_at == 2
    assert describe(rig, "orders", at_ms=1).topics[0].queues[0].offset_at == 0


def test_a_pattern_matches_whole_names(rig: V1Rig) -> None:
    for name in ("orders", "orders-eu", "my-orders"):
        rig.send_message("m", topic=name)
    answer = describe(rig, topic_pattern="orders(-eu|-us)?")
    assert [ends.topic for ends in answer.topics] == ["orders", "orders-eu"]


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "x" * 257])
def test_a_pattern_that_is_none(rig: V1Rig, pattern: str) -> None:
    assert describe(rig, topic_pattern=pattern).status.code == Code.BAD_REQUEST


@pytest.mark.parametrize("pattern", ["(x+)+y", "(x|xx)*y", ".*" * 8 + "y"])
def test_a_pattern_that_backtracking_would_not_end(rig: V1Rig, pattern: str) -> None:
    rig.send_message("m", topic="x" * 60)
    answer = describe(rig, topic_pattern=pattern)
    assert (answer.status.code, len(answer.topics)) == (Code.OK, 0)


def test_either_names_or_a_pattern(rig: V1Rig) -> None:
    assert describe(rig).status.code == Code.BAD_REQUEST
    assert describe(rig, "orders", topic_pattern="o").status.code == Code.BAD_REQUEST


def test_dead_letters_that_may_come_count_as_an_empty_topic(rig: V1Rig) -> None:
    rig.make_group()
    existing, unknown = describe(rig, "%DLQ%billing", "%DLQ%nobody").topics
    assert (existing.status.code, existing.epoch) == (Code.OK, "")
    assert [(queue.queue_id, queue.next_offset) for queue in existing.queues] == [(0, 0)]
    assert unknown.status.code == Code.TOPIC_NOT_FOUND
    (page,) = read(rig, topic="%DLQ%billing")
    assert (page.status.code, len(page.rows)) == (Code.OK, 0)
    (page,) = read(rig, topic="%DLQ%billing", start=1)
    assert page.status.code == Code.ILLEGAL_OFFSET
    (page,) = read(rig, topic="%DLQ%billing", epoch="ff")
    assert page.status.code == Code.PRECONDITION_FAILED


def test_a_row_has_all_the_message_has(rig: V1Rig) -> None:
    rig.send_message("m-1", tag="t", keys=["a", "b"], properties={"x": "1"}, body=b"\x00\xff")
    (row,) = rows(read(rig))
    assert (row.queue_offset, row.message_id, row.message_type) == (0, "m-1", "normal")
    assert (row.tag, list(row.keys), dict(row.properties)) == ("t", ["a", "b"], {"x": "1"})
    assert (row.body, row.body_encoding) == (b"\x00\xff", "identity")
    assert (row.born_timestamp, row.store_timestamp) == (rig.now_ms - 5, rig.now_ms)
    assert (row.born_host, row.consumer_group, row.reason) == ("host-1", "", "")


def test_a_dead_letters_row_tells_why(rig: V1Rig) -> None:
    rig.die("m-1", Failure("TimeoutError", "no answer", "00ff", "stack"))
    (row,) = rows(read(rig, topic="%DLQ%billing"))
    assert (row.consumer_group, row.origin_topic, row.origin_message_id) == (
        "billing", "orders", "m-1"
    )  # fmt: skip
    assert (row.reason, row.attempt_count, row.dead_at) == ("attempts_exhausted", 3, rig.now_ms)
    assert (row.failure_class, row.failure_text) == ("TimeoutError", "no answer")
    assert [attempt.stack_hash for attempt in row.attempts] == ["00ff"] * 3
    assert not any(attempt.stack for attempt in row.attempts)


def test_what_a_producer_sent_to_a_dead_letter_topic_has_only_its_group(rig: V1Rig) -> None:
    rig.make_group()
    rig.send_message("m-1", topic="%DLQ%billing")
    (row,) = rows(read(rig, topic="%DLQ%billing"))
    assert (row.message_id, row.consumer_group, row.reason) == ("m-1", "billing", "")


def test_columns_left_out_do_not_travel(rig: V1Rig) -> None:
    rig.send_message("m-1", tag="t", keys=["a"], properties={"x": "1"})
    (row,) = rows(read(rig, columns=["message_id"]))
    assert row == pb.QueueRow(queue_offset=0, message_id="m-1")
    (page,) = read(rig, columns=["message_id", "colour"])
    assert page.status.code == Code.BAD_REQUEST
    assert "colour" in page.status.message


def test_pages_are_bounded_by_rows_and_have_no_gap(rig: V1Rig) -> None:
    count = PAGE_ROWS_MAX + 500
    for number in range(count):
        rig.send_message(f"m-{number}")
    pages = read(rig)
    assert [len(page.rows) for page in pages] == [PAGE_ROWS_MAX, 500]
    assert [page.first_offset for page in pages] == [0, PAGE_ROWS_MAX]
    assert {(page.earliest_offset, page.next_offset) for page in pages} == {(0, count)}
    assert [row.queue_offset for row in rows(pages)] == list(range(count))
    assert [len(page.rows) for page in read(rig, 10, 25, page_rows_max=7)] == [7, 7, 1]


def test_pages_are_bounded_by_bytes_and_have_at_least_one_row(rig: V1Rig) -> None:
    for number in range(6):
        rig.send_message(f"m-{number}", body=bytes(10_000))
    assert [len(page.rows) for page in read(rig, page_bytes_max=25_000)] == [2, 2, 2]
    assert [len(page.rows) for page in read(rig, page_bytes_max=1)] == [1] * 6
    columns = ["message_id"]  # without the bodies all fit
    assert [len(page.rows) for page in read(rig, page_bytes_max=25_000, columns=columns)] == [6]


def test_the_same_request_gives_the_same_rows(rig: V1Rig) -> None:
    for number in range(5):
        rig.die(f"m-{number}", Failure("E", "x"))
    first = read(rig, 1, 4, topic="%DLQ%billing")
    rig.receive("reader", topic="%DLQ%billing")
    assert read(rig, 1, 4, topic="%DLQ%billing") == first


@pytest.mark.parametrize(
    ("start", "end", "wanted"), [(0, 0, []), (2, 1, []), (1, 2, [1]), (3, 9, []), (2, 99, [2])]
)
def test_ranges(rig: V1Rig, start: int, end: int, wanted: list[int]) -> None:
    for number in range(3):
        rig.send_message(f"m-{number}")
    pages = read(rig, start, end)
    assert len(pages) == 1
    assert [row.queue_offset for row in rows(pages)] == wanted


def test_past_the_end_is_an_error_that_tells_the_ends(rig: V1Rig) -> None:
    rig.send_message("m-1")
    (page,) = read(rig, 2)
    assert page.status.code == Code.ILLEGAL_OFFSET
    assert (page.earliest_offset, page.next_offset, len(page.rows)) == (0, 1, 0)


def test_another_epoch_is_another_topic(rig: V1Rig) -> None:
    rig.send_message("m-1")
    (page,) = read(rig, epoch="0123456789abcdef")
    assert page.status.code == Code.PRECONDITION_FAILED
    assert len(rows(read(rig, epoch=describe(rig, "orders").topics[0].epoch))) == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "nothing"}, Code.TOPIC_NOT_FOUND),
        ({"queue_id": 7}, Code.BAD_REQUEST),
        ({"start": -1}, Code.BAD_REQUEST),
        ({"page_rows_max": -1}, Code.BAD_REQUEST),
    ],
)
def test_what_cannot_be_read(rig: V1Rig, fields: dict[str, Any], code: Code) -> None:
    rig.send_message("m-1")
    (page,) = read(rig, **fields)
    assert (page.status.code, len(page.rows)) == (code, 0)
