"""Two shards at two "machines", their logs in Kafka: a machine dies, and everything goes on."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc
from click.testing import CliRunner

import latermq
from latermq.errors import LaterMQError
from latermq_broker.cluster.placement import home_by_name
from latermq_cli.root import latermq as command_line
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.latermq.v1 import topic_pb2
from support import wire_requests
from support.kafka.cluster import KafkaCluster
from support.site import SOON_S, Site, is_open
from support.wire_client import WireClient, require_ok

SHARDS: Final = 2
TOPIC: Final = "orders"
AT_HOME_IN_FIRST: Final = next(name for name in "abcdefghij" if not home_by_name(name, SHARDS))
MORE: Final = """
replicas = 1
replicas_min = 1
[store]
segment_bytes = 17825792
"""


async def send(mq: latermq.Client, count: int) -> set[str]:
    """Send until so many more were acknowledged; their ids."""
    ids: set[str] = set()
    while len(ids) < count:
        with suppress(LaterMQError):
            ids.add((await mq.send(TOPIC, b"x")).message_id)
    return ids


async def receive(mq: latermq.Client, wanted: set[str]) -> None:
    """Receive and acknowledge until all of these came."""
    came: set[str] = set()
    consumer = mq.simple_consumer(TOPIC, group="billing")
    async with asyncio.timeout(SOON_S):
        while not wanted <= came:
            for delivery in await consumer.receive(32):
                await delivery.ack()
                came.add(delivery.message_id)


async def ask(endpoint: str, call: Callable[[WireClient], Any]) -> Any:
    """Call until it is done: an owner that has no proof that it is one serves nobody meanwhile."""
    async with asyncio.timeout(SOON_S):
        while True:
            with suppress(grpc.RpcError, AssertionError), WireClient(endpoint) as client:
                return call(client)
            await asyncio.sleep(0.05)


async def create(endpoint: str, name: str) -> None:
    """Make a FIFO topic: whoever is asked has shard 0 decide."""
    await ask(endpoint, lambda client: client.create_topic(name, type=topic_pb2.FIFO))


async def known(endpoints: list[str], name: str) -> None:
    """Wait until all have the topic."""
    request = topic_pb2.GetTopicRequest(name=name)
    async with asyncio.timeout(SOON_S):
        for endpoint in endpoints:
            while (
                await ask(endpoint, lambda client: client.call(client.topics.GetTopic, request))
            ).topic.type != topic_pb2.FIFO:
                await asyncio.sleep(0.05)


def printed(*words: str) -> Any:
    """Run a command, which asks all shards; what it prints."""
    result = CliRunner().invoke(command_line, [*words, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def test_a_machine_dies_and_the_other_has_all_shards(
    tmp_path: Path, kafka: KafkaCluster, name: str
) -> None:
    site = Site(tmp_path, kafka, name, SHARDS, 2, MORE)
    with site.machines[0], site.machines[1]:
        for machine in site.machines:
            machine.spawn()
        owners = await site.owners()
        async with latermq.connect(site.endpoint) as mq:
            sent = await send(mq, 20)
            await create(owners[1], "before")
            await known(owners, "before")
            number = site.shards[0].index(owners[0])  # of the machine where shard 0 is, if not both
            site.machines[number].crash()
            sent |= await send(mq, 20)
        owners = await site.owners()
        assert owners == site.machines[1 - number].endpoints
        await known(owners, "before")
        await create(owners[1], "after")
        await known(owners, "after")
        message = wire_requests.message(AT_HOME_IN_FIRST, b"x")
        message.system_properties.message_group = "g"
        message.system_properties.message_type = v2.FIFO
        await ask(owners[1], lambda client: require_ok(client.send(message)))
        async with latermq.connect(site.endpoint) as mq:
            sent |= await send(mq, 20)
            await receive(mq, sent)
        shown = await asyncio.to_thread(printed, "cluster", "show", "--endpoint", owners[1])
        assert [row["owner"] for row in shown["shards"]] == owners
        listed = await asyncio.to_thread(printed, "group", "list", "--endpoint", site.endpoint)
        assert "billing" in json.dumps(listed)
        site.machines[number].spawn()  # it stands by for both, and is given one
        site.machines[number].wait_log("shard stands by shard=1", 2)
        async with asyncio.timeout(SOON_S):
            while not is_open(site.shards[0][number]):
                with suppress(AssertionError):  # it was given, or taken up again by who gave it
                    await asyncio.to_thread(
                        printed, "cluster", "hand-over", "--endpoint", owners[0]
                    )
                await asyncio.sleep(0.5)
        owners[0] = site.shards[0][number]
        await known(owners, "after")
