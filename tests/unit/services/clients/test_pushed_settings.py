"""Settings that nobody asked for: a group changed under its clients (protocol.md 2.5)."""

from collections.abc import Iterator
from inspect import isawaitable
from typing import cast

import pytest
from google.protobuf.message import Message

from latermq_broker.services.call.handler import Unary
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.latermq.v1 import group_pb2
from support.admin_rig import AdminClient, AdminRig
from support.fake_call import FakeCall


@pytest.fixture
def rig() -> Iterator[AdminRig]:
    rig = AdminRig()
    yield rig
    rig.close()


async def change(rig: AdminRig, verb: str, request: Message) -> None:
    handler = cast(Unary, rig.methods[f"/latermq.v1.Groups/{verb}Group"].handler)
    result = handler(request.SerializeToString(), FakeCall(client_id=""))
    data = await result if isawaitable(result) else result
    assert group_pb2.GroupResponse.FromString(data).status.code == v2.OK


async def told(client: AdminClient) -> tuple[int, bool, list[int]]:
    settings = (await client.command()).settings
    steps = settings.backoff_policy.customized_backoff.next
    return (
        settings.backoff_policy.max_attempts,
        settings.subscription.fifo,
        [step.ToMilliseconds() for step in steps],
    )


def test_attempts_backoff_and_order_reach_connected_consumers(rig: AdminRig) -> None:
    async def run() -> None:
        one = await rig.consumer("c-1")
        two = await rig.consumer("c-2")
        made = group_pb2.Group(name="billing", fifo=True, max_attempts=4)
        await change(rig, "Create", group_pb2.CreateGroupRequest(group=made))
        for client in (one, two):
            attempts, fifo, ladder_ms = await told(client)
            assert (attempts, fifo, ladder_ms[0]) == (4, True, 10_000)
        backoff = group_pb2.Backoff(fixed_ms=700)
        altered = group_pb2.AlterGroupRequest(name="billing", max_attempts=5, backoff=backoff)
        await change(rig, "Alter", altered)
        assert [await told(client) for client in (one, two)] == [(5, True, [700])] * 2
        await change(rig, "Alter", group_pb2.AlterGroupRequest(name="billing", max_attempts=5))
        await change(rig, "Delete", group_pb2.DeleteGroupRequest(name="billing"))
        attempts, fifo, ladder_ms = await told(one)  # what changed nothing told nothing
        assert (attempts, fifo, ladder_ms[0]) == (rig.config.delivery.max_attempts, False, 10_000)
        for client in (one, two):
            await client.close()

    rig.loop.run_until_complete(run())


def test_other_groups_and_producers_hear_nothing(rig: AdminRig) -> None:
    async def run() -> None:
        other = await rig.consumer("c-1", group="shipping")
        producer = await rig.producer("p-1")
        made = group_pb2.Group(name="billing", max_attempts=3)
        await change(rig, "Create", group_pb2.CreateGroupRequest(group=made))
        await change(
            rig,
            "Create",
            group_pb2.CreateGroupRequest(group=group_pb2.Group(name="shipping", max_attempts=4)),
        )
        assert (await told(other))[0] == 4
        for client in (other, producer):
            await client.close()

    rig.loop.run_until_complete(run())
