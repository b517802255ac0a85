"""Reflection answers from the private pool, with everything a caller needs to build requests."""

from collections.abc import AsyncIterator

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha.reflection_pb2 import (
    ServerReflectionRequest,
    ServerReflectionResponse,
)

from latermq_broker.services.call.handler import CallAborted
from latermq_broker.services.standard.reflection import ReflectionService
from latermq_h2.grpc_code import GrpcCode
from latermq_proto.apache.rocketmq.v2 import service_pb2
from latermq_proto.latermq.v1 import dead_letter_pb2, topic_pb2
from support.fake_call import FakeCall

OURS = ["apache.rocketmq.v2.MessagingService", "latermq.v1.Topics"]
FILES = (service_pb2, topic_pb2, dead_letter_pb2)  # in the pool from when they are imported


async def ask(*requests: ServerReflectionRequest | bytes) -> list[ServerReflectionResponse]:
    async def sent() -> AsyncIterator[bytes]:
        for request in requests:
            yield request if isinstance(request, bytes) else request.SerializeToString()

    answers = ReflectionService(OURS).info(sent(), FakeCall(client_id=""))
    return [ServerReflectionResponse.FromString(answer) async for answer in answers]


async def test_lists_our_services_health_and_itself() -> None:
    (answer,) = await ask(ServerReflectionRequest(list_services=""))
    names = {service.name for service in answer.list_services_response.service}
    assert names == {*OURS, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


@pytest.mark.parametrize(
    "symbol",
    [
        "apache.rocketmq.v2.MessagingService",
        "apache.rocketmq.v2.SendMessageRequest",
        "latermq.v1.DeadLetters",
        "grpc.health.v1.Health",
    ],
)
async def test_a_symbol_comes_with_all_files_it_needs(symbol: str) -> None:
    (answer,) = await ask(ServerReflectionRequest(file_containing_symbol=symbol))
    files = [
        descriptor_pb2.FileDescriptorProto.FromString(data)
        for data in answer.file_descriptor_response.file_descriptor_proto
    ]
    pool = descriptor_pool.DescriptorPool()
    waiting = {file.name: file for file in files}
    while waiting:
        found = [f for f in waiting.values() if not any(d in waiting for d in f.dependency)]
        assert found, "a circle, or a file is missing"
        for file in found:
            pool.Add(waiting.pop(file.name))
    assert pool.FindFileContainingSymbol(symbol)


async def test_what_does_not_exist_is_said() -> None:
    answers = await ask(
        ServerReflectionRequest(file_containing_symbol="no.Such"),
        ServerReflectionRequest(file_by_filename="no.proto"),
    )
    assert [answer.error_response.error_code for answer in answers] == [5, 5]


async def test_bytes_that_are_no_request() -> None:
    with pytest.raises(CallAborted) as aborted:
        await ask(b"\xff")
    assert aborted.value.code is GrpcCode.INVALID_ARGUMENT


def test_both_protocol_names_are_served() -> None:
    assert set(ReflectionService(OURS).methods()) == {
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    }
