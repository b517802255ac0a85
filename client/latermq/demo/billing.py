"""Billing charges the card of every order; what it cannot charge, it fails.

Leaving `async with delivery` acknowledges; an exception inside it is the nack: its class, text and
stack go to the broker, which brings the order back after the group's backoff, or buries it.

    python -m latermq.demo.billing
"""

import argparse
import os
from datetime import UTC, datetime

import latermq
from latermq.demo.shop import BILLING_GROUP, ORDERS_TOPIC, Order, charge
from latermq.demo.until_told import until_told
from latermq.demo.voice import Voice


async def bill(delivery: latermq.Delivery, voice: Voice, *, fixed: bool) -> None:
    """Charge one order and say how it went; what the shop raises goes through."""
    order = Order.from_body(delivery.body)
    month = f"{datetime.now(UTC):%Y-%m}"
    try:
        cents = charge(order, delivery.attempt, month, fixed=fixed)
    except Exception as error:
        name = type(error).__name__
        text = f"order {order.number}, attempt {delivery.attempt}: {name}: {error}"
        voice.say(
            "failed",
            text,
            order=order.number,
            attempt=delivery.attempt,
            failure_class=name,
        )
        raise
    text = f"order {order.number}, attempt {delivery.attempt}: billed {cents / 100:.2f} EUR"
    voice.say("billed", text, order=order.number, attempt=delivery.attempt, cents=cents)


async def run(options: argparse.Namespace) -> None:
    voice = Voice(as_events=options.events)
    async with (
        latermq.connect(options.endpoint) as mq,
        mq.push_consumer(ORDERS_TOPIC, group=BILLING_GROUP) as consumer,
    ):
        release = "release 2" if options.fixed else "release 1"
        voice.say("started", f"billing, {release}, takes orders")
        async for delivery in consumer:
            async with delivery:
                await bill(delivery, voice, fixed=options.fixed)


def main() -> None:
    parser = argparse.ArgumentParser(prog="latermq.demo.billing", description="Bill orders.")
    parser.add_argument(
        "--endpoint", default=os.environ.get("LATERMQ_ENDPOINT", "127.0.0.1:8081"), metavar="H:P"
    )
    parser.add_argument("--fixed", action="store_true", help="the release that can read 49,90")
    parser.add_argument("--events", action="store_true", help="say it in JSON")
    until_told(run(parser.parse_args()))


if __name__ == "__main__":
    main()
