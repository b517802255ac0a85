"""Retries for consumers of Kafka: what a handler could not do waits in LaterMQ, not in the way.

    app = KafkaApp({"bootstrap.servers": "localhost:9092"}, "127.0.0.1:8081")

    @app.kafka_listener("orders", group="billing", retry="1s 5s 30s", max_attempts=4)
    async def bill(record: Record) -> None: ...  # raising has it come again, and holds up nothing

    app.run()  # or: latermq worker shop:app

A record's offset is committed when its handler has returned, or when LaterMQ has stored the record:
backoff, attempts, dead letters and redrive are then those of any message. At least once, as Kafka.
Needs confluent-kafka: `pip install 'latermq[kafka]'`.
"""

from latermq.kafka._app import KafkaApp
from latermq.kafka._listener import (
    KafkaConsumer,
    KafkaConsumerForThreads,
    KafkaListener,
    KafkaStats,
)
from latermq.kafka._record import ATTEMPT_HEADER, GROUP_HEADER, Record, meant_for

__all__ = [
    "ATTEMPT_HEADER",
    "GROUP_HEADER",
    "KafkaApp",
    "KafkaConsumer",
    "KafkaConsumerForThreads",
    "KafkaListener",
    "KafkaStats",
    "Record",
    "meant_for",
]
