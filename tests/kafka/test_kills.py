"""A short kill -9 of worker and broker; `make kafka-long` has many, and of Kafka's nodes too."""

import random
from functools import partial
from pathlib import Path

from kafka.kills import GROUP, PARTITIONS, Workers, produce
from latermq.testing import BrokerProcess
from support.kafka.cluster import KafkaCluster

RECORDS = 2_000


def test_what_is_not_done_is_at_latermq(kafka: KafkaCluster, name: str, tmp_path: Path) -> None:
    chance = random.Random(1)
    kafka.create_topic(name, PARTITIONS)
    with (
        BrokerProcess(tmp_path / "latermq") as broker,
        Workers(tmp_path, kafka, broker) as workers,
    ):
        workers.begin(name, 1, ordered=False, retry="1h")
        for part in range(2):
            produce(kafka, name, range(part * RECORDS // 2, (part + 1) * RECORDS // 2))
            workers.until(partial(workers.did, RECORDS // 8 + part * RECORDS // 2), 60)
            if part:
                broker.kill()
                broker.start()
            else:
                workers.kill(chance)

        def missing() -> set[int]:
            handed_over = {int(each.body) for each in broker.sent(f"{name}-{GROUP}")}
            return set(range(RECORDS)) - handed_over - set(workers.done())

        workers.until(lambda: not missing(), 60)
