"""arq on Redis, no results kept: `arq bench.worker.with_arq.WorkerSettings`."""

import asyncio
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings

from bench.worker.order import PORT, Order, done, send_all_async

SETTINGS = RedisSettings(host="127.0.0.1", port=PORT)


async def bill(_: dict[str, Any], order: dict[str, Any]) -> None:
    done(Order.model_validate(order))


class WorkerSettings:
    """What `arq` reads."""

    functions = (bill,)
    redis_settings = SETTINGS
    keep_result = 0


async def main() -> None:
    pool = await create_pool(SETTINGS)
    await send_all_async(lambda order: pool.enqueue_job("bill", order.model_dump()))
    await pool.aclose()


if __name__ == "__main__":
    asyncio.run(main())
