"""Shards of several machines: `[cluster]`, one catalogue, users, limits; a shard that was away."""

import asyncio
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import latermq
from latermq import admin
from latermq.errors import LaterMQError
from latermq_broker.transport.lean import TLS_DIRECTORY
from latermq_broker.transport.tls import OWN_CERTIFICATE, OWN_KEY
from latermq_proto.latermq.v1 import cluster_pb2, limit_pb2, topic_pb2, user_pb2
from support import wire_requests
from support.broker_process import BrokerProcess
from support.cluster_process import Machines
from support.machine import patient
from support.wire_client import WireClient, require_ok

ROOT: dict[str, Any] = {"access_key": "root", "secret": "root-secret-1"}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    more = "[catalog]\nauto_create = false\n"
    machines = Machines(tmp_path_factory.mktemp("machines"), more)
    try:
        machines.start()
        yield machines
    finally:
        machines.stop()


@pytest.fixture(autouse=True)
def both_serve(machines: Machines) -> None:
    """Whatever a test before this one left stopped when it failed."""
    for shard in machines.shards:
        if not shard.running:
            shard.start()


def topics(endpoint: str) -> dict[str, str]:
    with WireClient(endpoint) as client:
        answer = client.call(client.topics.ListTopics, topic_pb2.ListTopicsRequest())
    return {topic.name: topic_pb2.TopicType.Name(topic.type) for topic in answer.topics}


def test_what_is_made_anywhere_is_everywhere_at_once(machines: Machines, name: str) -> None:
    for number, kind in ((1, topic_pb2.FIFO), (0, topic_pb2.DELAY)):
        with WireClient(machines.shards[number].endpoint) as client:
            client.create_topic(f"{name}-{number}", type=kind, queue_count=3)
    for shard in machines.shards:
        known = topics(shard.endpoint)
        assert (known[f"{name}-1"], known[f"{name}-0"]) == ("FIFO", "DELAY")


def test_times_of_a_topic_are_those_of_every_shard(machines: Machines, name: str) -> None:
    ours, given = (3_600_000, 7_200_000), topic_pb2.AlterTopicRequest(name=name)
    given.retention_ms, given.dedup_window_ms = ours
    with WireClient(machines.shards[1].endpoint) as client:
        client.create_topic(name, dedup_window_ms=1_000)
        require_ok(client.call(client.topics.AlterTopic, given))
    for shard in machines.shards:
        with WireClient(shard.endpoint) as client:
            asked = topic_pb2.GetTopicRequest(name=name)
            topic = client.call(client.topics.GetTopic, asked).topic
        assert (topic.kept_ms, topic.dedup_kept_ms) == ours


def test_a_type_change_that_would_move_messages_is_refused(machines: Machines, name: str) -> None:
    with WireClient(machines.shards[1].endpoint) as client:
        client.create_topic(name, type=topic_pb2.NORMAL)
        request = topic_pb2.AlterTopicRequest(name=name, type=topic_pb2.FIFO)
        refused = client.call(client.topics.AlterTopic, request)
        assert "cannot become fifo in a cluster" in refused.status.message
        request = topic_pb2.AlterTopicRequest(name=name, type=topic_pb2.MIXED, queue_count=6)
        require_ok(client.call(client.topics.AlterTopic, request))
    assert {topics(shard.endpoint)[name] for shard in machines.shards} == {"MIXED"}


def test_a_shard_that_was_away_has_what_was_changed(machines: Machines, name: str) -> None:
    """Also a topic that was deleted and made anew: its old messages are gone."""
    first, other = machines.shards
    with WireClient(first.endpoint) as client:
        for kind in ("stays", "goes", "anew"):
            client.create_topic(f"{name}-{kind}")
            with WireClient(other.endpoint) as sender:
                require_ok(sender.send(wire_requests.message(f"{name}-{kind}", b"old")))
        client.create_group(f"{name}-group", 3)
        assert other.terminate().code == 0
        for kind in ("goes", "anew"):
            request = topic_pb2.DeleteTopicRequest(name=f"{name}-{kind}")
            require_ok(client.call(client.topics.DeleteTopic, request))
        client.create_topic(f"{name}-anew")
    assert first.terminate().code == 0
    first.start()
    other.start()
    assert "drained=True" in first.terminate().stderr, "nobody is waited for"
    first.start()
    known = topics(other.endpoint)
    assert f"{name}-goes" not in known
    assert known.keys() >= {f"{name}-stays", f"{name}-anew"}
    with WireClient(other.endpoint) as client:
        counts = []
        for kind in ("stays", "anew"):
            asked = topic_pb2.GetTopicRequest(name=f"{name}-{kind}")
            counts.append(client.call(client.topics.GetTopic, asked).topic.message_count)
    assert counts == [1, 0]


def test_without_shard_0_the_others_serve_and_changes_are_refused(
    machines: Machines, name: str
) -> None:
    first, other = machines.shards
    with WireClient(other.endpoint) as client:
        client.create_topic(name)
        assert first.kill().code < 0
        require_ok(client.send(wire_requests.message(name, b"serves")))
        refused = client.call(client.topics.CreateTopic, topic_pb2.CreateTopicRequest(name="x"))
        assert "another shard is to answer this, and does not" in refused.status.message
        other.terminate()
        other.start()
        require_ok(client.send(wire_requests.message(name, b"starts without it")))
        first.start()
        client.create_topic(f"{name}-again")


def test_who_pretends_to_be_a_shard_gets_nothing_by_it(machines: Machines, name: str) -> None:
    """What shard 0 decides is made nowhere else, though the call says that it was sent on."""
    first, other = machines.shards
    sent_on = ("x-latermq-forwarded", "0")
    with WireClient(other.endpoint) as client:
        request = topic_pb2.CreateTopicRequest(name=name)
        refused = client.call(client.topics.CreateTopic, request, sent_on)
        assert "shard 0 is to answer this, not shard 1" in refused.status.message
        assert name not in topics(other.endpoint)
        require_ok(client.call(client.topics.CreateTopic, request))
    with WireClient(first.endpoint) as client:  # which decides, whoever asks
        require_ok(
            client.call(
                client.topics.CreateTopic, topic_pb2.CreateTopicRequest(name=f"{name}-2"), sent_on
            )
        )
    assert {name, f"{name}-2"} <= topics(other.endpoint).keys()


async def test_the_sdk_works_around_a_shard_that_is_away(machines: Machines, name: str) -> None:
    """One that knew it, a new topic and a new client: nobody waits for it to come back."""
    first, other = machines.shards
    with WireClient(first.endpoint) as client:
        for topic in (name, f"{name}-new"):
            client.create_topic(topic)
    async with asyncio.timeout(patient(60)):
        async with latermq.connect(first.endpoint) as mq:
            await mq.send(name, b"0")
            other.terminate()
            try:
                for number in range(1, 5):
                    await mq.send(name, b"%d" % number)
                await mq.send(f"{name}-new", b"new")
                async with latermq.connect(first.endpoint) as anew:
                    await anew.send(name, b"5")
                    consumer = anew.simple_consumer(name, group=name)
                    bodies: set[bytes] = set()
                    while not bodies >= {b"%d" % number for number in range(1, 6)}:
                        for delivery in await consumer.receive(10, wait=timedelta(seconds=1)):
                            bodies.add(delivery.body)
            finally:
                other.start()


def test_a_limit_is_divided(machines: Machines, name: str) -> None:
    with admin.connect(machines.shards[1].endpoint) as broker:
        limit = limit_pb2.Limit(scope=limit_pb2.Limit.CLIENT, name=name, sends_per_s=4)
        broker.call(broker.limits.SetLimit, limit_pb2.SetLimitRequest(limit=limit))
        broker.call(broker.topics.CreateTopic, topic_pb2.CreateTopicRequest(name=name))
    for shard in machines.shards:
        with WireClient(shard.endpoint, name) as client:
            refusals = [
                answer.status.message
                for _ in range(4)
                if (answer := client.send(wire_requests.message(name, b"body"))).status.code
                == 42900
            ]
        assert "may send 2 messages per second" in refusals[0]
        assert "one of 2 shards" in refusals[0]


def test_metrics_say_their_shard(machines: Machines) -> None:
    for number, address in enumerate(machines.metrics):
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=patient(10)) as page:
            text = page.read().decode()
        assert f'latermq_topics{{shard="{number}"}}' in text


def test_a_cluster_says_what_it_is(machines: Machines) -> None:
    for number, shard in enumerate(machines.shards):
        with admin.connect(shard.endpoint) as broker:
            described = broker.call(broker.cluster.DescribeCluster, DESCRIBE)
        assert described.shard == number
        found = [(each.number, each.name) for each in described.shards]
        assert found == [(0, "shard-00"), (1, "shard-01")]
        ports = [each.endpoints.addresses[0].port for each in described.shards]
        assert [f"127.0.0.1:{port}" for port in ports] == [s.endpoint for s in machines.shards]


DESCRIBE = cluster_pb2.DescribeClusterRequest()


async def test_users_are_known_to_all_shards(tmp_path: Path) -> None:
    """Signed calls are sent on with their signature; shards sign their own."""
    keys = f'root_access_key = "{ROOT["access_key"]}"\nroot_secret_key = "{ROOT["secret"]}"\n'
    machines = Machines(tmp_path, f"[auth]\nenabled = true\n{keys}")
    try:
        machines.start()
        with admin.connect(machines.shards[1].endpoint, **ROOT) as broker:
            request = user_pb2.CreateUserRequest(access_key="shop", secret="shop-secret-00001")
            broker.call(broker.users.CreateUser, request)
            grant = user_pb2.Grant(kind=user_pb2.Grant.TOPIC, pattern="*", rights=["pub"])
            grant_request = user_pb2.ChangeGrantRequest(access_key="shop", grant=grant)
            broker.call(broker.users.GrantRights, grant_request)
        shop: dict[str, Any] = {"access_key": "shop", "secret": "shop-secret-00001"}
        for shard in machines.shards:
            async with latermq.connect(shard.endpoint, **shop) as mq:
                for number in range(4):
                    await mq.send("orders", b"body", message_group=f"group-{number}")
                    await mq.send("orders", b"body")
        with pytest.raises(LaterMQError):
            async with latermq.connect(machines.shards[0].endpoint) as mq:
                await mq.send("orders", b"body")
    finally:
        machines.stop()


async def test_shards_call_each_other_over_tls(tmp_path: Path) -> None:
    """With a certificate that both have; nothing is taken in clear text."""
    with BrokerProcess(tmp_path / "maker", config="[tls]\nenabled = true\n") as maker:
        maker.start()
    own = maker.data_dir / TLS_DIRECTORY
    certificate = own / OWN_CERTIFICATE
    files = f'certificate = "{certificate}"\nkey = "{own / OWN_KEY}"\n'
    tls = f"[tls]\nenabled = true\nclear_text = false\n{files}"
    machines = Machines(tmp_path, tls, cluster=f'ca = "{certificate}"\n')
    try:
        machines.start()
        for shard in machines.shards:
            async with latermq.connect(shard.endpoint, tls=latermq.Tls(ca=certificate)) as mq:
                for number in range(4):
                    await mq.send("orders", b"body", message_group=f"group-{number}")
    finally:
        machines.stop()
