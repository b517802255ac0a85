"""A consumer whose broker refuses what it asks: it says so, and goes on when that is over."""

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import latermq
from latermq.admin import connect_async
from latermq_proto.latermq.v1 import topic_pb2, user_pb2
from support.broker_process import BrokerProcess

BY_HAND = "[catalog]\nauto_create = false\n"
AUTH = "[auth]\nenabled = true\n"


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.05)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.levelno == logging.WARNING and "refuse" in each.getMessage()
    ]


async def test_a_topic_that_is_deleted_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BrokerProcess(tmp_path / "data", config=BY_HAND) as broker:
        broker.start()
        admin = connect_async(broker.endpoint)
        create = topic_pb2.CreateTopicRequest(name="orders")
        await admin.call(admin.topics.CreateTopic, create)
        mq = latermq.connect(broker.endpoint)
        async with mq, mq.push_consumer("orders", group="billing") as consumer:
            request = topic_pb2.DeleteTopicRequest(name="orders")
            await admin.call(admin.topics.DeleteTopic, request)
            await until(lambda: consumer.refused)
            await admin.call(admin.topics.CreateTopic, create)
            await until(lambda: not consumer.refused)
            await mq.send("orders", b"1")
            async for delivery in consumer:
                async with delivery:
                    assert delivery.body == b"1"
                break
        await admin.close()
    assert len(warned(caplog)) == 2


async def test_a_right_that_is_revoked_and_granted_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BrokerProcess(tmp_path / "data", config=AUTH) as broker:
        broker.start()
        said = (broker.data_dir / "root-credentials").read_text()
        key, secret = re.findall(r"LATERMQ_(?:ACCESS|SECRET)_KEY=(\S+)", said)
        admin = connect_async(broker.endpoint, access_key=key, secret=secret)
        await admin.call(admin.topics.CreateTopic, topic_pb2.CreateTopicRequest(name="orders"))
        user = user_pb2.CreateUserRequest(access_key="worker", secret="a-secret-of-its-own")
        await admin.call(admin.users.CreateUser, user)
        of_topic, of_group = (
            user_pb2.ChangeGrantRequest(
                access_key="worker",
                grant=user_pb2.Grant(kind=kind, pattern=pattern, rights=["sub"]),
            )
            for kind, pattern in (
                (user_pb2.Grant.TOPIC, "orders"),
                (user_pb2.Grant.GROUP, "billing"),
            )
        )
        for grant in (of_topic, of_group):
            await admin.call(admin.users.GrantRights, grant)
        mq = latermq.connect(broker.endpoint, access_key="worker", secret="a-secret-of-its-own")
        async with mq, mq.push_consumer("orders", group="billing") as consumer:
            await admin.call(admin.users.RevokeRights, of_group)
            await until(lambda: consumer.refused)
            await admin.call(admin.users.GrantRights, of_group)
            await until(lambda: not consumer.refused)
        await admin.close()
    assert len(warned(caplog)) == 2
