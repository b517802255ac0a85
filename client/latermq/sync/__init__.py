"""The same client for threads: no `async`, no `await`, everything else alike.

    with latermq.sync.connect("127.0.0.1:8081") as mq:
        mq.send("orders", body, deliver_at=tomorrow)
        for delivery in mq.push_consumer("orders", group="billing"):
            with delivery:  # ack on exit; on raise, delivered again after its backoff
                bill(delivery.body)

A `Client` runs one event loop in a thread of its own. Its objects may be used from any thread, also
from several at a time; a listener is an ordinary function, called in a pool of `concurrency`
threads. Errors and their meaning are those of the async objects.
"""

from latermq.sync.client import Client, Transaction, connect
from latermq.sync.consumers import (
    Delivery,
    LitePushConsumer,
    LiteSimpleConsumer,
    PushConsumer,
    SimpleConsumer,
)

__all__ = [
    "Client",
    "Delivery",
    "LitePushConsumer",
    "LiteSimpleConsumer",
    "PushConsumer",
    "SimpleConsumer",
    "Transaction",
    "connect",
]
