"""Our PushConsumer against a real broker: the ten-line start, failures, ends, restarts."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import latermq
from latermq_proto.latermq.v1 import dead_letter_pb2
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient

ATTEMPTS = 3
LADDER_MS = [5, 10]


def letters(operator: WireClient, group: str) -> list[Any]:
    """Every dead letter of the group, its attempts with their stacks."""
    request = dead_letter_pb2.ListDeadLettersRequest(group=group)
    found = operator.call(operator.dead_letters.ListDeadLetters, request).letters
    return [
        operator.call(
            operator.dead_letters.GetDeadLetter,
            dead_letter_pb2.GetDeadLetterRequest(group=group, message_id=letter.message_id),
        ).letter
        for letter in found
    ]


async def until(condition: Any) -> None:
    """Wait until it holds, at most half a minute."""
    async with asyncio.timeout(patient(30)):
        while not condition():
            await asyncio.sleep(0.02)


async def test_the_ten_line_start(
    sdk_broker: BrokerProcess, operator: WireClient, name: str
) -> None:
    operator.create_group(name, ATTEMPTS, LADDER_MS)
    bodies = []
    async with latermq.connect(sdk_broker.endpoint) as mq, asyncio.timeout(patient(30)):
        await mq.send(name, b"one", delay=timedelta(milliseconds=100))
        async for delivery in mq.push_consumer(name, group=name):
            async with delivery:
                bodies.append((delivery.body, delivery.attempt))
                if delivery.attempt == 1:
                    raise TimeoutError("bank")
                break
    assert bodies == [(b"one", 1), (b"one", 2)]


async def test_a_message_that_always_fails_tells_its_story(
    sdk_broker: BrokerProcess, operator: WireClient, name: str
) -> None:
    operator.create_group(name, ATTEMPTS, LADDER_MS)
    attempts: list[int] = []
    async with latermq.connect(sdk_broker.endpoint) as mq:
        consumer = mq.push_consumer(name, group=name)

        @consumer.listener
        async def bill(delivery: latermq.Delivery) -> None:
            attempts.append(delivery.attempt)
            raise TimeoutError(f"bank {delivery.attempt}")

        async with consumer:
            await mq.send(name, b"one")
            await until(lambda: letters(operator, name))
    assert attempts == [1, 2, 3]
    (letter,) = letters(operator, name)
    assert (letter.reason, letter.attempt_count) == ("attempts_exhausted", ATTEMPTS)
    assert (letter.failure_class, letter.failure_text) == ("TimeoutError", "bank 3")
    assert [(a.outcome, a.failure_text) for a in letter.attempts] == [
        ("nack", "bank 1"),
        ("nack", "bank 2"),
        ("nack", "bank 3"),
    ]
    assert "raise TimeoutError" in letter.attempts[0].stack
    assert len({attempt.stack_hash for attempt in letter.attempts}) == 1
    assert [attempt.backoff_ms for attempt in letter.attempts][:2] == LADDER_MS


async def test_a_message_the_application_refuses(
    sdk_broker: BrokerProcess, operator: WireClient, name: str
) -> None:
    async with latermq.connect(sdk_broker.endpoint) as mq, asyncio.timeout(patient(30)):
        await mq.send(name, b"one")
        async for delivery in mq.push_consumer(name, group=name):
            async with delivery:
                await delivery.dead_letter("no such customer")
            break
    (letter,) = letters(operator, name)
    assert (letter.reason, letter.failure_text) == ("rejected", "no such customer")


async def test_a_stack_of_the_largest_size_arrives(
    sdk_broker: BrokerProcess, operator: WireClient, name: str
) -> None:
    def deep(depth: int) -> None:
        if depth:
            return deep(depth - 1) if depth % 2 else deeper(depth)
        raise ValueError("ü" * 5000)

    def deeper(depth: int) -> None:
        deep(depth - 1)

    operator.create_group(name, 1)
    async with latermq.connect(sdk_broker.endpoint) as mq, asyncio.timeout(patient(30)):
        await mq.send(name, b"one")
        async for delivery in mq.push_consumer(name, group=name):
            async with delivery:
                deep(300)
            break
    (letter,) = letters(operator, name)
    assert letter.failure_text == "ü" * 512
    assert len(letter.attempts[0].stack) > 1000


async def test_two_consumers_share_a_group(sdk_broker: BrokerProcess, name: str) -> None:
    seen: list[bytes] = []

    async def work(consumer: latermq.PushConsumer) -> None:
        async for delivery in consumer:
            async with delivery:
                seen.append(delivery.body)

    async with latermq.connect(sdk_broker.endpoint) as mq:
        consumers = [mq.push_consumer(name, group=name, cached_count_max=20) for _ in range(2)]
        workers = [asyncio.create_task(work(consumer)) for consumer in consumers]
        messages = [latermq.Message(b"%d" % number) for number in range(500)]
        await mq.send_batch(name, messages)
        await until(lambda: len(seen) >= len(messages))
        for consumer in consumers:
            await consumer.close()
        await asyncio.gather(*workers)
    assert sorted(seen) == sorted(message.body for message in messages)


async def test_what_was_not_begun_is_returned_uncounted(
    sdk_broker: BrokerProcess, name: str
) -> None:
    async with latermq.connect(sdk_broker.endpoint) as mq, asyncio.timeout(patient(60)):
        await mq.send_batch(name, [latermq.Message(b"%d" % n) for n in range(20)])
        hoarder = mq.push_consumer(name, group=name)
        await hoarder.start()
        await until(lambda: len(hoarder._inbox) == 20)
        await hoarder.close()
        found = []
        async for delivery in mq.push_consumer(name, group=name):
            async with delivery:
                found.append((delivery.body, delivery.attempt))
            if len(found) == 20:
                break
    assert sorted(found) == sorted((b"%d" % n, 1) for n in range(20))


@pytest.mark.parametrize("kill_after_s", [0.0, 0.02, 0.04])
async def test_consuming_goes_on_after_a_kill(tmp_path: Path, kill_after_s: float) -> None:
    """Also what was in a reply that the kill cut off comes soon, though we live on."""
    seen: set[bytes] = set()
    with BrokerProcess(tmp_path / "data") as broker:
        broker.start()
        # A broker on a busy machine may take longer to be back than a call usually may.
        patience = timedelta(seconds=patient(30))
        async with latermq.connect(broker.endpoint, request_timeout=patience) as mq:
            consumer = mq.push_consumer("orders", group="billing")

            @consumer.listener
            async def bill(delivery: latermq.Delivery) -> None:
                await asyncio.sleep(0.01)
                seen.add(delivery.body)

            async with consumer:
                before = [mq.send("orders", b"before %d" % number) for number in range(100)]
                sending = [asyncio.create_task(send) for send in before]
                await asyncio.sleep(kill_after_s)
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
                await asyncio.gather(*sending)
                for number in range(100):
                    await mq.send("orders", b"after %d" % number)
                await until(lambda: len(seen) == 200)
