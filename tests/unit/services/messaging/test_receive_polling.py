"""ReceiveMessage: how long it may wait, by what is asked for and by the caller's deadline."""

import asyncio
from dataclasses import replace
from typing import Any, Final

import pytest

from latermq_broker.config.config import ServerConfig
from latermq_broker.services.clients.session import ClientKind, Session
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from latermq_proto.google.protobuf import duration_pb2
from support.engine_rig import START_MS
from support.fake_call import CLIENT_ID, FakeCall
from support.messaging import SMALL, Messaging, received
from support.virtual_loop import InlineThreads, virtually
from support.wire_requests import receive

Code: Final = definition_pb2.Code


def polling(
    *, asked_ms: int | None, remaining_ms: int | None, version: str = "5.1.2"
) -> tuple[service_pb2.ReceiveMessageRequest, FakeCall]:
    request = receive("orders", "billing", wait_ms=asked_ms or 0)
    if asked_ms is None:
        request.ClearField("long_polling_timeout")
    call = FakeCall(remaining_ms=remaining_ms, metadata={"x-mq-client-version": version})
    return request, call


async def waits_ms(broker: Messaging, **options: Any) -> int:
    """How long a receive would be parked, read off the loop's timer."""
    loop = asyncio.get_running_loop()
    request, call = polling(**options)
    task = asyncio.ensure_future(broker.stream("ReceiveMessage", request, call))
    await broker.settle()
    if task.done():
        assert received(task.result()).status.code == Code.MESSAGE_NOT_FOUND
        return 0
    [parked] = broker.receives.parking._lines
    timer = parked.receiver.timer
    assert timer is not None
    wait_ms = round((timer.when() - loop.time()) * 1_000)
    task.cancel()
    call.cancel()
    await broker.settle()
    return wait_ms


@pytest.mark.parametrize(
    ("asked_ms", "remaining_ms", "wait_ms"),
    [
        (20_000, 23_000, 20_000),
        (40_000, None, 20_000),  # clamped
        (40_000, 40_000, 20_000),  # Rust
        (8_000, 6_000, 5_900),  # what remains, less the margin
        (20_000, 20_000, 19_900),
        (1_000, 4_000, 1_000),  # short waits are kept short
        (0, 4_000, 0),
        (4_000, 4_000, 3_900),
        (None, 13_000, 11_500),  # unset: the deadline less half a request timeout
        (None, 23_000, 20_000),
        (None, 6_000, 5_000),
        (None, None, 20_000),
    ],
)
@virtually
async def test_the_wait_fits_the_deadline(
    asked_ms: int | None, remaining_ms: int | None, wait_ms: int
) -> None:
    async with Messaging(threads=InlineThreads()) as broker:
        assert await waits_ms(broker, asked_ms=asked_ms, remaining_ms=remaining_ms) == wait_ms


@virtually
async def test_rocketmqs_lower_bound_can_be_had() -> None:
    config = replace(SMALL, server=ServerConfig(short_polling=False))
    async with Messaging(config, threads=InlineThreads()) as broker:
        assert await waits_ms(broker, asked_ms=1_000, remaining_ms=9_000) == 5_000


@virtually
async def test_half_of_the_clients_own_request_timeout_is_left() -> None:
    async with Messaging(threads=InlineThreads()) as broker:
        broker.sessions.put(
            Session(
                client_id=CLIENT_ID,
                kind=ClientKind.SIMPLE_CONSUMER,
                group="billing",
                topics=frozenset(),
                settings=definition_pb2.Settings(request_timeout=duration_pb2.Duration(seconds=6)),
                language="GO",
                version="5",
                seen_ms=START_MS,
            )
        )
        assert await waits_ms(broker, asked_ms=None, remaining_ms=13_000) == 10_000


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("5.0.3", Code.ILLEGAL_POLLING_TIME),
        ("5.1.2", Code.ILLEGAL_POLLING_TIME),
        ("5.0.2", Code.BAD_REQUEST),
        ("", Code.BAD_REQUEST),
    ],
)
@virtually
async def test_a_deadline_too_near_for_the_wait(version: str, code: int) -> None:
    async with Messaging(threads=InlineThreads()) as broker:
        for asked_ms in (None, 5_000, 20_000):
            request, call = polling(asked_ms=asked_ms, remaining_ms=4_500, version=version)
            assert (await broker.receive_status(request, call)).code == code
