"""latermq.v1 Messages: searches, their pages and refusals, and the life of a message."""

from collections.abc import Iterator

import pytest

from latermq_broker.delivery.filters.filter import hash64
from latermq_broker.services.v1 import v1_messages
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import message_pb2
from support.v1_rig import V1Rig

MESSAGES = "/latermq.v1.Messages"


@pytest.fixture
def rig() -> Iterator[V1Rig]:
    rig = V1Rig(queues=2)
    yield rig
    rig.close()


def find(rig: V1Rig, **fields: object) -> message_pb2.FindMessagesResponse:
    request = message_pb2.FindMessagesRequest(**fields)  # type: ignore[arg-type]
    return rig.call(f"{MESSAGES}/FindMessages", request, message_pb2.FindMessagesResponse)


def describe(rig: V1Rig, message_id: str, topic: str = "") -> message_pb2.DescribeMessageResponse:
    request = message_pb2.DescribeMessageRequest(message_id=message_id, topic=topic)
    return rig.call(f"{MESSAGES}/DescribeMessage", request, message_pb2.DescribeMessageResponse)


def every_page(rig: V1Rig, **fields: object) -> list[str]:
    ids: list[str] = []
    token = ""
    while True:
        page = find(rig, page_token=token, **fields)
        assert page.status.code == definition_pb2.OK, page.status.message
        ids += [each.message_id for each in page.messages]
        token = page.next_page_token
        if not token:
            return ids


@pytest.mark.parametrize("page_size", [0, 1, 3, 40])
def test_pages_are_whole_and_in_order(rig: V1Rig, page_size: int) -> None:
    for n in range(90):
        rig.send_message(f"m{n}", keys=("even" if n % 2 == 0 else "odd", f"k{n}"))
        rig.now_ms += 1
    begin = rig.now_ms - 90
    assert every_page(rig, topic="orders", begin_ms=1, page_size=page_size) == [
        f"m{n}" for n in range(90)
    ]
    assert every_page(rig, topic="orders", key="odd", page_size=page_size) == [
        f"m{n}" for n in range(89, 0, -2)
    ]
    some = every_page(
        rig, topic="orders", key="odd", begin_ms=begin + 10, end_ms=begin + 13, page_size=page_size
    )
    assert some == ["m13", "m11"]
    assert every_page(rig, message_id="m7", page_size=page_size) == ["m7"]
    assert every_page(rig, topic="orders", key="k", page_size=page_size) == []


def test_a_row_tells_all_and_the_body_when_asked(rig: V1Rig) -> None:
    rig.send_message("m", body=b"12345", tag="t", keys=("a", "b"), properties={"p": "q"})
    (row,) = find(rig, message_id="m").messages
    assert (row.topic, row.message_id, row.tag, list(row.keys)) == ("orders", "m", "t", ["a", "b"])
    assert (row.queue_offset, row.body_size, row.body) == (0, 5, b"")
    assert (row.stored_at_ms, dict(row.properties)) == (rig.now_ms, {"p": "q"})
    (row,) = find(rig, message_id="m", with_body=True).messages
    assert row.body == b"12345"


def test_bodies_make_pages_shorter(rig: V1Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(v1_messages, "PAGE_BYTES_MAX", 100)
    monkeypatch.setattr(v1_messages, "SLICE_MAX", 2)
    for n in range(9):
        rig.send_message(f"m{n}", body=bytes(60))
    page = find(rig, topic="orders", begin_ms=1, with_body=True)
    assert len(page.messages) == 2
    assert page.next_page_token
    assert len(every_page(rig, topic="orders", begin_ms=1, with_body=True)) == 9


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({}, definition_pb2.BAD_REQUEST, "a message id is required"),
        ({"key": "k"}, definition_pb2.BAD_REQUEST, "a topic"),
        ({"topic": "orders"}, definition_pb2.BAD_REQUEST, "a key or a time"),
        ({"message_id": "m", "key": "k"}, definition_pb2.BAD_REQUEST, "either"),
        ({"topic": "orders", "begin_ms": -1}, definition_pb2.BAD_REQUEST, "at least 0"),
        ({"topic": "orders", "begin_ms": 9, "end_ms": 8}, definition_pb2.BAD_REQUEST, "after"),
        ({"topic": "orders", "key": "k", "page_token": "x"}, definition_pb2.BAD_REQUEST, "token"),
        (
            {"topic": "orders", "key": "k", "page_token": "MTox"},
            definition_pb2.BAD_REQUEST,
            "another search",
        ),
        ({"topic": "gone", "key": "k"}, definition_pb2.TOPIC_NOT_FOUND, "gone"),
        ({"topic": "gone", "begin_ms": 1}, definition_pb2.TOPIC_NOT_FOUND, "gone"),
        ({"topic": "gone", "message_id": "m"}, definition_pb2.TOPIC_NOT_FOUND, "gone"),
    ],
)
def test_refusals(rig: V1Rig, fields: dict[str, object], code: int, words: str) -> None:
    rig.send_message("m")
    response = find(rig, **fields)
    assert response.status.code == code
    assert words in response.status.message
    assert not response.messages


def test_a_gap_in_the_index_is_said(rig: V1Rig) -> None:
    rig.send_message("m")
    rig.engine.store.index._gap(64, 128)
    rig.engine.store.index._tail = type(rig.engine.store.index._tail)()
    for response in (find(rig, message_id="m"), describe(rig, "m")):
        assert response.status.code == definition_pb2.TOO_MANY_REQUESTS
        assert "being made again" in response.status.message


def test_same_hash_is_not_the_same_message(rig: V1Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.send_message("m", keys=("k",))
    known = {text: hash64(text) for text in ("m", "k")}
    monkeypatch.setattr(
        "latermq_broker.engine.views.message_query.hash64",
        lambda text: known["m" if text == "other" else "k"],
    )
    assert not find(rig, message_id="other").messages
    assert not find(rig, topic="orders", key="another").messages


def test_the_lives_of_an_id(rig: V1Rig) -> None:
    rig.make_group()
    rig.send_message("m")
    rig.send_message("m", topic="other", wait_ms=60_000)
    assert rig.receive(count=1)
    delayed, first = describe(rig, "m").lives
    assert delayed.waits_until_ms == rig.now_ms + 60_000
    assert delayed.message.queue_id == -1
    (group,) = first.groups
    assert (group.group, group.state, group.attempt, group.max_attempts) == (
        "billing",
        message_pb2.LEASED,
        1,
        3,
    )
    assert (group.client_id, group.until_ms) == ("client-1", rig.now_ms + 1_000)
    assert len(describe(rig, "m", "orders").lives) == 1
    assert describe(rig, "x").status.code == definition_pb2.MESSAGE_NOT_FOUND
    assert describe(rig, "").status.code == definition_pb2.BAD_REQUEST
