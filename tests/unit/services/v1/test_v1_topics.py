"""latermq.v1 Topics (topic.proto)."""

from collections.abc import Iterator

import pytest

from latermq_proto.apache.rocketmq.v2.definition_pb2 import Code
from latermq_proto.latermq.v1 import topic_pb2
from support.v1_rig import V1Rig

TOPICS = "/latermq.v1.Topics"


@pytest.fixture
def rig() -> Iterator[V1Rig]:
    rig = V1Rig(queues=2)
    yield rig
    rig.close()


def create(rig: V1Rig, name: str, **fields: int) -> topic_pb2.TopicResponse:
    request = topic_pb2.CreateTopicRequest(name=name, **fields)
    return rig.call(f"{TOPICS}/CreateTopic", request, topic_pb2.TopicResponse)


def get(rig: V1Rig, name: str) -> topic_pb2.TopicResponse:
    request = topic_pb2.GetTopicRequest(name=name)
    return rig.call(f"{TOPICS}/GetTopic", request, topic_pb2.TopicResponse)


def names(rig: V1Rig, **fields: object) -> tuple[list[str], str]:
    request = topic_pb2.ListTopicsRequest(**fields)  # type: ignore[arg-type]
    page = rig.call(f"{TOPICS}/ListTopics", request, topic_pb2.ListTopicsResponse)
    assert page.status.code == Code.OK, page.status
    return [topic.name for topic in page.topics], page.next_page_token


def test_a_topic_is_mixed_and_has_the_default_queues_unless_told(rig: V1Rig) -> None:
    made = create(rig, "orders")
    assert made.status.code == Code.OK
    assert (made.topic.type, made.topic.queue_count) == (topic_pb2.MIXED, 2)
    assert made.topic.created_at_ms == rig.now_ms
    assert len(made.topic.queues) == 2


def test_creating_waits_for_the_log(rig: V1Rig) -> None:
    waits = rig.committer.waits
    create(rig, "orders")
    assert rig.committer.waits == waits + 1


def test_the_same_again_is_ok_and_another_is_refused(rig: V1Rig) -> None:
    first = create(rig, "orders", type=topic_pb2.NORMAL, queue_count=3)
    assert create(rig, "orders", type=topic_pb2.NORMAL, queue_count=3) == first
    assert create(rig, "orders", type=topic_pb2.NORMAL) == first
    for other in ({"type": topic_pb2.DELAY}, {"type": topic_pb2.NORMAL, "queue_count": 4}):
        assert create(rig, "orders", **other).status.code == Code.BAD_REQUEST


@pytest.mark.parametrize(
    ("name", "fields", "code"),
    [
        ("", {}, Code.ILLEGAL_TOPIC),
        ("a b", {}, Code.ILLEGAL_TOPIC),
        ("x" * 128, {}, Code.ILLEGAL_TOPIC),
        ("TBW102", {}, Code.ILLEGAL_TOPIC),
        ("%DLQ%billing", {}, Code.ILLEGAL_TOPIC),
        ("%RETRY%billing", {}, Code.ILLEGAL_TOPIC),
        ("orders", {"type": 99}, Code.BAD_REQUEST),
        ("orders", {"queue_count": -1}, Code.BAD_REQUEST),
        ("orders", {"queue_count": 65}, Code.BAD_REQUEST),
    ],
)
def test_what_cannot_be_created(rig: V1Rig, name: str, fields: dict[str, int], code: Code) -> None:
    assert create(rig, name, **fields).status.code == code


def test_altering_grows_and_never_shrinks(rig: V1Rig) -> None:
    create(rig, "orders")

    def alter(**fields: int) -> topic_pb2.TopicResponse:
        request = topic_pb2.AlterTopicRequest(name="orders", **fields)
        return rig.call(f"{TOPICS}/AlterTopic", request, topic_pb2.TopicResponse)

    assert alter(queue_count=4).topic.queue_count == 4
    assert alter(type=topic_pb2.NORMAL).topic.type == topic_pb2.NORMAL
    assert alter(queue_count=3).status.code == Code.BAD_REQUEST
    assert alter(type=topic_pb2.LITE).status.code == Code.BAD_REQUEST
    assert get(rig, "orders").topic.queue_count == 4


def test_showing_tells_what_it_holds_and_who_read_it(rig: V1Rig) -> None:
    rig.send_message("m-1")
    rig.send_message("m-2")
    rig.send_message("m-3", wait_ms=60_000)
    rig.make_group()
    rig.receive()
    topic = get(rig, "orders").topic
    assert (topic.message_count, topic.delayed_count) == (2, 1)
    assert sum(queue.next_offset for queue in topic.queues) == 2
    assert list(topic.consumer_groups) == ["billing"]


def test_listing_is_by_name_in_pages_and_shows_internal_ones_only_if_asked(rig: V1Rig) -> None:
    for name in ("c", "a", "b"):
        create(rig, name)
    rig.die("m-1", topic="a")
    first, token = names(rig, page_size=2)
    assert first == ["a", "b"]
    create(rig, "bb")  # between two pages: a listing does not skip or repeat for it
    assert names(rig, page_size=2, page_token=token) == (["bb", "c"], "")
    assert names(rig, include_internal=True)[0] == ["%DLQ%billing", "a", "b", "bb", "c"]


@pytest.mark.parametrize("token", ["?", "w4", "x" * 2000])
def test_a_foreign_page_token_is_refused(rig: V1Rig, token: str) -> None:
    request = topic_pb2.ListTopicsRequest(page_token=token)
    page = rig.call(f"{TOPICS}/ListTopics", request, topic_pb2.ListTopicsResponse)
    assert page.status.code == Code.BAD_REQUEST


def test_deleting_takes_it_all_and_another_of_the_name_has_another_epoch(rig: V1Rig) -> None:
    epoch = create(rig, "orders").topic.epoch
    rig.send_message("m-1")
    request = topic_pb2.DeleteTopicRequest(name="orders")

    def delete() -> topic_pb2.DeleteTopicResponse:
        return rig.call(f"{TOPICS}/DeleteTopic", request, topic_pb2.DeleteTopicResponse)

    assert delete().status.code == Code.OK
    assert delete().status.code == Code.TOPIC_NOT_FOUND
    again = create(rig, "orders").topic
    assert again.message_count == 0
    assert again.epoch != epoch
