"""The adapter of the replicated log against a real Kafka node."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from latermq_broker.clock import SystemClock
from latermq_broker.config.replication import SERVERS
from latermq_broker.errors import ConfigError, EntriesLostError, LogUnavailableError
from latermq_broker.replication.entry import Entry
from latermq_broker.replication.kafka_log import KafkaLog
from latermq_broker.replication.kafka_topics import (
    Wanted,
    ensure_topics,
    members_topic,
    warn_of_clock,
)
from latermq_broker.replication.members.kafka_members import KafkaMembers
from latermq_broker.replication.replicated_log import ReplicatedLog
from support.kafka.cluster import KafkaCluster
from support.machine import patient

SHARDS = 3
SHARD = 1


@pytest.fixture
def wanted(kafka: KafkaCluster, name: str) -> Wanted:
    wanted = Wanted(cluster=name, shards=SHARDS, replicas=1, replicas_min=1)
    ensure_topics({SERVERS: kafka.bootstrap}, wanted)
    return wanted


def opened(kafka: KafkaCluster, wanted: Wanted, **settings: str) -> KafkaLog:
    given = {SERVERS: kafka.bootstrap, **{k.replace("_", "."): v for k, v in settings.items()}}
    return KafkaLog(given, wanted.log_topic, SHARD, wanted.canary_topic)


@pytest.fixture
async def owner(kafka: KafkaCluster, wanted: Wanted) -> AsyncIterator[KafkaLog]:
    owner = opened(kafka, wanted)
    yield owner
    await owner.close()


async def read(log: ReplicatedLog, offset: int, count: int) -> list[Entry]:
    entries: list[Entry] = []
    following = log.tail(offset)
    async with asyncio.timeout(patient(30)):
        async for entry in following:
            entries.append(entry)
            if len(entries) == count:
                break
    await following.aclose()
    return entries


async def test_what_is_appended_is_read_from_anywhere_and_trimmed(owner: KafkaLog) -> None:
    assert await owner.end() == 0
    assert await owner.claim(b"fence") == 0
    laters = [owner.append(b"%d" % number * 1_000) for number in range(1, 200)]
    assert [await each for each in laters] == list(range(1, 200))
    everything = [Entry(0, b"fence"), *(Entry(n, b"%d" % n * 1_000) for n in range(1, 200))]
    assert await read(owner, 0, 200) == everything
    assert await read(owner, 150, 50) == everything[150:]
    await owner.trim(120)
    assert await read(owner, 0, 1) == [everything[120]]
    assert await owner.end() == 200
    await owner.canary()
    with pytest.raises(EntriesLostError, match="entries were lost"):
        await read(owner, 201, 1)


async def test_another_writer_leaves_a_gap_and_a_reader_sees_it_come(
    kafka: KafkaCluster, wanted: Wanted, owner: KafkaLog
) -> None:
    other = opened(kafka, wanted)
    following = asyncio.create_task(read(other, 0, 4))
    assert await owner.append(b"a") == 0
    assert await other.claim(b"fence") == 1
    assert [await each for each in (owner.append(b"b"), owner.append(b"c"))] == [2, 3]
    assert [each.data for each in await following] == [b"a", b"fence", b"b", b"c"]
    await other.close()
    with pytest.raises(LogUnavailableError):
        await other.append(b"d")


async def claimed(owner: KafkaLog, fence: bytes) -> int:
    """Claim until Kafka answers; return where the last one stands."""
    async with asyncio.timeout(patient(30)):
        while True:
            with suppress(LogUnavailableError):
                return await owner.claim(fence)


async def test_a_node_that_does_not_answer_fails_who_waits_and_goes_on(
    kafka: KafkaCluster, wanted: Wanted
) -> None:
    owner = opened(kafka, wanted, delivery_timeout_ms="1000", request_timeout_ms="500")
    before = await claimed(owner, b"before")  # a node that is cold may not answer in a second
    (node,) = kafka.nodes
    node.send_signal(signal.SIGSTOP)
    try:
        laters = [owner.append(b"%d" % number) for number in range(3)]
        for later in laters:
            with pytest.raises(LogUnavailableError):
                await later
    finally:
        node.send_signal(signal.SIGCONT)
    offset = await claimed(owner, b"fence")
    entries = [each.data for each in await read(owner, 0, offset + 1)]
    assert entries[: before + 1] == [b"before"] * (before + 1)
    assert entries[-1] == b"fence"
    assert set(entries[before + 1 : -1]) <= {b"0", b"1", b"2", b"fence"}
    await owner.close()


async def test_members_hear_what_stands_and_what_comes(kafka: KafkaCluster, wanted: Wanted) -> None:
    topic = KafkaMembers({SERVERS: kafka.bootstrap}, members_topic(wanted.cluster))
    assert [await topic.put(b"a", value) for value in (b"one", None)] == [0, 1]
    began_ms = SystemClock().now_ms()
    async with asyncio.timeout(patient(30)):
        following = topic.tail()
        notices = [await anext(following) for _ in range(2)]
        await topic.put(b"b", b"two")
        notices.append(await anext(following))
    await following.aclose()  # type: ignore[attr-defined]
    await topic.close()
    assert [each[:2] for each in notices] == [(b"a", b"one"), (b"a", None), (b"b", b"two")]
    assert all(abs(each.at_ms - began_ms) < patient(60_000) for each in notices)


def alter(kafka: KafkaCluster, topic: str, **config: str) -> None:
    admin = AdminClient({SERVERS: kafka.bootstrap})
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(patient(30))


def test_a_topic_that_would_lose_messages_is_refused(
    kafka: KafkaCluster, wanted: Wanted, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {SERVERS: kafka.bootstrap}
    ensure_topics(settings, wanted)
    alter(kafka, wanted.log_topic, retention_ms="60000", cleanup_policy="compact")
    with pytest.raises(ConfigError) as refused:
        ensure_topics(settings, wanted._replace(shards=4, replicas=3, replicas_min=2))
    assert "has 3 partitions for 4 shards" in str(refused.value)
    assert "has 1 replicas, not 3: `kafka-reassign-partitions.sh" in str(refused.value)
    assert (
        f"--entity-name {wanted.log_topic} --add-config min.insync.replicas=2,retention.ms=-1,"
        "cleanup.policy=delete`"
    ) in str(refused.value)
    alter(kafka, wanted.log_topic, retention_ms="-1", cleanup_policy="delete")
    alter(kafka, members_topic(wanted.cluster), cleanup_policy="delete")
    ensure_topics(settings, wanted)  # brokers may do without the members topic
    assert (
        f"hear of each other: topic {members_topic(wanted.cluster)} has cleanup.policy = delete"
    ) in caplog.text
    assert "--add-config cleanup.policy=[compact,delete]`" in caplog.text


def test_a_clock_that_is_apart_from_kafkas_is_told_of(
    kafka: KafkaCluster, wanted: Wanted, caplog: pytest.LogCaptureFixture
) -> None:
    settings, clock = {SERVERS: kafka.bootstrap}, SystemClock()
    warn_of_clock(settings, wanted, clock.now_ms)
    assert "apart" not in caplog.text
    warn_of_clock(settings, wanted, lambda: clock.now_ms() - 3_600_000)
    assert "apart by +3600.0 s" in caplog.text or "apart by +3599" in caplog.text
    alter(kafka, wanted.log_topic, flush_messages="1000")
    ensure_topics(settings, wanted)
    assert "flush.messages=1 has it synced" in caplog.text
