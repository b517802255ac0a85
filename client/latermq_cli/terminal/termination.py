"""SIGTERM as an end in order: what was made for a while is taken away."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def orderly_termination() -> Iterator[None]:
    """Have SIGTERM leave the block by SystemExit, as SIGINT does by KeyboardInterrupt.

    A second one kills the process as it is. For the main thread.
    """

    def end(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
