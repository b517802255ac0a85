"""The client for threads; its loop runs in real time, but nothing here waits for a clock."""

import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from logging.handlers import QueueHandler

import pytest

import latermq.sync
from latermq import Message, SendReceipt
from latermq._connection.loop_thread import LoopThread
from latermq._values.endpoints import Endpoints
from latermq.client import Client
from latermq.errors import ClosedError, InvalidReceiptHandleError, TopicNotFoundError
from latermq.middleware import Middleware, SendNext
from latermq.sync import Delivery
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2 import service_pb2 as rpc
from support.scripted_broker import ScriptedBroker

SOON_S = 10  # an upper bound for what happens at once


@pytest.fixture
def mq(broker: ScriptedBroker) -> Iterator[latermq.sync.Client]:
    inner = Client(Endpoints.parse("127.0.0.1:8081"), transport=broker.connect)
    with latermq.sync.Client(LoopThread(), inner) as client:
        yield client


def test_send(broker: ScriptedBroker, mq: latermq.sync.Client) -> None:
    receipt = mq.send("orders", b"one", tag="eu", delay=timedelta(seconds=1))
    receipts = mq.send_batch("orders", [Message(b"two"), Message(b"three")], delay_level=3)
    assert isinstance(receipt, SendReceipt)
    assert len(receipts) == 2
    first, second = broker.named("SendMessage")
    assert first.request.messages[0].system_properties.tag == "eu"
    assert second.headers["latermq-delay-level"] == "3"


def test_errors_are_the_same(mq: latermq.sync.Client) -> None:
    with pytest.raises(TopicNotFoundError):
        mq.send("bills", b"one")


def test_several_threads(broker: ScriptedBroker, mq: latermq.sync.Client) -> None:
    threads = [threading.Thread(target=mq.send, args=("orders", b"one")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON_S)
    assert sum(len(request.messages) for request in broker.requests("SendMessage")) == 8


def test_simple_consumer(broker: ScriptedBroker, mq: latermq.sync.Client) -> None:
    for body in (b"one", b"two", b"three", b"four"):
        broker.deliver(body, tag="eu")
    with mq.simple_consumer("orders", group="billing") as consumer:
        assert (consumer.group, consumer.subscriptions) == ("billing", {"orders": "*"})
        first, second, third, fourth = consumer.receive(4)
        assert (first.body, first.tag, first.attempt) == (b"one", "eu", 1)
        consumer.change_invisible_duration(first, timedelta(minutes=1))
        consumer.ack(first)
        consumer.nack(second, error=ValueError("no card"))
        consumer.dead_letter(third, "no such customer")
        broker.refuse("AckMessage", v2.Status(code=v2.INVALID_RECEIPT_HANDLE))
        with pytest.raises(InvalidReceiptHandleError):
            fourth.ack()
        assert all(delivery.settled for delivery in (first, second, third, fourth))
        broker.topics["bills"] = 1
        consumer.subscribe("bills", "b")
        consumer.unsubscribe("orders")
        assert consumer.subscriptions == {"bills": "b"}


def test_blocks_settle(broker: ScriptedBroker, mq: latermq.sync.Client) -> None:
    for body in (b"one", b"two", b"three"):
        broker.deliver(body)
    for delivery in mq.push_consumer("orders", group="billing"):
        with delivery:
            if delivery.body == b"two":
                raise ValueError("no card")
        if delivery.body == b"three":
            break
    assert broker.acked() == ["id-1", "id-3"]
    (nack,) = broker.named("ChangeInvisibleDuration")
    assert nack.request.message_id == "id-2"
    assert nack.failure.text == "no card"


def test_ways_to_settle(broker: ScriptedBroker, mq: latermq.sync.Client) -> None:
    for body in (b"one", b"two", b"three"):
        broker.deliver(body)
    deliveries = iter(mq.push_consumer("orders", group="billing"))
    with next(deliveries) as delivery:
        delivery.retry_in(timedelta(minutes=5))
    with next(deliveries) as delivery:
        delivery.nack(ValueError("no card"))
    with next(deliveries) as delivery:
        delivery.extend(timedelta(hours=1))
        delivery.dead_letter("no such customer")
    assert len(broker.named("ChangeInvisibleDuration")) == 3
    assert len(broker.named("ForwardMessageToDeadLetterQueue")) == 1
    assert broker.acked() == []


def test_a_listener_runs_in_threads(broker: ScriptedBroker, mq: latermq.sync.Client) -> None:
    seen: queue.Queue[str] = queue.Queue()
    together = threading.Barrier(2, timeout=SOON_S)
    consumer = mq.push_consumer("orders", group="billing", concurrency=2)

    @consumer.listener
    def bill(delivery: Delivery) -> None:
        together.wait()
        seen.put(threading.current_thread().name)

    broker.deliver(b"one")
    broker.deliver(b"two")
    with consumer:
        names = {seen.get(timeout=SOON_S) for _ in range(2)}
    assert len(names) == 2
    assert all(name.startswith("latermq-listener") for name in names)
    assert sorted(broker.acked()) == ["id-1", "id-2"]


def test_what_would_do_nothing_in_a_thread_is_refused(mq: latermq.sync.Client) -> None:
    consumer = mq.push_consumer("orders", group="billing")

    async def bill(delivery: Delivery) -> None: ...

    def yields(deliveries: list[Delivery]) -> Iterator[Delivery]:
        yield from deliveries

    with pytest.raises(TypeError, match="no `async def` function"):
        consumer.listener(bill)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="yields yields"):
        consumer.batch_listener(10)(yields)  # type: ignore[arg-type]


def test_a_call_that_would_wait_for_itself_is_told(mq: latermq.sync.Client) -> None:
    class Audit(Middleware):
        async def send(
            self, topic: str, messages: Sequence[Message], call_next: SendNext
        ) -> Sequence[SendReceipt]:
            mq.send("audit", b"a send")
            return await call_next(topic, messages)

    mq.use(Audit())
    with pytest.raises(RuntimeError, match="in the client's own event loop"):
        mq.send("orders", b"one")


def test_run_ends_when_it_is_closed(broker: ScriptedBroker, mq: latermq.sync.Client) -> None:
    done = threading.Event()
    consumer = mq.push_consumer("orders", group="billing")

    @consumer.listener
    def bill(delivery: Delivery) -> None:
        done.set()

    broker.deliver(b"one")
    running = threading.Thread(target=consumer.run)
    running.start()
    assert done.wait(SOON_S)
    consumer.close()
    running.join(SOON_S)
    assert not running.is_alive()
    assert broker.acked() == ["id-1"]


def test_closing_ends_iteration_elsewhere(mq: latermq.sync.Client) -> None:
    consumer = mq.push_consumer("orders", group="billing")
    consumer.start()
    found: list[Delivery] = []
    iterating = threading.Thread(target=lambda: found.extend(consumer))
    iterating.start()
    consumer.close()
    iterating.join(SOON_S)
    assert not iterating.is_alive()
    assert found == []
    assert consumer.closed


def test_a_closed_client(broker: ScriptedBroker) -> None:
    client = latermq.sync.connect("127.0.0.1:8081")
    client.close()
    client.close()
    with pytest.raises(ClosedError):
        client.send("orders", b"one")


def said_in_child(call: Callable[[], object]) -> str:
    """Fork, and return what `call` raised in the child; "" if nothing."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  told to the test
            os.write(theirs, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def test_a_client_from_before_a_fork(broker: ScriptedBroker, mq: latermq.sync.Client) -> None:
    broker.deliver(b"one")
    consumer = mq.simple_consumer("orders", group="billing")
    (delivery,) = consumer.receive()
    before = f"ClosedError: this client was made in process {os.getpid()}, before the fork that"
    for call in (lambda: mq.send("orders", b"two"), consumer.receive, delivery.ack):
        assert said_in_child(call).startswith(before)
    assert said_in_child(mq.close) == ""
    delivery.ack()
    mq.send("orders", b"three")


def test_transactions_and_recall(broker: ScriptedBroker, mq: latermq.sync.Client) -> None:
    with mq.transaction("orders", b"one", tag="eu") as transaction:
        assert transaction.transaction_id == f"t-{transaction.message_id}"
    with pytest.raises(ZeroDivisionError), mq.transaction("orders", b"two"):
        raise ZeroDivisionError
    with mq.transaction("orders", b"three") as transaction:
        transaction.rollback()
    with mq.transaction("orders", b"four") as transaction:
        transaction.commit()
    resolutions = [request.resolution for request in broker.requests("EndTransaction")]
    assert resolutions == [v2.COMMIT, v2.ROLLBACK, v2.ROLLBACK, v2.COMMIT]
    assert mq.recall("orders", "d-1-40") == "recalled"


def test_a_checker_runs_in_a_thread_of_its_own(
    broker: ScriptedBroker, mq: latermq.sync.Client
) -> None:
    threads: queue.Queue[str] = queue.Queue()

    def checker(half: latermq.Received) -> latermq.Resolution:
        threads.put(threading.current_thread().name)
        return latermq.Resolution.COMMIT

    mq.check_transactions("orders", checker)
    message = v2.Message(topic=v2.Resource(name="orders"), body=b"one")
    orphan = rpc.RecoverOrphanedTransactionCommand(message=message, transaction_id="t-1")
    command = rpc.TelemetryCommand(recover_orphaned_transaction_command=orphan)

    async def push() -> None:
        broker.streams[-1].push(command)

    mq._loop.call(push())
    assert threads.get(timeout=SOON_S) != "latermq"


@pytest.fixture
def logged() -> Iterator[queue.Queue[logging.LogRecord]]:
    records: queue.Queue[logging.LogRecord] = queue.Queue()
    handler = QueueHandler(records)
    logging.getLogger("latermq.client").addHandler(handler)
    yield records
    logging.getLogger("latermq.client").removeHandler(handler)


def test_taken_is_called_in_a_thread_of_its_own(
    broker: ScriptedBroker, mq: latermq.sync.Client, logged: queue.Queue[logging.LogRecord]
) -> None:
    """What it raises is logged."""
    threads: queue.Queue[str] = queue.Queue()
    broker.topics["chat"] = 1

    def taken(name: str) -> None:
        threads.put(threading.current_thread().name)
        raise RuntimeError(name)

    with mq.lite_simple_consumer("chat", group="bots", taken=taken) as consumer:
        consumer.subscribe("a", "b")

        async def take(name: str) -> None:
            broker.take_lite_topic(name)

        for name in ("a", "b"):
            mq._loop.call(take(name))
            assert threads.get(timeout=SOON_S) != "latermq"
            while "taken failed" not in logged.get(timeout=SOON_S).getMessage():
                pass
        assert consumer.lite_topics == frozenset()
    assert consumer.closed


def test_a_wrong_taken(mq: latermq.sync.Client) -> None:
    with pytest.raises(TypeError, match="taken must be a function or None, not 5"):
        mq.lite_simple_consumer("chat", group="bots", taken=5)  # type: ignore[arg-type]
