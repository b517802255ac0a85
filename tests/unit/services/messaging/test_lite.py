"""SyncLiteSubscription and what follows from it: codes, quotas, who is given what."""

import asyncio
from dataclasses import replace
from typing import Any, Final

import pytest

from latermq_broker.config.config import CatalogConfig, LiteConfig
from latermq_broker.engine.state.model import TopicType
from latermq_broker.services.clients.lite_subscriptions import SLACK
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from support.engine_rig import START_MS
from support.fake_call import FakeCall
from support.messaging import SMALL, Messaging
from support.wire_requests import message, resource

Code: Final = definition_pb2.Code
ADD, REMOVE = definition_pb2.PARTIAL_ADD, definition_pb2.PARTIAL_REMOVE
ALL, NONE = definition_pb2.COMPLETE_ADD, definition_pb2.COMPLETE_REMOVE
FEW: Final = replace(
    SMALL, lite=LiteConfig(topics_per_parent_max=2, subscriptions_per_client_max=2)
)


class Chat(Messaging):
    """With a parent `chat` and another one."""

    def __init__(self, config: Any = SMALL) -> None:
        super().__init__(config)
        for name, kind in (("chat", TopicType.LITE), ("news", TopicType.LITE)):
            self.engine.topics.create(name, kind, 0, START_MS)
        self.engine.topics.create("orders", TopicType.MIXED, 1, START_MS)

    async def sync(
        self, *names: str, action: Any = ADD, client: str = "c1", **fields: Any
    ) -> definition_pb2.Status:
        request = service_pb2.SyncLiteSubscriptionRequest(
            action=action,
            topic=resource(fields.pop("topic", "chat")),
            group=resource(fields.pop("group", "agents")),
            lite_topic_set=names,
            **fields,
        )
        answer = await self.call("SyncLiteSubscription", request, FakeCall(client_id=client))
        status: definition_pb2.Status = answer.status
        return status

    async def tell(self, lite_topic: str, *bodies: str) -> int:
        messages = [message("chat", body.encode()) for body in bodies]
        for one in messages:
            one.system_properties.lite_topic = lite_topic
        return (await self.send(*messages)).status.code

    async def hear(self, client: str = "c1", **fields: Any) -> list[str]:
        """Bodies, each acknowledged."""
        fields.setdefault("group", "agents")
        got = await self.receive("chat", call=FakeCall(client_id=client), **fields)
        handles = [one.system_properties.receipt_handle for one in got.messages]
        if handles:
            await self.ack(*handles, topic="chat", group=fields["group"])
        return [one.body.decode() for one in got.messages]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": ""}, Code.ILLEGAL_TOPIC),
        ({"topic": "a b"}, Code.ILLEGAL_TOPIC),
        ({"topic": "nothing"}, Code.TOPIC_NOT_FOUND),
        ({"topic": "orders"}, Code.ILLEGAL_TOPIC),
        ({"group": ""}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"group": "whole"}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"group": "readers"}, Code.ILLEGAL_TOPIC),
        ({"action": 9}, Code.BAD_REQUEST),
        ({"offset_option": {"offset": -1}}, Code.BAD_REQUEST),
        ({"offset_option": {"policy": 9}}, Code.BAD_REQUEST),
        ({"offset_option": {"timestamp": 1}}, Code.OK),
        ({}, Code.OK),
    ],
)
async def test_codes(fields: dict[str, Any], code: int) -> None:
    async with Chat() as chat:
        chat.engine.ensure_group("whole", START_MS)
        chat.engine.lites.bind("readers", "news", START_MS)
        status = await chat.sync("a", **fields)
        assert status.code == code, status.message
        assert await chat.hear(client="c1") == []


@pytest.mark.parametrize("name", ["", " ", "a b", "ä", "l" * 65])
async def test_names(name: str) -> None:
    async with Chat() as chat:
        for action in (ADD, ALL):
            assert (await chat.sync("fine", name, action=action)).code == Code.ILLEGAL_LITE_TOPIC
        assert chat.lite.names("c1") == frozenset()
        assert (await chat.sync(name, action=REMOVE)).code == Code.OK


async def test_a_group_that_may_not_be_made() -> None:
    strict = replace(SMALL, catalog=CatalogConfig(auto_create=False, auto_create_groups=False))
    async with Chat(strict) as chat:
        assert (await chat.sync("a")).code == Code.ILLEGAL_CONSUMER_GROUP


async def test_the_answer_waits_for_the_group_and_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Chat() as chat:
        await chat.tell("a", "before")
        log, acknowledged, ends = chat.engine.store.log, chat.pump.acknowledged, []

        def waiting(answer: bytes) -> Any:
            ends.append(log.end)
            return acknowledged(answer)

        monkeypatch.setattr(chat.pump, "acknowledged", waiting)
        before = log.end
        await chat.sync("a", offset_option={"policy": definition_pb2.OffsetOption.LAST})
        assert ends == [log.end]
        assert log.end > before


async def test_what_a_client_chose_is_what_it_gets() -> None:
    async with Chat() as chat:
        for name in ("a", "b", "c"):
            await chat.tell(name, f"{name}0", f"{name}1")
        chat.engine.lites.bind("agents", "chat", START_MS)
        assert await chat.hear() == []
        await chat.sync("a", "b")
        await chat.sync("a")  # once more, from another endpoint of the route
        assert sorted(await chat.hear()) == ["a0", "a1", "b0", "b1"]
        await chat.sync("c", "b", action=ALL)
        await chat.sync("b", action=REMOVE)
        for name in ("a", "b"):
            await chat.tell(name, f"{name}2")
        assert await chat.hear() == ["c0", "c1"]
        await chat.sync(action=NONE)
        await chat.tell("c", "c2")
        assert await chat.hear() == []
        assert await chat.hear(client="c2") == []  # never subscribed
        await chat.sync("c", "a", client="c2")
        assert sorted(await chat.hear(client="c2")) == ["a2", "c2"]


async def test_an_older_whole_set_changes_nothing() -> None:
    async with Chat() as chat:
        await chat.sync("a", action=ALL, version=5)
        await chat.sync("b", action=ALL, version=4)
        assert chat.lite.names("c1") == {"a"}
        await chat.sync("b", action=ALL, version=6)
        assert chat.lite.names("c1") == {"b"}


async def test_one_waits_for_what_it_subscribes_to_later() -> None:
    async with Chat() as chat:
        await chat.sync("a")
        await chat.tell("b", "b0")
        waiting = chat.receive("chat", "agents", wait_ms=5_000, call=FakeCall(client_id="c1"))
        task = asyncio.ensure_future(waiting)
        await chat.settle()
        assert not task.done()
        await chat.sync("b")
        await chat.settle()
        assert [one.body for one in (await task).messages] == [b"b0"]


async def test_quotas_have_their_codes() -> None:
    async with Chat(FEW) as chat:
        many = [f"n{number}" for number in range(SLACK + 2)]
        assert (await chat.sync(*many)).code == Code.OK
        for action in (ADD, ALL):
            status = await chat.sync(*many, "more", action=action)
            assert status.code == Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
        assert len(chat.lite.names("c1")) == SLACK + 2
        assert (await chat.sync("n0", action=REMOVE)).code == Code.OK
        assert [await chat.tell(name, "x") for name in ("a", "b", "a")] == [Code.OK] * 3
        assert await chat.tell("c", "x") == Code.LITE_TOPIC_QUOTA_EXCEEDED


async def test_so_many_syncs_in_a_second() -> None:
    async with Chat(replace(SMALL, lite=LiteConfig(syncs_per_second_max=2))) as chat:
        codes = [(await chat.sync("a")).code for _ in range(3)]
        assert codes == [Code.OK, Code.OK, Code.TOO_MANY_REQUESTS]
        await chat.advance(1_000)
        assert (await chat.sync("a")).code == Code.OK


async def test_so_many_subscriptions_of_all_clients() -> None:
    async with Chat(replace(SMALL, lite=LiteConfig(subscriptions_max=2))) as chat:
        assert (await chat.sync("a", "b")).code == Code.OK
        assert (await chat.sync("a", client="c2")).code == Code.TOO_MANY_REQUESTS
        await chat.sync("a", action=REMOVE)
        assert (await chat.sync("a", client="c2")).code == Code.OK


@pytest.mark.parametrize("action", [ADD, ALL])
async def test_who_is_refused_keeps_what_it_read_elsewhere(action: Any) -> None:
    async with Chat(replace(SMALL, lite=LiteConfig(subscriptions_max=3))) as chat:
        assert (await chat.sync("a")).code == Code.OK
        assert (await chat.sync("x", client="c2")).code == Code.OK
        other = {"topic": "news", "group": "readers", "action": action}
        assert (await chat.sync("a", "b", "c", **other)).code == Code.TOO_MANY_REQUESTS
        assert chat.lite.names("c1") == {"a"}
        await chat.tell("a", "a0")
        assert await chat.hear() == ["a0"]
        assert (await chat.sync("a", "b", **other)).code == Code.OK  # it makes room for itself
        assert chat.lite.names("c1") == {"a", "b"}
        chat.lite.expire(START_MS + 180_000)
        assert chat.lite.names("c1") == {"a", "b"}


async def test_who_is_refused_is_not_heard_of() -> None:
    async with Chat(replace(SMALL, lite=LiteConfig(subscriptions_max=1))) as chat:
        await chat.sync("a")
        await chat.advance(100_000)
        assert (await chat.sync("a", "b")).code == Code.TOO_MANY_REQUESTS
        assert (await chat.sync("b", client="c2")).code == Code.TOO_MANY_REQUESTS
        assert list(chat.lite._clients) == ["c1"]
        chat.lite.expire(START_MS + 180_001)
        assert not chat.lite._clients


async def test_what_nobody_repeats_is_forgotten() -> None:
    async with Chat() as chat:
        await chat.sync("a")
        await chat.tell("a", "a0")
        chat.lite.expire(START_MS + 180_000)
        assert chat.lite.names("c1") == {"a"}
        chat.lite.expire(START_MS + 180_001)
        assert await chat.hear() == []


@pytest.mark.parametrize(
    ("option", "heard"),
    [
        ({"policy": definition_pb2.OffsetOption.MIN}, ["a0", "a1", "a2"]),
        ({"policy": definition_pb2.OffsetOption.MAX}, []),
        ({"policy": definition_pb2.OffsetOption.LAST}, ["a2"]),
        ({"offset": 1}, ["a1", "a2"]),
        ({"tail_n": 1}, ["a1", "a2"]),
        ({"tail_n": 9}, ["a0", "a1", "a2"]),
    ],
)
async def test_where_a_new_subscription_begins(option: dict[str, int], heard: list[str]) -> None:
    async with Chat() as chat:
        await chat.sync("a")
        await chat.tell("a", "a0", "a1")
        assert await chat.hear() == ["a0", "a1"]
        await chat.tell("a", "a2")
        await chat.sync("a", client="c2", offset_option=option)
        await chat.sync("a", client="c2", offset_option=option)  # another endpoint: no effect
        assert await chat.hear(client="c2") == heard
        await chat.tell("a", "a3")
        assert await chat.hear(client="c2") == ["a3"]


async def test_a_group_reads_one_parent() -> None:
    async with Chat() as chat:
        await chat.sync("a")
        got = await chat.receive("news", "agents", call=FakeCall(client_id="c1"))
        assert got.status.code == Code.ILLEGAL_TOPIC


async def test_a_group_for_whole_topics_reads_the_parent_as_one() -> None:
    async with Chat() as chat:
        await chat.tell("a", "a0")
        await chat.tell("b", "b0")
        assert await chat.hear(group="audit") == ["a0", "b0"]


async def test_lite_messages_go_to_parents_only() -> None:
    async with Chat() as chat:
        made = message("orders", b"x")
        made.system_properties.lite_topic = "a"
        status = (await chat.send(made)).status
        assert status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        status = (await chat.send(message("chat", b"x"))).status
        assert status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
