"""A topic that is deleted while a worker consumes it."""

import logging

import pytest

import latermq
from latermq._connection import refusals
from latermq.testing import HeldBroker
from latermq_proto.latermq.v1.topic_pb2 import CreateTopicRequest, DeleteTopicRequest


async def test_a_deleted_topic_is_told_once_until_it_is_there_again(
    latermq_time: HeldBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "LASTING_S", 0.0)
    app = latermq.App()

    @app.listener("orders", group="billing")
    async def bill(order: str) -> None: ...

    def warnings() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]

    async with latermq_time.connect() as mq, latermq_time.working(app):
        admin = mq.admin
        await latermq_time.advance("1m")
        assert warnings() == []  # it was never there
        await admin.call(admin.topics.CreateTopic, CreateTopicRequest(name="orders"))
        await latermq_time.advance("10s")
        await admin.call(admin.topics.DeleteTopic, DeleteTopicRequest(name="orders"))
        await latermq_time.advance("1m")
        (begin,) = warnings()
        assert begin.startswith(
            "the broker refuses calls of group billing: look-up of orders: topic not found"
        )
        await admin.call(admin.topics.CreateTopic, CreateTopicRequest(name="orders"))
        await latermq_time.advance("10s")
        (_, end) = warnings()
        assert end.startswith("no call of group billing is refused any more, after ")
