"""What the guard decides by the head of a call, and what it hands on of a request."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

from latermq_broker.catalog.access import Kind, Right
from latermq_broker.config.auth import AuthConfig
from latermq_broker.services.auth.guard import Guard
from latermq_broker.services.call.answers import reader
from latermq_broker.services.call.handler import Call, CallAborted, Method, MethodKind
from latermq_broker.services.clients.session import Sessions
from latermq_h2.grpc_code import GrpcCode
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2
from support.access_rig import ROOT, ROOT_SECRET, AccessRig
from support.fake_call import FakeCall

M: Final = "apache.rocketmq.v2.MessagingService"
T, PUB = Kind.TOPIC, Right.PUB


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    rig = AccessRig()
    yield rig
    rig.close()


HEALTH_METHODS = ("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch")


def test_health_is_open(rig: AccessRig) -> None:
    assert rig.raw(HEALTH_METHODS[0], b"", FakeCall()) is not None
    for path in HEALTH_METHODS:
        assert rig.methods[path].small
        assert rig.methods[path].admit is None


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_is_for_users(rig: AccessRig, version: str) -> None:
    method = rig.methods[f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"]
    info: Any = method.handler

    async def asked() -> AsyncIterator[bytes]:
        yield ServerReflectionRequest(list_services="").SerializeToString()

    async def answers(call: FakeCall) -> list[bytes]:
        return [answer async for answer in info(asked(), call)]

    with pytest.raises(CallAborted) as raised:
        info(asked(), FakeCall())
    assert raised.value.code is GrpcCode.UNAUTHENTICATED
    assert b"SendMessage" not in asyncio.run(answers(rig.by()))[0]


def test_who_is_no_user_is_refused_by_the_head_of_a_call(rig: AccessRig) -> None:
    """Before anything of a request is kept, or inflated; but for telemetry, which is a stream."""
    for number, (path, method) in enumerate(rig.methods.items()):
        # An address each: the brake answers one that is not signed again and again otherwise.
        stranger = FakeCall(peer=f"192.0.2.{number}:4711")
        if path in HEALTH_METHODS or method.kind is MethodKind.BIDI_STREAM:
            assert method.admit is None
            continue
        assert method.admit is not None
        assert method.admit(rig.by()) is None
        refused = method.admit(stranger)
        assert refused is not None
        [answer] = refused
        assert b"not signed" in answer
        handler: Any = method.handler
        assert handler(b"", stranger) == (answer if method.kind is MethodKind.UNARY else [answer])


def test_a_request_is_parsed_once(rig: AccessRig) -> None:
    seen: list[Any] = []
    path = f"{M}/SendMessage"

    def handler(data: bytes, call: Call) -> bytes:
        seen.append(data)
        return b""

    def parsed(request: Any, data: bytes, call: Call) -> bytes:
        seen.append(request)
        return b""

    read = reader(service_pb2.SendMessageRequest)
    plain = Method.unary(handler, large=True, parsed=parsed, read=read)
    descriptors = service_pb2.DESCRIPTOR.services_by_name.values()
    auth = AuthConfig(enabled=True, root_access_key=ROOT, root_secret_key=ROOT_SECRET)
    guard = Guard(rig.engine.users, Sessions(rig.config.server), auth, lambda: rig.now_ms)
    behind = guard.guarded({f"/{path}": plain}, descriptors)[f"/{path}"]
    assert behind.large
    rig.grant(T, "orders", PUB)
    request = service_pb2.SendMessageRequest(messages=[v2.Message(topic={"name": "orders"})])
    data = request.SerializeToString()
    guarded: Any = behind.handler
    guarded(data, rig.by())
    guarded(data, rig.by(ROOT, ROOT_SECRET))
    too_many = b"\x0a\x00" * 200_000
    guarded(too_many, rig.by())
    assert seen == [request, data, too_many]  # the last is for the handler to refuse
