"""Runs a program until it ends or is told to: SIGINT and SIGTERM cancel it, and that is no error.

As the first process of a container a Python program would ignore SIGTERM otherwise.
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


def until_told(program: Coroutine[Any, Any, None]) -> None:
    """Run the program until it is done or was cancelled by a signal; its errors are raised."""
    asyncio.run(_guarded(program))


async def _guarded(program: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(program)
    loop = asyncio.get_running_loop()
    stopped = False

    def tell() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, tell)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise
