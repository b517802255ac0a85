"""A topic on two brokers: who is told what, and whom a send tries next."""

from collections.abc import Callable

from latermq._values.endpoints import Endpoints
from latermq._values.route import Queue, candidates
from latermq.client import Client
from latermq.errors import UnavailableError
from support.scripted_broker import ScriptedBroker
from support.virtual_loop import virtually

Connect = Callable[[], Client]
HERE, THERE = "127.0.0.1:8081", "127.0.0.2:8081"
GONE = UnavailableError("gone")


def queue(broker: str, number: int) -> Queue:
    return Queue("orders", number, True, True, broker, 0, Endpoints.parse(HERE))


QUEUES = tuple(queue(broker, number) for broker in ("a", "b") for number in (0, 1))


def test_one_queue_of_each_broker_beginning_with_the_turn() -> None:
    firsts = [candidates(QUEUES, turn, None)[0] for turn in range(5)]
    assert firsts == [*QUEUES, QUEUES[0]]
    for turn in range(4):
        assert {q.broker_name for q in candidates(QUEUES, turn, None)} == {"a", "b"}
        assert len(candidates(QUEUES, turn, None)) == 2


def test_a_message_group_has_one_queue() -> None:
    chosen = [candidates(QUEUES, turn, "group") for turn in range(4)]
    assert all(choice == chosen[0] for choice in chosen)
    assert len(chosen[0]) == 1
    assert len({tuple(candidates(QUEUES, 0, str(n))) for n in range(50)}) == len(QUEUES)


@virtually
async def test_a_retry_goes_to_the_other_broker(broker: ScriptedBroker, connect: Connect) -> None:
    broker.second = Endpoints.parse(THERE)
    broker.refuse("SendMessage", GONE, GONE)
    async with connect() as mq:
        await mq.send("orders", b"one")
    assert [call.endpoint for call in broker.named("SendMessage")] == [HERE, THERE, HERE]


@virtually
async def test_every_broker_knows_us_and_is_received_from(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.second = Endpoints.parse(THERE)
    async with connect() as mq, mq.push_consumer("orders", group="billing"):
        pass
    for name in ("Telemetry", "ReceiveMessage", "NotifyClientTermination"):
        assert {call.endpoint for call in broker.named(name)} == {HERE, THERE}, name


@virtually
async def test_a_delivery_is_settled_where_it_came_from(
    broker: ScriptedBroker, connect: Connect
) -> None:
    broker.second = Endpoints.parse(THERE)
    async with connect() as mq:
        consumer = mq.simple_consumer("orders", group="billing")
        for _ in range(2):
            broker.deliver(b"one")
            (delivery,) = await consumer.receive()
            await delivery.ack()
    received = [call.endpoint for call in broker.named("ReceiveMessage")]
    assert sorted(received) == [HERE, THERE]
    assert [call.endpoint for call in broker.named("AckMessage")] == received
