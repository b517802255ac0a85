"""What the console changes of topics, groups and rights: told before, asked twice, then done."""

import asyncio
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import latermq
from latermq import admin
from latermq.errors import GroupNotFoundError, TopicNotFoundError
from latermq_proto.latermq.v1 import group_pb2, topic_pb2, user_pb2
from support import console_story as shop
from support.broker_process import BrokerProcess
from support.console_rig import visiting

ROOT, SECRET = "root", "the-secret-of-root"
SHOP, SHOP_SECRET = "support", "the-secret-of-support"
CONFIG = f'[auth]\nenabled = true\nroot_access_key = "{ROOT}"\nroot_secret_key = "{SECRET}"\n'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("console-changes") / "data") as broker:
        yield broker.start()


@pytest.fixture
def endpoint(broker: BrokerProcess) -> str:
    return broker.endpoint


def topic_of(endpoint: str, name: str) -> Any:
    with admin.connect(endpoint) as broker:
        request = topic_pb2.GetTopicRequest(name=name)
        return broker.call(broker.topics.GetTopic, request).topic


def group_of(endpoint: str, name: str) -> Any:
    with admin.connect(endpoint) as broker:
        request = group_pb2.GetGroupRequest(name=name)
        return broker.call(broker.groups.GetGroup, request).group


async def test_a_topic_is_made_changed_and_deleted(endpoint: str, name: str) -> None:
    async with visiting(endpoint) as (_, visitor), latermq.connect(endpoint) as mq:
        await visitor.get("/topics")
        await visitor.post("/topics", name=name, type="delay", queues="2", retention="12h")
        assert (visitor.path, visitor.status) == (f"/topics/{name}", 200)
        made = topic_of(endpoint, name)
        assert (made.type, made.queue_count) == (topic_pb2.DELAY, 2)
        assert (made.kept_ms, made.HasField("unread_retention_ms")) == (12 * 3_600_000, False)

        await visitor.post(f"/topics/{name}", type="", queues="3", unread_retention="7d",
                           back=f"/topics/{name}")  # fmt: skip
        assert f"topic {name} changed" in visitor.page
        altered = topic_of(endpoint, name)
        assert (altered.type, altered.queue_count) == (topic_pb2.DELAY, 3)
        assert altered.unread_kept_ms == 7 * 86_400_000
        for fields, words in (
            ({"queues": "1"}, "Not done"), ({"queues": ""}, "say what to change"),
            ({"retention": "soon"}, "retention:"), ({"type": "odd"}, "the type is one of"),
        ):  # fmt: skip
            await visitor.post(f"/topics/{name}", **fields, back=f"/topics/{name}")
            assert words in visitor.page
        assert topic_of(endpoint, name).queue_count == 3

        await mq.send(name, b"later", delay=timedelta(hours=1))
        page = await visitor.get(f"/topics/{name}/delete")
        assert "<b>0</b> stored, <b>1</b> delayed" in page
        await visitor.post(f"/topics/{name}/delete", typed="another", back=f"/topics/{name}")
        assert "nothing was changed" in visitor.page
        assert topic_of(endpoint, name).delayed_count == 1
        await visitor.get(f"/topics/{name}/delete")
        await visitor.post(f"/topics/{name}/delete", typed=name)
        assert f"topic {name} deleted" in visitor.page
        with pytest.raises(TopicNotFoundError):
            topic_of(endpoint, name)


async def test_a_policy_is_changed(endpoint: str, name: str) -> None:
    await shop.make_groups(endpoint, name, fifo=True)
    here = f"/groups/{name}"
    async with visiting(endpoint) as (_, visitor):
        page = await visitor.get(here)
        assert 'value="40ms 120ms"' in page
        await visitor.post(here, max_attempts="5", backoff="40ms 120ms", on_dead="skip", back=here)
        assert f"policy of group {name} changed" in visitor.page
        group = group_of(endpoint, name)
        assert (group.max_attempts, group.on_dead) == (5, group_pb2.SKIP)
        assert list(group.backoff.ladder.delays_ms) == [40, 120]
        await visitor.post(here, max_attempts="5", backoff="fixed 10s", on_dead="skip", back=here)
        assert group_of(endpoint, name).backoff.WhichOneof("policy") is not None
        await visitor.post(here, max_attempts="5", backoff="default", on_dead="skip", back=here)
        assert group_of(endpoint, name).backoff.WhichOneof("policy") is None
        for fields, words in (
            ({"backoff": "sometimes"}, "sometimes"), ({"max_attempts": "many"}, "a whole number"),
            ({"backoff": "default", "on_dead": "skip"}, "say what to change"),
        ):  # fmt: skip
            await visitor.post(here, **fields, back=here)
            assert words in visitor.page


async def test_a_group_is_moved_back_and_deleted(endpoint: str, name: str) -> None:
    await shop.make_topic(endpoint, name, queues=1)
    await shop.make_groups(endpoint, name)
    here = f"/groups/{name}"
    async with visiting(endpoint) as (_, visitor), latermq.connect(endpoint) as mq:
        await shop.send_orders(mq, ["fine"] * 6, topic=name)
        await shop.work(mq, 6, topic=name, group=name)
        page = await visitor.get(f"{here}/reset?topic={name}&to=earliest")
        assert "<b>6</b> to be read again, <b>0</b> skipped" in page
        to_ms = re.findall(r'name="to_ms" value="(\d+)"', page)[0]
        assert to_ms == "0"
        await visitor.post(f"{here}/reset", topic=name, to_ms=to_ms, back=here)
        assert "say that you are sure" in visitor.page
        assert group_of(endpoint, name).progress.ready_count == 0
        await visitor.post(f"{here}/reset", topic=name, to_ms=to_ms, sure="yes", back=here)
        assert f"{name} goes on in {name} from offset 0" in visitor.page
        assert group_of(endpoint, name).progress.ready_count == 6
        page = await visitor.get(f"{here}/reset?topic={name}&to=now")
        assert "<b>0</b> to be read again, <b>6</b> skipped" in page
        assert "<b>0</b> skipped" in await visitor.get(f"{here}/reset?topic={name}&to=1h")
        for wrong in ("", "soon"):
            await visitor.get(f"{here}/reset?topic={name}&to={wrong}")
            assert visitor.status == 400

        await visitor.get(f"{here}/delete")
        await visitor.post(f"{here}/delete", typed="", back=here)
        assert "nothing was changed" in visitor.page
        await visitor.post(f"{here}/delete", typed=name)
        assert f"group {name} deleted" in visitor.page
        with pytest.raises(GroupNotFoundError):
            group_of(endpoint, name)


async def test_who_has_no_right_changes_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    with BrokerProcess(tmp_path_factory.mktemp("rights") / "data", config=CONFIG) as broker:
        await asyncio.to_thread(broker.start)
        with admin.connect(broker.endpoint, access_key=ROOT, secret=SECRET) as root:
            root.call(root.topics.CreateTopic, topic_pb2.CreateTopicRequest(name="orders"))
            root.call(root.groups.CreateGroup, shop.policy("billing"))
            made = user_pb2.CreateUserRequest(access_key=SHOP, secret=SHOP_SECRET)
            root.call(root.users.CreateUser, made)
            async with visiting(broker.endpoint) as (_, visitor):
                await visitor.sign_in(ROOT, SECRET)
                await visitor.get("/access")
                for verb, rights in (("grant", ["browse", "sub"]), ("revoke", ["sub"])):
                    await visitor.post(
                        "/access/rights", user=SHOP, kind="group", pattern="billing", verb=verb,
                        right=rights,
                    )  # fmt: skip
                assert f"{SHOP} may no longer sub on group billing" in visitor.page
                for fields, words in (
                    ({"kind": "group", "verb": "grant", "pattern": "x"}, "choose some rights"),
                    ({"kind": "planet", "verb": "grant", "pattern": "x"}, "topic or group"),
                ):
                    await visitor.post("/access/rights", user=SHOP, **fields, back="/access")
                    assert words in visitor.page
            lookup = user_pb2.GetUserRequest(access_key=SHOP)
            (grant,) = root.call(root.users.GetUser, lookup).user.grants
            assert (grant.pattern, list(grant.rights)) == ("billing", ["browse"])
            async with visiting(broker.endpoint) as (_, visitor):
                await visitor.sign_in(SHOP, SHOP_SECRET)
                await visitor.get("/groups/billing")
                assert visitor.status == 200
                for path, fields in (
                    ("/topics", {"name": "mine"}),
                    ("/topics/orders", {"queues": "64"}),
                    ("/topics/orders/delete", {"typed": "orders"}),
                    ("/groups/billing", {"max_attempts": "9"}),
                    ("/groups/billing/delete", {"typed": "billing"}),
                    ("/groups/billing/reset", {"topic": "orders", "to_ms": "0", "sure": "yes"}),
                    ("/access/rights", {"user": SHOP, "kind": "group", "pattern": "*",
                                        "right": "purge", "verb": "grant"}),
                ):  # fmt: skip
                    await visitor.post(path, **fields, back="/groups/billing")
                    assert "Not done" in visitor.page, path
                    assert visitor.path == "/groups/billing"
                visitor.page = ""
                await visitor.post("/topics/orders/delete", typed="orders")
                assert visitor.status == 403, "a form without this session's token"
            kept = root.call(root.groups.GetGroup, group_pb2.GetGroupRequest(name="billing")).group
            assert kept.max_attempts == shop.ATTEMPTS
            root.call(root.topics.GetTopic, topic_pb2.GetTopicRequest(name="orders"))
