"""Celery on Redis: `celery -A bench.worker.with_celery worker`.

A message is acknowledged after its work, as LaterMQ does it, and no result is kept.
"""

from typing import Any

from celery import Celery

from bench.worker.order import PORT, Order, done, send_all

app = Celery(broker=f"redis://127.0.0.1:{PORT}/0")
app.conf.update(task_acks_late=True, task_ignore_result=True, worker_hijack_root_logger=False)


def _bill(order: dict[str, Any]) -> None:
    done(Order.model_validate(order))


bill = app.task(_bill, name="bill")

if __name__ == "__main__":
    send_all(lambda order: bill.delay(order.model_dump()))
