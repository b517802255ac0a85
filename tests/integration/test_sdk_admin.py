"""`latermq.admin` against a broker: what the command line stands on, on both transports."""

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from latermq import admin
from latermq.errors import ClosedError, TopicNotFoundError, UnavailableError, UnsupportedError
from latermq_h2.grpc_code import GrpcCode
from latermq_proto.latermq.v1 import dead_letter_pb2, topic_pb2
from support.broker_process import BrokerProcess
from support.machine import patient


@pytest.fixture(params=["lean", "grpcio"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker(sdk_broker: BrokerProcess, transport: str) -> Iterator[admin.Admin]:
    with admin.connect(sdk_broker.endpoint, transport=transport) as broker:
        yield broker


def test_calls_and_pages(broker: admin.Admin, name: str) -> None:
    wanted = [f"{name}-{number}" for number in range(5)]
    for each in wanted:
        request = topic_pb2.CreateTopicRequest(name=each)
        assert broker.call(broker.topics.CreateTopic, request).topic.name == each
    listing = topic_pb2.ListTopicsRequest()
    found = [each.name for each in broker.each(broker.topics.ListTopics, listing, "topics", 1000)]
    assert set(wanted) <= set(found)
    assert not listing.page_token
    pages = list(broker.pages(broker.topics.ListTopics, topic_pb2.ListTopicsRequest(), "topics", 2))
    assert [len(page.topics) for page in pages] == [2]


def test_a_status_is_an_error_of_its_kind(broker: admin.Admin) -> None:
    with pytest.raises(TopicNotFoundError) as refused:
        broker.call(broker.topics.GetTopic, topic_pb2.GetTopicRequest(name="nothing-here"))
    assert refused.value.grpc_code == 0, "the broker answered"
    answer = broker.ask(broker.topics.GetTopic, topic_pb2.GetTopicRequest(name="nothing-here"))
    assert answer.status.code == refused.value.code


def test_a_stream_left_early_leaves_the_connection_usable(broker: admin.Admin) -> None:
    request = dead_letter_pb2.DropDeadLettersRequest(group="nobody", dry_run=True)
    elements = broker.stream(broker.dead_letters.DropDeadLetters, request)
    assert next(elements).status.code
    elements.close()
    broker.call(broker.topics.ListTopics, topic_pb2.ListTopicsRequest())


def test_what_no_broker_knows(broker: admin.Admin) -> None:
    method = admin.Method("/latermq.v1.Topics/Juggle", topic_pb2.ListTopicsResponse)
    with pytest.raises(UnsupportedError) as refused:
        broker.call(method, topic_pb2.GetTopicRequest())
    assert refused.value.grpc_code == GrpcCode.UNIMPLEMENTED
    with pytest.raises(AttributeError, match=r"latermq\.v1\.Topics has no method Juggle"):
        _ = broker.topics.Juggle


def test_where_nobody_listens_a_call_fails_at_once(transport: str) -> None:
    began = time.monotonic()
    with admin.connect("127.0.0.1:1", transport=transport) as broker:
        with pytest.raises(UnavailableError) as failed:
            broker.call(broker.topics.ListTopics, topic_pb2.ListTopicsRequest())
        assert failed.value.grpc_code == GrpcCode.UNAVAILABLE
    assert time.monotonic() - began < patient(10)
    with pytest.raises(ClosedError):
        broker.call(broker.topics.ListTopics, topic_pb2.ListTopicsRequest())


def test_the_broker_comes_back_between_two_calls(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()
        with admin.connect(broker.endpoint, transport="lean") as known:
            known.call(known.topics.ListTopics, topic_pb2.ListTopicsRequest())
            broker.terminate()
            with pytest.raises(UnavailableError):
                known.call(known.topics.ListTopics, topic_pb2.ListTopicsRequest())
            broker.start()
            known.call(known.topics.ListTopics, topic_pb2.ListTopicsRequest())


def test_one_that_nobody_closed_ends_with_its_last_name(sdk_broker: BrokerProcess) -> None:
    before = set(threading.enumerate())
    broker = admin.connect(sdk_broker.endpoint)
    broker.call(broker.topics.ListTopics, topic_pb2.ListTopicsRequest())
    (thread,) = set(threading.enumerate()) - before
    del broker
    gc.collect()
    thread.join(patient(10))
    assert not thread.is_alive()
