"""grpc.health.v1: what a probe is told, and when a watcher is."""

from collections.abc import AsyncIterator
from typing import cast

import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from latermq_broker.engine.state.conditions import Conditions, Part
from latermq_broker.services.call.handler import CallAborted
from latermq_broker.services.standard.health import HealthService
from latermq_h2.grpc_code import GrpcCode
from support.fake_call import FakeCall

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
OURS = "apache.rocketmq.v2.MessagingService"


@pytest.fixture
def health() -> HealthService:
    return HealthService([OURS], Conditions())


def check(health: HealthService, service: str = "") -> int:
    request = HealthCheckRequest(service=service).SerializeToString()
    status: int = HealthCheckResponse.FromString(health.check(request, probe())).status
    return status


def probe() -> FakeCall:
    """A health probe sends no client id."""
    return FakeCall(client_id="")


async def next_status(answers: AsyncIterator[bytes]) -> int:
    return cast(int, HealthCheckResponse.FromString(await anext(answers)).status)


@pytest.mark.parametrize("service", ["", OURS, "grpc.health.v1.Health"])
def test_serving_only_once_told_so(health: HealthService, service: str) -> None:
    assert check(health, service) == NOT_SERVING
    health.set_serving(True)
    assert check(health, service) == SERVING
    health.set_serving(False)
    assert check(health, service) == NOT_SERVING


def test_an_unknown_service_is_not_found(health: HealthService) -> None:
    with pytest.raises(CallAborted) as aborted:
        check(health, "nobody")
    assert aborted.value.code is GrpcCode.NOT_FOUND


def test_bytes_that_are_no_request(health: HealthService) -> None:
    with pytest.raises(CallAborted) as aborted:
        health.check(b"\xff", probe())
    assert aborted.value.code is GrpcCode.INVALID_ARGUMENT


async def test_a_watcher_sees_each_change_and_the_end_with_draining(health: HealthService) -> None:
    answers = health.watch(b"", probe())
    assert await next_status(answers) == NOT_SERVING
    health.set_serving(True)
    assert await next_status(answers) == SERVING
    health.set_serving(False)
    assert await next_status(answers) == NOT_SERVING
    assert [answer async for answer in answers] == []


async def test_a_watcher_of_an_unknown_service_is_told_so(health: HealthService) -> None:
    answers = health.watch(HealthCheckRequest(service="nobody").SerializeToString(), probe())
    assert await next_status(answers) == HealthCheckResponse.SERVICE_UNKNOWN


def test_a_part_that_is_out_of_order_is_told_by_its_name_and_the_broker_serves() -> None:
    conditions = Conditions()
    health = HealthService([OURS], conditions)
    assert check(health, "latermq.checkpoints") == NOT_SERVING
    health.set_serving(True)
    assert check(health, "latermq.checkpoints") == SERVING
    conditions.set(Part.CHECKPOINTS, "checkpoint failed: broken", 1)
    assert check(health, "latermq.checkpoints") == NOT_SERVING
    assert [check(health), check(health, OURS), check(health, "latermq.disk")] == [SERVING] * 3
    conditions.set(Part.CHECKPOINTS, None, 2)
    assert check(health, "latermq.checkpoints") == SERVING


async def test_who_watches_a_part_is_told_of_its_changes_only() -> None:
    conditions = Conditions()
    health = HealthService([OURS], conditions)
    health.set_serving(True)
    request = HealthCheckRequest(service="latermq.disk").SerializeToString()
    watch = health.watch(request, probe())
    told = [HealthCheckResponse.FromString(await anext(watch)).status]
    conditions.set(Part.CLOCK, "behind", 1)
    health.on_second()
    conditions.set(Part.DISK, "full", 1)
    health.on_second()
    told.append(HealthCheckResponse.FromString(await anext(watch)).status)
    assert told == [SERVING, NOT_SERVING]
