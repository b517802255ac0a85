"""`latermq serve --shards`: official and own clients over three shards, one of which is killed."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import latermq
from interop.official import OfficialClient, text
from latermq_broker.cluster.placement import home_by_name, parse_handle
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2
from latermq_proto.latermq.v1 import group_pb2, topic_pb2
from support import wire_requests
from support.cluster_process import ClusterProcess
from support.machine import patient
from support.wire_client import WireClient, now_ms, require_ok

SHARDS = 3
NAMES = ["shard-00", "shard-01", "shard-02"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    path = tmp_path_factory.mktemp("shards") / "data"
    with ClusterProcess(path, SHARDS, config="[server]\npolling_ms_min = 100\n") as cluster:
        yield cluster.start()


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OfficialClient]:
    with OfficialClient(tmp_path_factory.mktemp("official") / "client") as client:
        yield client


def held(cluster: ClusterProcess, topic: str) -> list[int]:
    """How many messages of the topic each shard has."""
    counts = []
    for endpoint in cluster.endpoints:
        with WireClient(endpoint) as client:
            answer = client.call(client.topics.GetTopic, topic_pb2.GetTopicRequest(name=topic))
            counts.append(answer.topic.message_count)
    return counts


def consumed(
    official: OfficialClient, cluster: ClusterProcess, name: str, count: int
) -> list[dict[str, Any]]:
    """What an official push consumer of the topic is handed, so many at least."""
    fields = {"endpoint": cluster.endpoint, "group": name, "topics": {name: "*"}, "failures": {}}
    official.call("push", name=f"{name}-in", **fields)
    return official.wait_consumed(f"{name}-in", count)


def test_each_shard_routes_to_all_of_them(cluster: ClusterProcess) -> None:
    ports = [int(endpoint.rpartition(":")[2]) for endpoint in cluster.endpoints]
    for endpoint in cluster.endpoints:
        with WireClient(endpoint) as client:
            route = client.route("routed")
        require_ok(route)
        queues = [(queue.broker.name, queue.id) for queue in route.message_queues]
        assert queues == [(name, queue) for queue in range(4) for name in NAMES]
        found = {q.broker.endpoints.addresses[0].port: q.broker.name for q in route.message_queues}
        assert found == dict(zip(ports, NAMES, strict=True))


def test_an_official_client_sends_to_and_receives_from_all(
    cluster: ClusterProcess, official: OfficialClient, name: str
) -> None:
    official.call("producer", name=name, endpoint=cluster.endpoint, topics=[name])
    for number in range(60):
        official.call("send", name=name, topic=name, text=str(number))
    assert min(held(cluster, name)) >= 10, "sends take turns"
    messages = consumed(official, cluster, name, 60)
    assert Counter(map(text, messages)) == Counter(map(str, range(60)))


def test_an_official_simple_consumer_asks_each_in_turns(
    cluster: ClusterProcess, official: OfficialClient, name: str
) -> None:
    official.call("producer", name=name, endpoint=cluster.endpoint, topics=[name])
    for number in range(12):
        official.call("send", name=name, topic=name, text=str(number))
    fields = {"group": name, "topics": {name: "*"}, "wait_s": 1}
    official.call("simple", name=f"{name}-in", endpoint=cluster.endpoint, **fields)
    got: list[str] = []
    for _ in range(60):
        for message in official.call("receive", name=f"{name}-in"):
            got.append(text(message))
            official.call("ack", name=f"{name}-in", ref=message["ref"])
        if len(got) == 12:
            break
    assert sorted(map(int, got)) == list(range(12))


def test_message_groups_have_one_shard_whoever_sends(
    cluster: ClusterProcess, official: OfficialClient, name: str
) -> None:
    """A mixed topic spreads; what has a message group goes home, in order."""
    official.call("producer", name=name, endpoint=cluster.endpoint, topics=[name])
    for number in range(20):
        fields = {
            "topic": name,
            "text": f"{number % 4} {number}",
            "message_group": f"g{number % 4}",
        }
        official.call("send", name=name, **fields)
    home = home_by_name(name, SHARDS)
    assert held(cluster, name) == [20 if number == home else 0 for number in range(SHARDS)]
    messages = consumed(official, cluster, name, 20)
    assert {text(message) for message in messages} == {f"{n % 4} {n}" for n in range(20)}


def test_a_dedup_id_has_one_shard_whoever_sends(cluster: ClusterProcess, name: str) -> None:
    """So each shard answers with what the home has stored, of a topic that spreads, too."""
    typed(cluster, name, topic_pb2.NORMAL)
    once = {"LATERMQ_DEDUP_ID": "order-17"}
    entries: list[service_pb2.SendResultEntry] = []
    for endpoint in cluster.endpoints:
        with WireClient(endpoint) as client:
            answer = client.send(wire_requests.message(name, b"x", properties=once))
            require_ok(answer)
            entries += answer.entries
    assert len({entry.message_id for entry in entries}) == 1
    assert [entry.status.message for entry in entries] == ["OK", "DUPLICATE", "DUPLICATE"]
    home = home_by_name(name, SHARDS)
    assert held(cluster, name) == [int(number == home) for number in range(SHARDS)]


def typed(cluster: ClusterProcess, name: str, kind: topic_pb2.TopicType) -> int:
    """Make a topic of the type, asking the last shard; its home."""
    with WireClient(cluster.endpoints[2]) as client:
        client.create_topic(name, type=kind)
    return home_by_name(name, SHARDS)


def test_a_fifo_topic_is_at_home_in_order(
    cluster: ClusterProcess, official: OfficialClient, name: str
) -> None:
    home = typed(cluster, name, topic_pb2.FIFO)
    with WireClient(cluster.endpoints[0]) as client:
        group = group_pb2.Group(name=name, fifo=True)
        request = group_pb2.CreateGroupRequest(group=group)
        require_ok(client.call(client.groups.CreateGroup, request))
        route = client.route(name)
        assert {queue.broker.name for queue in route.message_queues} == {NAMES[home]}
    official.call("producer", name=name, endpoint=cluster.endpoints[1], topics=[name])
    for number in range(20):
        fields = {"text": f"{number % 3} {number}", "message_group": f"g{number % 3}"}
        official.call("send", name=name, topic=name, **fields)
    assert held(cluster, name)[home] == 20
    numbers = [tuple(map(int, text(m).split())) for m in consumed(official, cluster, name, 20)]
    for group_number in range(3):
        own = [number for group, number in numbers if group == group_number]
        assert own == list(range(group_number, 20, 3))


def test_a_send_to_the_wrong_shard_goes_home(cluster: ClusterProcess, name: str) -> None:
    """As of a client whose route is old: to a priority topic, by each shard."""
    home = typed(cluster, name, topic_pb2.PRIORITY)
    for number, endpoint in enumerate(cluster.endpoints):
        message = wire_requests.message(name, b"%d" % number)
        message.system_properties.message_type = v2.PRIORITY
        message.system_properties.priority = number
        with WireClient(endpoint) as client:
            require_ok(client.send(message))
    assert held(cluster, name) == [SHARDS if number == home else 0 for number in range(SHARDS)]


async def test_lite_topics_are_at_home(cluster: ClusterProcess, name: str) -> None:
    typed(cluster, name, topic_pb2.LITE)
    with WireClient(cluster.endpoints[1]) as client:
        group = group_pb2.Group(name=name, lite_topics_of=name)
        request = group_pb2.CreateGroupRequest(group=group)
        require_ok(client.call(client.groups.CreateGroup, request))
    async with latermq.connect(cluster.endpoints[1]) as mq:
        for number in range(4):
            await mq.send(name, b"%d" % number, lite_topic=f"chat-{number % 2}")
        async with (
            asyncio.timeout(patient(30)),
            mq.lite_push_consumer(name, group=name) as consumer,
        ):
            await consumer.subscribe("chat-0", "chat-1", begin=latermq.Begin())
            got = []
            async for delivery in consumer:
                async with delivery:
                    got.append(delivery.body)
                if len(got) == 4:
                    break
    assert sorted(got) == [b"0", b"1", b"2", b"3"]


def test_transactions_of_a_topic_with_a_home(
    cluster: ClusterProcess, official: OfficialClient, name: str
) -> None:
    typed(cluster, name, topic_pb2.TRANSACTION)
    fields: dict[str, Any] = {"endpoint": cluster.endpoint, "topics": [name], "verdicts": {}}
    official.call("producer", name=name, **fields)
    for number in range(4):
        ref = official.call("begin", name=name, topic=name, text=str(number))["ref"]
        official.call("end", name=name, ref=ref, resolution="commit" if number else "rollback")
    messages = consumed(official, cluster, name, 3)
    assert sorted(map(text, messages)) == ["1", "2", "3"]


def test_a_transaction_ends_where_it_began(
    cluster: ClusterProcess, official: OfficialClient, name: str
) -> None:
    fields: dict[str, Any] = {"endpoint": cluster.endpoint, "topics": [name], "verdicts": {}}
    official.call("producer", name=name, **fields)
    refs = [official.call("begin", name=name, topic=name, text=str(n))["ref"] for n in range(6)]
    for number, ref in enumerate(refs):
        official.call("end", name=name, ref=ref, resolution="rollback" if number % 2 else "commit")
    messages = consumed(official, cluster, name, 3)
    assert sorted(map(text, messages)) == ["0", "2", "4"]


def test_any_shard_recalls_and_ends_transactions_of_another(
    cluster: ClusterProcess, name: str
) -> None:
    delayed = wire_requests.message(name, b"late", deliver_at_ms=now_ms() + 3_600_000)
    with WireClient(cluster.endpoints[1]) as sender:
        (entry,) = sender.send(delayed).entries
    assert parse_handle(entry.recall_handle)[1] == 1
    for endpoint in (cluster.endpoints[2], cluster.endpoints[0]):
        with WireClient(endpoint) as other:
            request = service_pb2.RecallMessageRequest(
                topic=wire_requests.resource(name), recall_handle=entry.recall_handle
            )
            answer = other.call(other.messaging.RecallMessage, request)
        if endpoint == cluster.endpoints[2]:
            require_ok(answer)
            assert answer.message_id == entry.message_id
    assert "has no delayed message" in answer.status.message, "once"


async def test_the_sdk_sends_to_and_receives_from_all(cluster: ClusterProcess, name: str) -> None:
    async with latermq.connect(cluster.endpoint) as mq:
        for number in range(30):
            await mq.send(name, str(number).encode())
        assert min(held(cluster, name)) == 10
        bodies: list[bytes] = []
        async with asyncio.timeout(patient(30)):
            async with mq.push_consumer(name, group=name) as pushed:
                async for delivery in pushed:
                    async with delivery:
                        bodies.append(delivery.body)
                    if len(bodies) == 30:
                        break
            assert sorted(map(int, bodies)) == list(range(30))
            async with mq.simple_consumer(name, group=f"{name}-2") as asked:
                again: list[bytes] = []
                while len(again) < 30:
                    for delivery in await asked.receive(10, wait=timedelta(seconds=5)):
                        again.append(delivery.body)
                        await delivery.ack()
        assert sorted(again) == sorted(bodies)


async def test_one_shard_killed_the_others_serve_and_it_comes_back(
    cluster: ClusterProcess, name: str
) -> None:
    """Nothing that was acknowledged is lost; sends go to the others meanwhile."""
    sent: set[bytes] = set()
    async with latermq.connect(cluster.endpoint) as mq:
        for number in range(15):
            await mq.send(name, b"before %d" % number)
            sent.add(b"before %d" % number)
        before = cluster.pids()
        cluster.kill_shard(2)
        for number in range(15):
            await mq.send(name, b"after %d" % number)
            sent.add(b"after %d" % number)
        await asyncio.to_thread(cluster.wait_log, "shard serves shard=2", 2)
        cluster.wait_log("shard ended, it is started again shard=2 code=-9")
        after = cluster.pids()
        assert (after[0], after[1]) == (before[0], before[1])
        assert after[2] != before[2]
        bodies: set[bytes] = set()
        async with (
            asyncio.timeout(patient(30)),
            mq.push_consumer(name, group=name) as consumer,
        ):
            async for delivery in consumer:
                async with delivery:
                    bodies.add(delivery.body)
                if bodies >= sent:
                    break
    assert bodies == sent


def test_all_are_replaced_while_they_serve(cluster: ClusterProcess, name: str) -> None:
    with WireClient(cluster.endpoints[1]) as client:
        require_ok(client.send(wire_requests.message(name, b"stays")))
        ended = cluster.replace()
        assert ended.code == 0, ended.stderr
        require_ok(client.send(wire_requests.message(name, b"too")))
    assert held(cluster, name)[1] == 2
