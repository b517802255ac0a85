"""A name in a namespace is refused, wherever a request may have one; nothing is stored."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from latermq_broker.config.config import CompatConfig
from latermq_broker.errors import ConfigError
from latermq_broker.services.call.answers import ADMIN, MESSAGING
from latermq_broker.services.call.handler import CallAborted, MethodKind
from latermq_broker.services.rpcs import path_of
from latermq_proto.apache.rocketmq.v2 import admin_pb2, definition_pb2, service_pb2
from support.fake_call import CLIENT_ID, FakeCall
from support.v1_rig import V1Rig

BAD_REQUEST: Final = definition_pb2.BAD_REQUEST
WORDS: Final = ("'shop-a'", "compat.namespaces = refuse")
RPCS: Final = {
    path_of(rpc): rpc
    for service in (
        service_pb2.DESCRIPTOR.services_by_name["MessagingService"],
        admin_pb2.DESCRIPTOR.services_by_name["Admin"],
    )
    for rpc in service.methods
    if not rpc.client_streaming
}


def places(descriptor: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Find the fields, and the fields that they are in, that are the name of a topic or group."""
    for field in descriptor.fields:
        if field.message_type is None:
            continue
        if field.message_type.name == "Resource":
            yield (*before, field)
        else:
            yield from places(field.message_type, (*before, field))


def put(message: Any, place: tuple[Any, ...], namespace: str) -> None:
    """Put a name in a namespace there; in a repeated field behind a name that has none."""
    for field in place:
        value = getattr(message, field.name)
        if hasattr(value, "add"):
            value.add()
            if field.message_type.name == "Resource":
                value[0].name = "orders"
            value = value.add()
        message = value
    message.name = "orders"
    message.resource_namespace = namespace


NAMED: Final = [
    pytest.param(path, place, id=f"{rpc.name} {'.'.join(field.name for field in place)}")
    for path, rpc in RPCS.items()
    for place in places(rpc.input_type)
]


@pytest.fixture(scope="module")
def rig() -> Iterator[V1Rig]:
    rig = V1Rig()
    yield rig
    rig.close()


def asked(rig: V1Rig, path: str, request: Message, call: FakeCall | None = None) -> list[Any]:
    response_class: Any = GetMessageClass(RPCS[path].output_type)
    data, call = request.SerializeToString(), call or FakeCall()
    if rig.methods[path].kind is MethodKind.SERVER_STREAM:
        return [response_class.FromString(one) for one in rig.raw_stream(path, data, call)]
    return [response_class.FromString(rig.raw(path, data, call))]


@pytest.mark.parametrize(("path", "place"), NAMED)
def test_refused_by_every_rpc_in_every_place(rig: V1Rig, path: str, place: tuple[Any, ...]) -> None:
    if path.startswith(ADMIN) and path not in rig.methods:
        pytest.skip("not served")
    before = rig.engine.store.log.end
    request: Any = GetMessageClass(RPCS[path].input_type)()
    put(request, place, "shop-a")
    status = asked(rig, path, request)[0].status
    assert status.code == BAD_REQUEST, status.message
    assert all(word in status.message for word in WORDS), status.message
    assert rig.engine.store.log.end == before
    assert rig.engine.catalog.topic("orders") is None


@pytest.mark.parametrize("path", [path for path in RPCS if path.startswith(MESSAGING)])
def test_refused_by_every_rpc_of_a_client_that_says_it_in_its_header_alone(
    rig: V1Rig, path: str
) -> None:
    """So do the consumers of Node.js. Python and others send an empty one, which is none."""
    request: Any = GetMessageClass(RPCS[path].input_type)()
    in_one = FakeCall(metadata={"x-mq-namespace": "shop-a"})
    status = asked(rig, path, request, in_one)[0].status
    assert status.code == BAD_REQUEST, status.message
    assert all(word in status.message for word in WORDS), status.message
    in_none = FakeCall(metadata={"x-mq-namespace": ""})
    assert "namespace" not in asked(rig, path, request, in_none)[0].status.message


def test_the_rpcs_of_clients_have_such_places() -> None:
    having = {path for path, rpc in RPCS.items() if any(places(rpc.input_type))}
    assert having >= {path for path in RPCS if path.startswith(MESSAGING)}


def test_a_refused_acknowledgement_has_its_entries_and_a_refused_change_its_handle(
    rig: V1Rig,
) -> None:
    """Rust reads the first entry before the status, Python and Go the handle."""
    orders = definition_pb2.Resource(name="orders", resource_namespace="shop-a")
    entries = [service_pb2.AckMessageEntry(message_id=each, receipt_handle=each) for each in "ab"]
    ack = service_pb2.AckMessageRequest(topic=orders, entries=entries)
    [answer] = asked(rig, f"{MESSAGING}/AckMessage", ack)
    assert answer.status.code == BAD_REQUEST
    assert [each.receipt_handle for each in answer.entries] == ["a", "b"]
    assert {each.status.code for each in answer.entries} == {BAD_REQUEST}
    change = service_pb2.ChangeInvisibleDurationRequest(topic=orders, receipt_handle="held")
    [changed] = asked(rig, f"{MESSAGING}/ChangeInvisibleDuration", change)
    assert (changed.status.code, changed.receipt_handle) == (BAD_REQUEST, "held")


def test_a_message_with_a_namespace_beside_plain_ones_is_refused_with_them(rig: V1Rig) -> None:
    request = service_pb2.SendMessageRequest()
    for namespace in ("", "shop-a"):
        message = request.messages.add(body=b"x")
        message.topic.name = "orders"
        message.topic.resource_namespace = namespace
        message.system_properties.message_id = f"id-{namespace}"
    [answer] = asked(rig, f"{MESSAGING}/SendMessage", request)
    assert answer.status.code == BAD_REQUEST
    assert rig.engine.catalog.topic("orders") is None


@pytest.mark.parametrize("place", list(places(definition_pb2.Settings.DESCRIPTOR)))
def test_settings_with_a_namespace_end_the_telemetry_stream(
    rig: V1Rig, place: tuple[Any, ...]
) -> None:
    command = service_pb2.TelemetryCommand()
    put(command.settings, place, "shop-a")

    answers: list[service_pb2.TelemetryCommand] = []

    async def said() -> None:
        async def commands() -> AsyncIterator[bytes]:
            yield command.SerializeToString()

        async for each in rig.methods[f"{MESSAGING}/Telemetry"].handler(commands(), FakeCall()):
            answers.append(service_pb2.TelemetryCommand.FromString(each))

    with pytest.raises(CallAborted, match=r"compat\.namespaces = refuse"):
        rig.loop.run_until_complete(said())
    [answer] = answers
    assert answer.status.code == BAD_REQUEST
    assert all(word in answer.status.message for word in WORDS)
    assert rig.sessions.get(CLIENT_ID) is None


def test_the_setting_has_one_value() -> None:
    with pytest.raises(ConfigError, match=r"compat\.namespaces.*must be refuse, not 'share'"):
        CompatConfig(namespaces="share")
