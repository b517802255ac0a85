"""The shop places orders, each with a payment deadline if it is asked to.

An order is a message in `orders`; its deadline is a second one in `payment-deadlines` that is
stored now and delivered when the time is up.

    python -m latermq.demo.orders --count 6 --deadline 30
"""

import argparse
import asyncio
import os
from datetime import UTC, datetime, timedelta
from itertools import islice

import latermq
from latermq.demo.shop import DEADLINES_TOPIC, ORDERS_TOPIC, Order, orders
from latermq.demo.until_told import until_told
from latermq.demo.voice import Voice


async def place(mq: latermq.Client, order: Order, deadline_s: float, voice: Voice) -> None:
    """Send the order, and its reminder if `deadline_s` is more than 0."""
    text = f"placing order {order.number}: {order.amount} EUR, card …{order.card}, {order.bank}"
    deadline = datetime.now(UTC) + timedelta(seconds=deadline_s)
    deadline = deadline.replace(microsecond=deadline.microsecond // 1000 * 1000)
    if deadline_s > 0:
        text += f"; to be paid by {deadline.astimezone():%H:%M:%S}"
    voice.say("placing", text)
    receipt = await mq.send(ORDERS_TOPIC, order.to_body(), tag="new", keys=[order.number])
    if deadline_s > 0:
        await mq.send(DEADLINES_TOPIC, order.to_body(), keys=[order.number], deliver_at=deadline)
    voice.note(
        "placed",
        order=order.number,
        message_id=receipt.message_id,
        deadline_at_ms=round(deadline.timestamp() * 1000) if deadline_s > 0 else 0,
    )


async def run(options: argparse.Namespace) -> None:
    voice = Voice(as_events=options.events)
    count = None if options.forever else options.count
    async with latermq.connect(options.endpoint) as mq:
        for order in islice(orders(options.first), count):
            await place(mq, order, options.deadline, voice)
            await asyncio.sleep(options.every)


def main() -> None:
    parser = argparse.ArgumentParser(prog="latermq.demo.orders", description="Place orders.")
    parser.add_argument(
        "--endpoint", default=os.environ.get("LATERMQ_ENDPOINT", "127.0.0.1:8081"), metavar="H:P"
    )
    parser.add_argument("--count", type=int, default=6, help="how many [6]")
    parser.add_argument("--forever", action="store_true", help="until it is stopped")
    parser.add_argument("--first", type=int, default=1001, help="number of the first [1001]")
    parser.add_argument("--every", type=float, default=0.2, metavar="S", help="seconds between")
    parser.add_argument(
        "--deadline", type=float, default=0, metavar="S", help="seconds to pay in; 0: no deadline"
    )
    parser.add_argument("--events", action="store_true", help="say it in JSON")
    until_told(run(parser.parse_args()))


if __name__ == "__main__":
    main()
