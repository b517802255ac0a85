"""dramatiq on Redis: `dramatiq bench.worker.with_dramatiq`."""

from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.worker.order import PORT, Order, done, send_all

dramatiq.set_broker(RedisBroker(host="127.0.0.1", port=PORT))


def _bill(order: dict[str, Any]) -> None:
    done(Order.model_validate(order))


bill = dramatiq.actor(_bill, actor_name="bill")

if __name__ == "__main__":
    send_all(lambda order: bill.send(order.model_dump()))
