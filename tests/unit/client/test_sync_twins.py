"""`latermq.sync` has what `latermq` has, name by name and argument by argument."""

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

import pytest

import latermq
from latermq import sync
from latermq.testing import BrokerProcess
from latermq_proto.latermq.v1 import topic_pb2

BOTH: Final = sorted({*latermq.__all__} & {*sync.__all__})
SAME: Final = {  # used with either, so there is one of each
    "App": "its listeners may be plain functions, `run` blocks, and `send_with` takes our Client",
    "retry": "of a function that is not `async` it waits in the thread",
    "sync": "itself",
    **dict.fromkeys(
        (
            "RECONSUME_LATER", "Backoff", "Batching", "Begin", "Code", "ConsumeResult",
            "DeadLetterOrigin", "LaterMQError", "Message", "Received", "Resolution", "SendReceipt",
            "Sql", "Tls", "errors",
        ),
        "a value, an error or a module, which nobody awaits",
    ),
}  # fmt: skip
FIELDS: Final = {"Transaction": {"message_id", "transaction_id"}}  # set in its __init__
ASYNC_NAMES: Final = {
    "__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__",
    "__anext__": "__next__",
}  # fmt: skip


def members(kind: type) -> dict[str, Any]:
    """Return what a class offers its users, by the name it has for threads."""
    found = {}
    for owner in reversed(kind.__mro__):
        if not owner.__module__.startswith("latermq"):
            continue
        for name, member in vars(owner).items():
            if (public := ASYNC_NAMES.get(name, name)) and (
                not public.startswith("_") or public in ASYNC_NAMES.values()
            ):
                found[public] = member
    return found


def arguments(function: Callable[..., Any]) -> list[tuple[str, object, object]]:
    given = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default) for each in given]


def test_what_is_missing_has_a_reason() -> None:
    assert {*latermq.__all__} - {*sync.__all__} == set(SAME)
    assert {*sync.__all__} == {*BOTH, "connect"}
    assert arguments(sync.connect) == arguments(latermq.connect)


@pytest.mark.parametrize("name", [name for name in BOTH if name != "connect"])
def test_a_class_for_threads_has_what_its_twin_has(name: str) -> None:
    twin, ours = members(getattr(latermq, name)), members(getattr(sync, name))
    assert {*ours} == {*twin} | FIELDS.get(name, set())
    for member, theirs in twin.items():
        assert isinstance(ours[member], property) is isinstance(theirs, property), member
        if isinstance(theirs, FunctionType) and not member.startswith("__"):
            assert arguments(ours[member]) == arguments(theirs), member


def test_a_client_tells_whether_its_broker_is_there(latermq_broker: BrokerProcess) -> None:
    with sync.connect(latermq_broker.endpoint) as mq:
        assert mq.reachable
        mq.send("orders", b"1")
        with mq.push_consumer("orders", group="billing") as consumer:
            assert consumer.receiving
            with next(iter(consumer)) as delivery:
                assert delivery.body == b"1"
        assert not consumer.receiving


def test_a_client_administers_its_broker(latermq_broker: BrokerProcess) -> None:
    with sync.connect(latermq_broker.endpoint) as mq:
        for name in ("a", "b"):
            with mq.admin as admin:
                request = topic_pb2.CreateTopicRequest(name=name)
                assert admin.call(admin.topics.CreateTopic, request).topic.name == name
        listed = mq.admin.each(
            mq.admin.topics.ListTopics, topic_pb2.ListTopicsRequest(), "topics", 9
        )
        assert [each.name for each in listed] == ["a", "b"]
        assert mq.send("a", b"1").topic == "a"  # its connection is the client's, and open still


def test_an_app_is_declared_without_await(latermq_broker: BrokerProcess) -> None:
    app = latermq.App("127.0.0.1:1")
    app.topic("orders", kind="fifo")
    app.group("billing", max_attempts=4)
    with sync.connect(latermq_broker.endpoint) as mq:
        assert app.declare_with(mq) == ["topic orders made", "group billing made"]
        assert app.declare_with(mq) == []
