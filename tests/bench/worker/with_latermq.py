"""LaterMQ: `latermq worker bench.worker.with_latermq:app`."""

import asyncio

import latermq
from bench.worker.order import PORT, Order, done, send_all_async

app = latermq.App(f"127.0.0.1:{PORT}")


@app.listener("orders", group="billing")
async def bill(order: Order) -> None:
    done(order)


async def main() -> None:
    await send_all_async(bill.send)
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
