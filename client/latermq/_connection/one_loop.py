"""The event loop that a client belongs to, and the refusal of calls from another one."""

import asyncio

OTHER_LOOP = (
    "this client belongs to the event loop that it was first used in: make one in each loop, or "
    "one of latermq.sync for all threads"
)


class OneLoop:
    """The event loop of what has futures, locks and connections: the first one it is used in."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_over(self) -> bool:
        """Tell whether the event loop is closed."""
        return self._loop is not None and self._loop.is_closed()

    def check(self) -> None:
        """Require the event loop that was there at the first check.

        Raises:
            RuntimeError: this is another loop, or none; nothing was sent.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise RuntimeError(OTHER_LOOP)
            self._loop = loop
