"""The clients of one app: one for each running event loop, made and dropped under a lock.

A web server has threads with an event loop each; `asyncio.run`, or Django's `async_to_sync`, has a
new one for each call. The client of a loop that is closed is dropped, and its identity goes on: the
next client sends under its id, so that the broker keeps one client of a program, not one of each
call. A forked process has identities of its own.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from latermq.client import Client
from latermq.middleware import Middleware

SPARE_MAX: Final = 1_024  # clients of closed loops whose ids wait for another one


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class LoopClients:
    """Clients by the event loop that they were asked for in; None: outside of any.

    The one that was made outside of any loop is the next loop's that has none.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[asyncio.AbstractEventLoop | None, Client] = {}
        self._spare: deque[Client] = deque(maxlen=SPARE_MAX)  # whose loop is closed
        self._pid = os.getpid()  # of the process that the spare ones are of

    def __bool__(self) -> bool:
        return bool(self._clients)

    @property
    def all(self) -> Sequence[Client]:
        """Return those that are there."""
        with self._lock:
            return tuple(self._clients.values())

    def here(
        self,
        make: Callable[[], Client],
        middleware: Sequence[Middleware],
        service: Callable[[], str],
    ) -> Client:
        """Return the client of the running loop, made on first use; its workers are `service`'s."""
        loop = _running()
        with self._lock:
            client = self._clients.get(loop)
            if client is not None and not client._is_over:
                return client
            self._drop_over()
            client = self._clients.pop(None, None) or self._made(make, middleware)
            client._service = service()
            self._clients[loop] = client
            return client

    def take(self) -> Client | None:
        """Return the client of the running loop, which is forgotten here; None: it has none.

        So is the one that was made outside of any loop.
        """
        loop = _running()
        with self._lock:
            self._drop_over()
            outside = self._clients.pop(None, None)
            return self._clients.pop(loop, None) or outside

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._clients.clear()
            self._spare.clear()

    def _made(self, make: Callable[[], Client], middleware: Sequence[Middleware]) -> Client:
        client = make()
        for each in middleware:
            client.use(each)
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._spare.clear()
        if self._spare:
            client._producer_id = self._spare.pop()._sends_as
        return client

    def _drop_over(self) -> None:
        over = [loop for loop, client in self._clients.items() if client._is_over]
        for loop in over:
            self._spare.append(self._clients.pop(loop))
