"""`latermq.kafka` between a Kafka node and a broker: what fails waits there, and is not lost."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from latermq import admin
from latermq.kafka import ATTEMPT_HEADER, KafkaApp, Record
from latermq.testing import BrokerProcess
from latermq_proto.latermq.v1 import dead_letter_pb2
from support.kafka.cluster import KafkaCluster
from support.machine import patient

Headers = list[tuple[str, bytes | None]]


@pytest.fixture(scope="module")
def broker(room: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(room / "latermq") as broker:
        yield broker


class Shop:
    """What a test sends to its topic, and what its handler was called with."""

    def __init__(self, kafka: KafkaCluster, broker: BrokerProcess, name: str) -> None:
        self.name = name
        self.kafka = kafka
        self.broker = broker
        self.app = KafkaApp({"bootstrap.servers": kafka.bootstrap})
        self.seen: list[Record] = []
        self.more = asyncio.Condition()

    async def see(self, record: Record) -> None:
        async with self.more:
            self.seen.append(record)
            self.more.notify_all()

    async def until(self, count: int) -> list[Record]:
        """Wait until the handler was called so often; return the records."""
        async with asyncio.timeout(patient(30)), self.more:
            await self.more.wait_for(lambda: len(self.seen) >= count)
        return self.seen

    def produce(
        self, *values: bytes | None, key: bytes | None = None, headers: Headers | None = None,
        partition: int = 0,
    ) -> None:  # fmt: skip
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        for value in values:
            producer.produce(self.name, value, key, partition, headers=headers or [])
        assert producer.flush(patient(30)) == 0

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with self.broker.working(self.app):
            yield

    def committed(self, group: str = "", partition: int = 0) -> int:
        consumer = Consumer(
            {"bootstrap.servers": self.kafka.bootstrap, "group.id": group or self.name}
        )
        try:
            (place,) = consumer.committed([TopicPartition(self.name, partition)], patient(30))
            return int(place.offset)
        finally:
            consumer.close()


@pytest.fixture
def shop(kafka: KafkaCluster, broker: BrokerProcess, name: str) -> Shop:
    kafka.create_topic(name, 2)
    return Shop(kafka, broker, name)


async def test_what_fails_comes_again_and_holds_up_nothing(shop: Shop) -> None:
    @shop.app.kafka_listener(shop.name, group=shop.name, retry="1ms", max_attempts=3)
    async def handle(record: Record) -> None:
        await shop.see(record)
        if record.value == b"bad":
            raise ValueError(f"attempt {record.attempt}")

    odd: Headers = [("a", b"1"), ("a", None), ("b", b"\xff\x00"), ("long", b"x" * 9_000)]
    shop.produce(b"bad", b"good", key=b"\xfe", headers=odd)
    async with shop.working():
        seen = await shop.until(4)
        (letter,) = await dead(shop)
    bad = [each for each in seen if each.value == b"bad"]
    assert [each.attempt for each in bad] == [1, 2, 3]
    assert seen[1].value == b"good"
    first = bad[0]
    assert {(each.key, each.headers, each.timestamp, each.place) for each in bad} == {
        (b"\xfe", tuple(odd), first.timestamp, f"{shop.name}-0-0")
    }
    assert letter.keys == (first.place,)
    assert [each.text for each in letter.failures] == ["attempt 1", "attempt 2", "attempt 3"]
    assert shop.committed() == 2


async def dead(shop: Shop) -> Any:
    async with asyncio.timeout(patient(30)):
        while not (letters := shop.broker.dead(shop.name)):
            await asyncio.sleep(0.02)
    return letters


def redrive(shop: Shop) -> None:
    request = dead_letter_pb2.RedriveDeadLettersRequest(group=shop.name)
    with admin.connect(shop.broker.endpoint) as broker:
        for _ in broker.stream(broker.dead_letters.RedriveDeadLetters, request):
            pass


async def test_a_letter_that_is_redriven_goes_to_the_handler(shop: Shop) -> None:
    fine: list[bytes | None] = []

    @shop.app.kafka_listener(shop.name, group=shop.name, dead_letter_on=ValueError)
    def handle(record: Record) -> None:
        asyncio.run_coroutine_threadsafe(shop.see(record), loop).result()
        if record.value not in fine:
            raise ValueError("no")

    loop = asyncio.get_running_loop()
    shop.produce(b"", headers=[(ATTEMPT_HEADER, b"many")])
    async with shop.working():
        (letter,) = await dead(shop)
        assert (letter.attempts, letter.kind, letter.text) == (1, "ValueError", "no")
        assert "in handle" in (await asyncio.to_thread(stack_of, shop))
        fine.append(b"")
        await asyncio.to_thread(redrive, shop)
        seen = await shop.until(2)
    assert [(each.attempt, each.value, each.headers) for each in seen] == [(1, b"", ())] * 2
    assert not shop.broker.dead(shop.name)


def stack_of(shop: Shop) -> str:
    request = dead_letter_pb2.GetDeadLetterRequest(group=shop.name, queue_offset=0)
    with admin.connect(shop.broker.endpoint) as broker:
        return str(broker.call(broker.dead_letters.GetDeadLetter, request))


async def test_what_is_written_again_is_for_its_group_alone(shop: Shop) -> None:
    fine: list[bytes | None] = []
    other = KafkaApp({"bootstrap.servers": shop.kafka.bootstrap})
    others: list[bytes | None] = []

    @shop.app.kafka_listener(
        shop.name, group=shop.name, republish=True, retry="1ms", max_attempts=3
    )
    async def handle(record: Record) -> None:
        await shop.see(record)
        if record.value not in fine:
            raise ValueError(f"attempt {record.attempt}")

    @other.kafka_listener(shop.name, group=f"{shop.name}-2")
    async def handle_too(record: Record) -> None:
        others.append(record.value)

    shop.produce(None, key=b"k", headers=[("a", b"1")], partition=1)
    async with shop.working(), shop.broker.working(other):
        (letter,) = await dead(shop)
        assert (letter.text, len(shop.seen)) == ("attempt 3", 3)
        fine.append(None)
        await asyncio.to_thread(redrive, shop)
        await shop.until(4)
        shop.produce(b"last", partition=1)
        fine.append(b"last")
        seen = await shop.until(5)
        async with asyncio.timeout(patient(30)):
            while b"last" not in others:
                await asyncio.sleep(0.02)
    assert [each.attempt for each in seen] == [1, 2, 3, 1, 1]
    assert {(each.partition, each.key, each.headers) for each in seen[:4]} == {
        (1, b"k", (("a", b"1"),))
    }
    assert [each.offset for each in seen] == [0, 1, 2, 3, 4]
    assert others == [None, b"last"]


async def test_order_is_kept_by_key(shop: Shop) -> None:
    tries: dict[bytes, int] = {}

    @shop.app.kafka_listener(shop.name, group=shop.name, ordered=True, retry="20ms")
    async def handle(record: Record) -> None:
        assert record.value is not None
        tries[record.value] = tries.get(record.value, 0) + 1
        if record.value.endswith(b"0") and tries[record.value] < 3:
            raise ValueError("not yet")
        await shop.see(record)

    async with shop.working():
        for number in range(25):
            for key in (b"a", b"b", b"\xff", b"long" * 20):
                shop.produce(key[:2] + b" %02d" % number, key=key)
        await shop.until(100)
        detours = next(iter(shop.app._bridges)).detours
        assert detours is not None
        async with asyncio.timeout(patient(30)):
            while len(detours):
                await asyncio.sleep(0.02)
        shop.produce(b"a end", key=b"a")
        seen = [each.value or b"" for each in await shop.until(101)]
    for key in (b"a ", b"b ", b"\xff", b"lo"):
        values = [each for each in seen if each.startswith(key)]
        assert values == sorted(values)
    detoured = {each.body for each in shop.broker.sent(f"{shop.name}-{shop.name}")}
    assert b"a end" not in detoured  # nothing of its key waited any more
    assert {b"a 00", b"a 10", b"b 20"} <= detoured


@pytest.mark.parametrize("policy", [{}, {"max_attempts": 20}, {"max_attempts": "unlimited"}])
async def test_how_long_a_bad_record_holds_up_its_key(shop: Shop, policy: dict[str, Any]) -> None:
    """Unless told otherwise it dies, as without order: 17 attempts."""
    unlimited, last = policy.get("max_attempts") == "unlimited", policy.get("max_attempts", 17)

    @shop.app.kafka_listener(shop.name, group=shop.name, ordered=True, retry="1ms", **policy)
    async def handle(record: Record) -> None:
        await shop.see(record)
        if record.value == b"bad" and not (unlimited and record.attempt == 30):
            raise ValueError("never")

    shop.produce(b"bad", b"behind", key=b"a")
    async with shop.working():
        seen = await shop.until(31 if unlimited else last + 1)
        letters = [] if unlimited else await dead(shop)
    assert [each.attempt for each in seen[:-1]] == [*range(1, 31 if unlimited else last + 1)]
    assert seen[-1].value == b"behind"
    assert [each.attempts for each in letters] == ([] if unlimited else [last])


async def test_a_listener_is_paused_and_looked_at(shop: Shop) -> None:
    @shop.app.kafka_listener(shop.name, group=shop.name, ordered=True, retry="1ms")
    def handle(record: Record) -> None:
        asyncio.run_coroutine_threadsafe(shop.see(record), loop).result()
        if record.value == b"pause":
            handle.consumer_for_threads.pause()
        elif record.attempt == 1:
            raise ValueError("once")

    loop = asyncio.get_running_loop()
    shop.produce(b"pause", b"bad", b"behind", key=b"k")
    async with shop.working():
        await shop.until(1)
        consumer = handle.consumer
        async with asyncio.timeout(patient(30)):
            while (row := consumer.stats).waiting < 2 or row.in_hand:
                await asyncio.sleep(0.02)
        assert (row.ok, row.failed, row.paused, row.full) == (1, 0, True, False)
        assert (row.topic, row.group, row.partitions) == (shop.name, shop.name, (0, 1))
        assert consumer.retries.paused
        shop.produce(b"later", partition=1)
        assert shop.committed() <= 1
        assert len(shop.seen) == 1
        consumer.resume()
        seen = await shop.until(6)  # and again: bad, behind, later
        async with asyncio.timeout(patient(30)):
            while sum(each.ok for each in consumer.retries.stats) < 3:
                await asyncio.sleep(0.02)
        row = consumer.stats
        assert (row.ok, row.failed + row.behind, row.paused) == (1, 3, False)
        assert row.failed_per_s > 0
        assert {each.value for each in seen} == {b"pause", b"bad", b"behind", b"later"}
    with pytest.raises(ValueError, match="no worker serves handle"):
        _ = handle.consumer


async def test_an_offset_waits_for_a_broker_that_is_away(
    kafka: KafkaCluster, shop: Shop, tmp_path: Path
) -> None:
    @shop.app.kafka_listener(shop.name, group=shop.name, retry="1ms")
    async def handle(record: Record) -> None:
        await shop.see(record)
        if record.attempt == 1:
            raise ValueError("once")

    with BrokerProcess(tmp_path / "latermq") as broker:
        shop.broker = broker
        async with shop.working():
            broker.kill()
            shop.produce(b"bad", b"next")
            await shop.until(1)
            assert len(shop.seen) == 1  # the partition waits with it
            broker.start()
            seen = await shop.until(4)
    assert sorted((each.value, each.attempt) for each in seen) == [
        (b"bad", 1), (b"bad", 2), (b"next", 1), (b"next", 2)
    ]  # fmt: skip
    assert shop.committed() == 2


async def test_a_message_that_is_no_record_is_a_dead_letter(shop: Shop) -> None:
    @shop.app.kafka_listener(shop.name, group=shop.name, retry_topic=f"{shop.name}-again")
    async def handle(record: Record) -> None:
        await shop.see(record)

    async with shop.working():
        properties = {"kafka-record": '{"topic":7}'}
        await shop.app.client.send(f"{shop.name}-again", b"body", properties=properties)
        (letter,) = await dead(shop)
    assert letter.body == b"body"
    assert "no record of Kafka" in letter.text


async def test_a_partition_that_was_paused_goes_on_when_it_comes_back(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "latermq.kafka")
    gate = asyncio.Event()
    other = KafkaApp({"bootstrap.servers": shop.kafka.bootstrap})
    done: set[bytes | None] = set()

    async def handle(record: Record) -> None:
        await gate.wait()
        done.add(record.value)

    for app in (shop.app, other):
        app.kafka_listener(shop.name, group=shop.name)(handle)
    for partition in (0, 1):
        values = [b"%d-%d" % (partition, number) for number in range(1_500)]
        shop.produce(*values, partition=partition)
    async with asyncio.timeout(patient(60)):
        async with shop.working():
            while paused(caplog.text) != {"0", "1"}:
                await asyncio.sleep(0.02)
            async with shop.broker.working(other):
                while "partitions go" not in caplog.text:
                    await asyncio.sleep(0.02)
                gate.set()
            while len(done) < 3_000:
                await asyncio.sleep(0.02)


def paused(text: str) -> set[str]:
    """Return the partitions that a log says were paused."""
    lists = re.findall(r"partitions paused, .*: \{(.*)\}", text)
    return set(", ".join(lists).split(", "))


async def test_only_what_was_committed_is_handled_however_it_was_compressed(shop: Shop) -> None:
    """Aborted transactions leave gaps; each codec, and a record of a megabyte that fails, come."""

    @shop.app.kafka_listener(shop.name, group=shop.name, retry="1ms", max_attempts=2)
    async def handle(record: Record) -> None:
        await shop.see(record)
        if record.attempt == 1 and record.value is not None and len(record.value) > 1_000:
            raise ValueError("too long for a first attempt")

    bootstrap = {"bootstrap.servers": shop.kafka.bootstrap}
    transactional = Producer({**bootstrap, "transactional.id": shop.name})
    transactional.init_transactions(patient(60))
    for value, commits in ((b"aborted", False), (b"committed", True), (b"aborted", False)):
        transactional.begin_transaction()
        transactional.produce(shop.name, value, partition=0)
        assert transactional.flush(patient(30)) == 0
        (transactional.commit_transaction if commits else transactional.abort_transaction)()
    huge = bytes(range(256)) * 3_900
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        producer = Producer({**bootstrap, "compression.type": codec})
        producer.produce(shop.name, codec.encode() * 100, partition=1)
        assert producer.flush(patient(30)) == 0
    shop.produce(huge, partition=1)
    codecs = {codec.encode() * 100 for codec in ("gzip", "snappy", "lz4", "zstd")}
    async with shop.working():
        seen = await shop.until(7)
    values = [each.value for each in seen]
    assert {each for each in values if each != huge} == {b"committed", *codecs}
    assert values.count(huge) == 2
    assert shop.committed(partition=1) == 5


async def test_partitions_that_are_added_are_read(shop: Shop) -> None:
    app = KafkaApp(
        {"bootstrap.servers": shop.kafka.bootstrap, "topic.metadata.refresh.interval.ms": 500}
    )

    @app.kafka_listener(shop.name, group=shop.name)
    async def handle(record: Record) -> None:
        await shop.see(record)

    async with shop.broker.working(app):
        shop.produce(b"before")
        await shop.until(1)
        admin_of_kafka = AdminClient({"bootstrap.servers": shop.kafka.bootstrap})
        made = admin_of_kafka.create_partitions([NewPartitions(shop.name, 3)])
        for each in made.values():
            each.result(patient(30))
        shop.produce(b"after", partition=2)
        seen = await shop.until(2)
    assert [(each.value, each.partition) for each in seen] == [(b"before", 0), (b"after", 2)]
