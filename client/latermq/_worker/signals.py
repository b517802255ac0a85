"""How a worker is told to end: the first signal asks, the second one ends it as it is."""

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

log = logging.getLogger("latermq.worker")

# Windows has Ctrl+Break, too: the one that another process can send to a group.
NUMBERS: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGBREAK") if hasattr(signal, name)
)


@contextmanager
def asked_to_end(end: Callable[[], None]) -> Iterator[None]:
    """Call `end` in the running loop at the first SIGTERM or SIGINT, and SIGBREAK of Windows.

    From then on, and after the block, signals do again what they did before: without handlers of
    the program's own the second one ends the process. In the main thread only; on Windows SIGTERM
    comes only where the process raises it.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in NUMBERS}

    def restore() -> None:
        for number, handler in before.items():
            # asyncio.run has a handler of its own for SIGINT, which would only cancel its task.
            signal.signal(number, signal.SIG_DFL if number is signal.SIGINT else handler)

    def asked(number: int, _: FrameType | None) -> None:
        restore()
        log.info("%s: ending", signal.Signals(number).name)
        loop.call_soon_threadsafe(end)

    for number in NUMBERS:
        signal.signal(number, asked)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
