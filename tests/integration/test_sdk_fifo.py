"""FIFO with our client against a real broker: order, failures, parking, kill -9."""

import asyncio
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

import pytest

import latermq
from latermq_proto.latermq.v1 import dead_letter_pb2, group_pb2
from support.broker_process import BrokerProcess
from support.machine import patient
from support.wire_client import WireClient, require_ok

KEYS = ("a", "b", "c", "d")
EACH = 15
ATTEMPTS = 3
CONFIG = """
[delivery]
auto_renew_lease_ms = 1500
[server]
polling_ms_min = 100
polling_ms_max = 1000
"""


def fifo_group(
    operator: WireClient, name: str, *, park: bool = False, max_attempts: int = ATTEMPTS
) -> None:
    group = group_pb2.Group(
        name=name,
        fifo=True,
        max_attempts=max_attempts,
        on_dead=group_pb2.PARK if park else group_pb2.SKIP,
    )
    group.backoff.ladder.delays_ms.extend([5, 10])
    request = group_pb2.CreateGroupRequest(group=group)
    require_ok(operator.call(operator.groups.CreateGroup, request))


async def send_in_order(mq: latermq.Client, topic: str) -> None:
    for number in range(EACH):
        for key in KEYS:
            await mq.send(topic, f"{key}{number}".encode(), message_group=key)


def key_of(delivery: latermq.Delivery) -> tuple[str, int]:
    text = delivery.body.decode()
    return text[0], int(text[1:])


async def test_each_message_group_in_order_and_all_at_once(
    sdk_broker: BrokerProcess, operator: WireClient, name: str
) -> None:
    """Some fail once or twice: their message group waits, the others go on."""
    fifo_group(operator, name)
    done: dict[str, list[int]] = defaultdict(list)
    busy: set[str] = set()
    at_once = 0
    async with latermq.connect(sdk_broker.endpoint) as mq, asyncio.timeout(patient(60)):
        consumer = mq.push_consumer(name, group=name)

        @consumer.listener
        async def work(delivery: latermq.Delivery) -> None:
            nonlocal at_once
            key, number = key_of(delivery)
            assert delivery.message_group == key
            assert key not in busy, "two of a message group at once"
            busy.add(key)
            at_once = max(at_once, len(busy))
            await asyncio.sleep(0.005)
            busy.discard(key)
            if number % 5 == 3 and delivery.attempt < ATTEMPTS:
                raise ValueError("not yet")
            done[key].append(number)

        async with consumer:
            await send_in_order(mq, name)
            while sum(map(len, done.values())) < len(KEYS) * EACH:
                await asyncio.sleep(0.02)
    assert dict(done) == {key: list(range(EACH)) for key in KEYS}
    assert at_once > 1


@pytest.mark.parametrize("park", [False, True])
async def test_what_never_gets_through(
    sdk_broker: BrokerProcess, operator: WireClient, name: str, park: bool
) -> None:
    name = f"{name}_{park}"
    fifo_group(operator, name, park=park)
    done: list[str] = []
    fails = {"a1"}
    async with latermq.connect(sdk_broker.endpoint) as mq, asyncio.timeout(patient(60)):
        consumer = mq.push_consumer(name, group=name)

        @consumer.listener
        async def work(delivery: latermq.Delivery) -> None:
            if delivery.body.decode() in fails:
                raise ValueError("never")
            done.append(delivery.body.decode())

        for number in range(3):
            for key in "ab":
                await mq.send(name, f"{key}{number}".encode(), message_group=key)
        async with consumer:
            expected = 4 if park else 5
            while len(done) < expected:
                await asyncio.sleep(0.02)
            listing = dead_letter_pb2.ListDeadLettersRequest(group=name)
            while not (
                found := operator.call(operator.dead_letters.ListDeadLetters, listing).letters
            ):
                await asyncio.sleep(0.02)
            (letter,) = found
            assert (letter.attempt_count, letter.failure_text) == (ATTEMPTS, "never")
            assert [one for one in done if one[0] == "a"] == (["a0"] if park else ["a0", "a2"])
            fails.clear()
            redrive = dead_letter_pb2.RedriveDeadLettersRequest(group=name)
            assert list(operator.dead_letters.RedriveDeadLetters(redrive))[-1].changed_count == 1
            while len(done) < 6:
                await asyncio.sleep(0.02)
    wanted = ["a0", "a1", "a2"] if park else ["a0", "a2", "a1"]
    assert [one for one in done if one[0] == "a"] == wanted


async def test_a_simple_consumer_gets_the_next_after_the_ack(
    sdk_broker: BrokerProcess, operator: WireClient, name: str
) -> None:
    fifo_group(operator, name)
    async with latermq.connect(sdk_broker.endpoint) as mq, asyncio.timeout(patient(60)):
        consumer = mq.simple_consumer(name, group=name)
        for number in range(3):
            await mq.send(name, f"a{number}".encode(), message_group="a")
        (first,) = await consumer.receive(1)
        assert await consumer.receive(5, wait=timedelta(milliseconds=50)) == []
        await first.ack()
        rest = await consumer.receive(5)
        assert [one.body for one in rest] == [b"a1", b"a2"]
        await rest[0].retry_in(timedelta(milliseconds=1), ValueError("no"))
        await rest[1].extend(timedelta(milliseconds=1))
        again = await consumer.receive(5)
        assert [(one.body, one.attempt) for one in again] == [(b"a1", 2), (b"a2", 2)]


@pytest.mark.timeout(180)
async def test_the_order_survives_kill_9(tmp_path: Path, name: str) -> None:
    """Per message group, what a listener sees for the first time is what was sent, in order; and
    what it acknowledged before something later came never comes again."""
    seen: dict[str, list[int]] = defaultdict(list)
    sent: dict[str, int] = dict.fromkeys(KEYS, 0)
    stop = asyncio.Event()
    with BrokerProcess(tmp_path / "data", config=CONFIG) as broker:
        broker.start()
        with WireClient(broker.endpoint) as operator:
            # Each kill may cost an attempt of what waits in a busy consumer: none is to die of it.
            fifo_group(operator, name, max_attempts=100)
        async with latermq.connect(broker.endpoint) as mq:
            consumer = mq.push_consumer(name, group=name)

            @consumer.listener
            async def work(delivery: latermq.Delivery) -> None:
                key, number = key_of(delivery)
                seen[key].append(number)
                await asyncio.sleep(0.002)

            async def produce(key: str) -> None:
                while not stop.is_set():
                    try:
                        await mq.send(name, f"{key}{sent[key]}".encode(), message_group=key)
                    except latermq.LaterMQError:
                        await asyncio.sleep(0.05)  # the same once more: it may be there twice
                    else:
                        sent[key] += 1

            async def moved_on() -> None:
                """Wait until more of each message group was sent, and more was seen."""
                to_send = {key: sent[key] + 20 for key in KEYS}
                to_see = sum(map(len, seen.values())) + 20
                async with asyncio.timeout(patient(60)):
                    while (
                        any(sent[key] < to_send[key] for key in KEYS)
                        or sum(map(len, seen.values())) < to_see
                    ):
                        await asyncio.sleep(0.01)

            producers = [asyncio.create_task(produce(key)) for key in KEYS]
            async with consumer:
                for _ in range(5):
                    await moved_on()
                    await asyncio.to_thread(broker.kill)
                    await asyncio.to_thread(broker.start)
                await moved_on()
                stop.set()
                await asyncio.gather(*producers)
                async with asyncio.timeout(patient(60)):
                    while any(len(set(seen[key])) < sent[key] for key in KEYS):
                        await asyncio.sleep(0.1)
    assert min(sent.values()) > 20
    for key in KEYS:
        first = list(dict.fromkeys(seen[key]))
        assert first[: sent[key]] == list(range(sent[key]))
        steps = [later - sooner for sooner, later in zip(seen[key], seen[key][1:], strict=False)]
        assert all(step <= 1 for step in steps), "something was passed over"
        assert min(steps, default=0) > -40, "more came again than one reply holds"
