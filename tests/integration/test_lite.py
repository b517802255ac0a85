"""Lite topics over real connections: exclusive groups and their telling, restarts, admin views."""

import json
import queue
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import grpc
import pytest

import latermq
from latermq_proto.apache.rocketmq.v2 import (
    admin_pb2,
    admin_pb2_grpc,
    definition_pb2,
    service_pb2,
)
from latermq_proto.latermq.v1 import group_pb2, topic_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient, require_ok
from support.wire_requests import message, resource

Code: Final = definition_pb2.Code


class LiteClient(WireClient):
    """A lite push consumer without a library: settings, subscriptions, commands it is told."""

    def __init__(self, endpoint: str, parent: str, group: str, client_id: str) -> None:
        super().__init__(endpoint, client_id)
        self.parent, self.group = parent, group
        self._said: queue.SimpleQueue[service_pb2.TelemetryCommand | None] = queue.SimpleQueue()

    def connect(self, kind: Any = definition_pb2.LITE_PUSH_CONSUMER) -> definition_pb2.Settings:
        settings = definition_pb2.Settings(client_type=kind)
        settings.subscription.group.name = self.group
        entry = settings.subscription.subscriptions.add()
        entry.topic.name = self.parent
        entry.expression.expression = "*"
        self._said.put(service_pb2.TelemetryCommand(settings=settings))
        self._stream = self.messaging.Telemetry(
            iter(self._said.get, None),
            metadata=wire_requests.metadata(self.client_id),
            timeout=patient(60),
        )
        told = self.told()
        if not told.HasField("settings"):  # it says why, and ends
            self.told()
        return told.settings

    def told(self) -> service_pb2.TelemetryCommand:
        command: service_pb2.TelemetryCommand = next(self._stream)
        return command

    def sync(self, *names: str, action: Any = definition_pb2.PARTIAL_ADD) -> int:
        request = service_pb2.SyncLiteSubscriptionRequest(
            action=action,
            topic=resource(self.parent),
            group=resource(self.group),
            lite_topic_set=names,
        )
        code: int = self.call(self.messaging.SyncLiteSubscription, request).status.code
        return code

    def tell(self, lite_topic: str, body: str) -> None:
        made = message(self.parent, body.encode())
        made.system_properties.lite_topic = lite_topic
        require_ok(self.send(made))

    def hear(self, wait_ms: int = 0) -> list[tuple[str, str]]:
        got = self.receive(self.parent, self.group, wait_ms=wait_ms).messages
        for one in got:
            assert one.system_properties.message_type == definition_pb2.LITE
            require_ok(self.ack(self.parent, self.group, one.system_properties.receipt_handle))
        return [(one.system_properties.lite_topic, one.body.decode()) for one in got]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._said.put(None)
        super().__exit__()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    config = "[server]\npolling_ms_min = 100\n[admin]\nbeyond_loopback = true\n"
    with BrokerProcess(tmp_path / "data", config=config) as process:
        yield process.start()


@pytest.fixture
def operator(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.endpoint, "operator@1@0@test") as client:
        client.create_topic("chat", type=topic_pb2.LITE)
        client.create_topic("news", type=topic_pb2.LITE)
        yield client


def client(broker: BrokerProcess, client_id: str, group: str = "agents") -> LiteClient:
    return LiteClient(broker.endpoint, "chat", group, f"{client_id}@1@0@test")


def test_settings_subscriptions_and_order(broker: BrokerProcess, operator: WireClient) -> None:
    with client(broker, "one") as one, client(broker, "two") as two:
        for each in (one, two):
            settings = each.connect().subscription
            assert settings.fifo
            assert (settings.lite_subscription_quota, settings.max_lite_topic_size) == (2_000, 64)
        assert one.hear(wait_ms=0) == []  # its group is bound now, and not one for whole topics
        assert one.sync("a", "b") == Code.OK
        assert two.sync("b") == Code.OK
        one.tell("b", "b0")
        assert two.hear() == [("b", "b0")]
        first = one.receive("chat", "agents", wait_ms=0)
        assert first.messages == []
        one.tell("a", "a0")
        one.tell("a", "a1")
        assert one.hear() == [("a", "a0"), ("a", "a1")]
        assert two.hear() == []


def test_an_exclusive_lite_topic_is_its_last_subscribers(
    broker: BrokerProcess, operator: WireClient
) -> None:
    wanted = group_pb2.Group(name="agents", lite_topics_of="chat", lite_exclusive=True)
    request = group_pb2.CreateGroupRequest(group=wanted)
    require_ok(operator.call(operator.groups.CreateGroup, request))
    with client(broker, "one") as one, client(broker, "two") as two:
        one.connect()
        two.connect()
        assert one.sync("a", "b") == Code.OK
        assert two.sync("b") == Code.OK
        assert one.told().notify_unsubscribe_lite_command.lite_topic == "b"
        one.tell("b", "b0")
        assert one.hear() == []
        assert two.hear() == [("b", "b0")]
        two.sync("b", action=definition_pb2.PARTIAL_REMOVE)
        assert one.sync("a", "b") == Code.OK
        one.tell("b", "b1")
        assert one.hear() == [("b", "b1")]


def test_clients_of_the_other_kind_are_refused_with_their_settings(
    broker: BrokerProcess, operator: WireClient
) -> None:
    with client(broker, "one") as one, client(broker, "two") as two:
        one.connect()
        one.sync("a")
        with pytest.raises(grpc.RpcError) as refused:
            two.connect(definition_pb2.PUSH_CONSUMER)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with client(broker, "three") as three:
        three.parent = "news"
        with pytest.raises(grpc.RpcError) as refused:
            three.connect()
        assert "lite topics of chat, not of news" in str(refused.value.details())


def test_after_a_restart_the_next_sync_is_enough(
    broker: BrokerProcess, operator: WireClient
) -> None:
    with client(broker, "one") as one:
        one.connect()
        one.sync("a")
        one.tell("a", "a0")
        one.tell("a", "a1")
        [first, _] = one.receive("chat", "agents").messages
        require_ok(one.ack("chat", "agents", first.system_properties.receipt_handle))
        one.tell("b", "b0")
    broker.kill()
    broker.start()
    with client(broker, "one") as one:
        one.connect()
        assert one.hear(wait_ms=0) == []
        assert one.sync("a", "b", action=definition_pb2.COMPLETE_ADD) == Code.OK
        assert one.hear() == [("b", "b0")]  # a1 is leased still


def test_admin_views(broker: BrokerProcess, operator: WireClient) -> None:
    with client(broker, "one") as one, grpc.insecure_channel(broker.endpoint) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        one.connect()
        one.sync("a")
        one.tell("a", "a0")
        one.tell("a", "a1")
        one.tell("b", "b0")
        one.receive("chat", "agents", count_max=1)
        asked = admin_pb2.DescribeGroupAccumulationRequest(group=resource("agents"))
        asked.lite_topic = "a"
        told = admin.DescribeGroupAccumulation(asked)
        lite = told.lite_topic_accumulation["a"]
        assert (lite.inflight_messages, lite.ready_messages) == (1, 1)
        asked.lite_topic = "nothing"
        assert admin.DescribeGroupAccumulation(asked).status.code == Code.NOT_FOUND
        listed = admin.ListSubscription(admin_pb2.ListSubscriptionRequest(group=resource("agents")))
        [info] = listed.subscription_info
        assert info.message_model == admin_pb2.LITE_SELECTIVE
        connections = admin_pb2.ListConsumerConnectionRequest(group=resource("agents"))
        for lite_topic, count in (("a", 1), ("b", 0)):
            connections.liteTopic = lite_topic
            assert len(admin.ListConsumerConnection(connections).client_info) == count


async def test_the_sdk_and_the_command_line_send(
    broker: BrokerProcess, operator: WireClient
) -> None:
    async with latermq.connect(broker.endpoint) as mq:
        await mq.send("chat", b"from the sdk", lite_topic="a")

    def cli(*words: str) -> str:
        command = [sys.executable, "-m", "latermq_broker", *words, "--endpoint", broker.endpoint]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=patient(30), check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    cli("send", "chat", "from the shell", "--lite-topic", "a")
    made = cli("group", "create", "agents", "--lite-topics-of", "chat")
    assert "lite topics of chat" in made
    with client(broker, "one") as one:
        one.connect(definition_pb2.LITE_SIMPLE_CONSUMER)
        one.sync("a")
        assert one.hear() == [("a", "from the sdk"), ("a", "from the shell")]
    got = json.loads(cli("receive", "chat", "--group", "whole", "--json"))
    assert (got["lite_topic"], got["body"]) == ("a", "from the sdk")
