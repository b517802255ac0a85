"""apache.rocketmq.v2.Admin and `latermq message` against a real broker and our SDK's clients."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import grpc
import pytest

import latermq
from latermq_proto.apache.rocketmq.v2 import admin_pb2, admin_pb2_grpc
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import now_ms

WAIT = timedelta(seconds=5)
TIMEOUT_S = patient(30.0)


@pytest.fixture
def admin(sdk_broker: BrokerProcess) -> Iterator[Any]:
    with grpc.insecure_channel(sdk_broker.endpoint) as channel:
        yield admin_pb2_grpc.AdminStub(channel)


def latermq_json(broker: BrokerProcess, *words: str) -> Any:
    env = {**os.environ, "LATERMQ_ENDPOINT": broker.endpoint}
    done = subprocess.run(
        [sys.executable, "-m", "latermq_broker", *words, "--json"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
        env=env,
    )
    return json.loads(done.stdout)


async def test_a_message_is_found_sent_and_read_again(
    sdk_broker: BrokerProcess, admin: Any, name: str
) -> None:
    topic, group = v2.Resource(name=name), v2.Resource(name=name)
    began_ms = now_ms()
    async with latermq.connect(sdk_broker.endpoint) as mq:
        receipt = await mq.send(name, b"one", keys=["order-1"])
        sent = admin.AdminSendMessage(
            admin_pb2.AdminSendMessageRequest(topic=topic, body=b"two", key="order-1", tag="t")
        )
        assert sent.status.code == v2.OK, sent.status.message
        found = admin.QueryMessage(admin_pb2.ListMessageRequest(topic=topic, message_key="order-1"))
        assert [one.body for one in found.messages] == [b"two", b"one"]
        async with mq.simple_consumer(name, group=name) as consumer:
            bodies: set[bytes] = set()
            while len(bodies) < 2:
                for delivery in await consumer.receive(2, wait=WAIT):
                    bodies.add(delivery.body)
                    await delivery.ack()
            life = latermq_json(sdk_broker, "message", "show", receipt.message_id)["lives"][0]
            assert [(one["group"], one["state"]) for one in life["groups"]] == [(name, "done")]
            reset = admin.ResetGroupOffset(
                admin_pb2.ResetGroupOffsetRequest(
                    topic=topic, group=group, reset_timestamp={"seconds": began_ms // 1000 - 60}
                )
            )
            assert reset.status.code == v2.OK, reset.status.message
            again: set[bytes] = set()
            while len(again) < 2:
                again |= {each.body for each in await consumer.receive(2, wait=WAIT)}
    rows = latermq_json(sdk_broker, "message", "find", name, "--key", "order-1")["messages"]
    assert [row["message_id"] for row in rows] == [sent.message_id, receipt.message_id]
    timed = latermq_json(sdk_broker, "message", "find", name, "--from", str(began_ms - 1))
    assert len(timed["messages"]) == 2
    waits = admin.DescribeGroupAccumulation(admin_pb2.DescribeGroupAccumulationRequest(group=group))
    assert waits.accumulation.inflight_messages == 2


async def test_a_client_is_listed_and_asked(
    sdk_broker: BrokerProcess, admin: Any, name: str
) -> None:
    """Our SDK says that it tells no stack; it answers, so nobody waits for the time-out."""
    topic, group = v2.Resource(name=name), v2.Resource(name=name)
    async with latermq.connect(sdk_broker.endpoint) as mq:
        receipt = await mq.send(name, b"one")
        async with mq.simple_consumer(name, group=name, tags="a || b") as consumer:
            assert await consumer.receive(1, wait=timedelta(milliseconds=100)) == []
            listing = admin_pb2.ListConsumerConnectionRequest(group=group)
            (client,) = admin.ListConsumerConnection(listing).client_info
            assert client.egress_ip in ("127.0.0.1", "::1")
            (info,) = admin.ListSubscription(
                admin_pb2.ListSubscriptionRequest(topic=topic)
            ).subscription_info
            assert (info.online, info.expression.expression) == (True, "a || b")
            trace_request = admin_pb2.PrintThreadStackTraceRequest(client_id=client.client_id)
            trace = await ask(admin.PrintThreadStackTrace, trace_request)
            verify_request = admin_pb2.VerifyMessageRequest(
                group=group,
                client_id=client.client_id,
                topic=topic,
                message_id=receipt.message_id,
            )
            verified = await ask(admin.VerifyMessage, verify_request)
            assert (trace.status.code, verified.status.code) == (v2.UNSUPPORTED, v2.UNSUPPORTED)


async def ask(method: Any, request: Any) -> Any:
    """While the client's own loop goes on, which must answer."""
    return await asyncio.to_thread(method, request, timeout=TIMEOUT_S)
