"""A shop with a past: dead letters of several kinds, lag, delays, an order that waits its turn.

What the console is tried and pictured on. The failures are raised in real consumers, so classes,
texts and stacks are as an application's.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import latermq
from latermq import admin
from latermq_proto.latermq.v1 import group_pb2, schedule_pb2, topic_pb2
from support.machine import patient

TOPIC: Final = "orders"
GROUP: Final = "billing"
ATTEMPTS: Final = 3
LADDER_MS: Final = (40, 120)
BANKS: Final = ("Harbour Bank", "Northern Bank", "Slow Bank")


class BankTimeoutError(Exception):
    """The bank did not answer."""


class CardExpiredError(Exception):
    """The customer has to name another card."""


def charge(order: dict[str, str]) -> None:
    """Charge an order's card, or say why not."""
    match order["kind"]:
        case "comma":
            euros, cents = order["amount"].split(".")
            int(euros), int(cents)
        case "slow":
            raise BankTimeoutError(f"{order['bank']} did not answer within 2 s")
        case "expired":
            raise CardExpiredError(f"card …{order['card']} expired in 2024-02")


def order_of(number: int, kind: str) -> dict[str, str]:
    return {
        "number": f"A-{1000 + number}",
        "kind": kind,
        "amount": "49,90" if kind == "comma" else "49.90",
        "card": "4242",
        "bank": BANKS[number % len(BANKS)],
    }


def policy(name: str, *, fifo: bool = False) -> group_pb2.CreateGroupRequest:
    """Return a group whose retries come within a moment."""
    ladder = group_pb2.Backoff.Ladder(delays_ms=LADDER_MS)
    group = group_pb2.Group(
        name=name, max_attempts=ATTEMPTS, backoff=group_pb2.Backoff(ladder=ladder),
        fifo=fifo, on_dead=group_pb2.PARK if fifo else group_pb2.ON_DEAD_UNSPECIFIED,
    )  # fmt: skip
    return group_pb2.CreateGroupRequest(group=group)


async def make_groups(endpoint: str, *names: str, fifo: bool = False) -> None:
    broker = admin.connect_async(endpoint)
    try:
        for name in names:
            await broker.call(broker.groups.CreateGroup, policy(name, fifo=fifo))
    finally:
        await broker.close()


async def make_topic(endpoint: str, name: str, queues: int = 2, **fields: int) -> None:
    broker = admin.connect_async(endpoint)
    try:
        request = topic_pb2.CreateTopicRequest(name=name, queue_count=queues, **fields)
        await broker.call(broker.topics.CreateTopic, request)
    finally:
        await broker.close()


async def make_schedule(endpoint: str, name: str, topic: str, **when: Any) -> None:
    broker = admin.connect_async(endpoint)
    try:
        schedule = schedule_pb2.Schedule(name=name, topic=topic, **when)
        request = schedule_pb2.PutScheduleRequest(schedule=schedule)
        await broker.call(broker.schedules.PutSchedule, request)
    finally:
        await broker.close()


async def send_orders(mq: latermq.Client, kinds: list[str], topic: str = TOPIC) -> list[str]:
    """Send an order of each kind; return their ids."""
    ids = []
    for number, kind in enumerate(kinds):
        order = order_of(number, kind)
        receipt = await mq.send(
            topic, json.dumps(order).encode(), tag="new", keys=[order["number"]],
            properties={"customer": f"c-{number}", "auth_token": "very-secret"},
        )  # fmt: skip
        ids.append(receipt.message_id)
    return ids


async def work(
    mq: latermq.Client, settled: int, topic: str = TOPIC, group: str = GROUP,
    charge_one: Callable[[dict[str, str]], None] = charge,
) -> None:  # fmt: skip
    """Consume until `settled` deliveries have ended, well or badly."""
    count = 0
    consumer = mq.simple_consumer(topic, group=group)
    try:
        while count < settled:
            wait = timedelta(seconds=patient(5))
            for delivery in await consumer.receive(
                16, wait=wait, invisible=timedelta(seconds=patient(30))
            ):
                with suppress(BankTimeoutError, CardExpiredError, ValueError):
                    async with delivery:
                        charge_one(json.loads(delivery.body))
                count += 1
    finally:
        await consumer.close()


async def tell(
    endpoint: str, comma: int = 9, slow: int = 4, expired: int = 2, fine: int = 6
) -> None:
    """Let orders come, some die, and some wait."""
    await make_topic(endpoint, TOPIC)
    await make_groups(endpoint, GROUP, "shipping")
    kinds = ["comma"] * comma + ["slow"] * slow + ["expired"] * expired + ["fine"] * fine
    async with latermq.connect(endpoint) as mq:
        await send_orders(mq, kinds)
        dying = comma + slow + expired
        await work(mq, dying * ATTEMPTS + fine)
        await mq.send("reminders", b"pay A-1001", keys=["A-1001"], delay=timedelta(minutes=7))
        for minute in (2, 2, 3, 12, 30, 31, 90):
            body = json.dumps({"remind": minute}).encode()
            await mq.send("reminders", body, keys=["A-1002"], delay=timedelta(minutes=minute))
