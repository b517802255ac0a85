"""The client for threads against a real broker."""

import threading
from datetime import timedelta

import latermq.sync
from latermq.sync import Delivery
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient

SOON_S = patient(30)


def test_the_ten_line_start(sdk_broker: BrokerProcess, operator: WireClient, name: str) -> None:
    operator.create_group(name, 2, [5])
    attempts = []
    with latermq.sync.connect(sdk_broker.endpoint) as mq:
        mq.send(name, b"one", delay=timedelta(milliseconds=100))
        for delivery in mq.push_consumer(name, group=name):
            with delivery:
                attempts.append(delivery.attempt)
                if delivery.attempt == 1:
                    raise TimeoutError("bank")
            if delivery.attempt == 2:
                break
    assert attempts == [1, 2]


def test_receive_and_ack(sdk_broker: BrokerProcess, name: str) -> None:
    with (
        latermq.sync.connect(sdk_broker.endpoint) as mq,
        mq.simple_consumer(name, group=name) as consumer,
    ):
        mq.send_batch(name, [latermq.Message(b"one"), latermq.Message(b"two")])
        found: list[Delivery] = []
        while len(found) < 2:
            found += consumer.receive(32)
        for delivery in found:
            consumer.ack(delivery)
        assert consumer.receive(wait=timedelta(0)) == []
    assert sorted(delivery.body for delivery in found) == [b"one", b"two"]


def test_a_dedup_id_is_stored_once(sdk_broker: BrokerProcess, name: str) -> None:
    with latermq.sync.connect(sdk_broker.endpoint) as mq:
        first, second = (mq.send(name, b"one", dedup_id="order-17") for _ in range(2))
    assert (first.message_id, first.duplicate) == (second.message_id, not second.duplicate)


def test_a_listener(sdk_broker: BrokerProcess, name: str) -> None:
    seen: set[bytes] = set()
    complete = threading.Event()
    with latermq.sync.connect(sdk_broker.endpoint) as mq:
        consumer = mq.push_consumer(name, group=name, concurrency=4)

        @consumer.listener
        def bill(delivery: Delivery) -> None:
            seen.add(delivery.body)
            if len(seen) == 50:
                complete.set()

        with consumer:
            mq.send_batch(name, [latermq.Message(b"%d" % n) for n in range(50)])
            assert complete.wait(SOON_S)
    assert seen == {b"%d" % n for n in range(50)}


def test_a_listener_of_batches(sdk_broker: BrokerProcess, name: str) -> None:
    batches: list[list[bytes]] = []
    complete = threading.Event()
    with latermq.sync.connect(sdk_broker.endpoint) as mq:
        mq.send_batch(name, [latermq.Message(body) for body in (b"done", b"later", b"dead")])
        consumer = mq.push_consumer(name, group=name)

        @consumer.batch_listener(3, timedelta(milliseconds=50))
        def bill(deliveries: list[Delivery]) -> int | None:
            batches.append([each.body for each in deliveries])
            if len(batches) == 1:
                deliveries[1].retry_in(timedelta(milliseconds=50))
                deliveries[2].dead_letter("no such customer")
                return 1
            complete.set()
            return None

        with consumer:
            assert complete.wait(SOON_S)
        with mq.simple_consumer(name, group=name) as rest:
            assert rest.receive(wait=timedelta(milliseconds=300)) == []
    assert batches == [[b"done", b"later", b"dead"], [b"later"]]
