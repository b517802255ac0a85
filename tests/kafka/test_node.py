"""The node itself: what is acknowledged is there after kill -9, on the ports it had."""

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from support.kafka.cluster import KafkaCluster
from support.machine import patient


def test_a_killed_node_comes_back_with_what_it_acknowledged(kafka: KafkaCluster, name: str) -> None:
    kafka.create_topic(name)
    stored: list[Message] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all"})
    producer.produce(name, b"body", on_delivery=lambda _, message: stored.append(message))
    assert producer.flush(patient(30)) == 0
    assert stored[0].offset() == 0
    (node,) = kafka.nodes
    node.kill()
    node.spawn()
    node.wait_ready()
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": name})
    consumer.assign([TopicPartition(name, 0, 0)])
    try:
        message = consumer.poll(patient(30))
        assert message is not None
        assert message.value() == b"body"
    finally:
        consumer.close()
