"""Stands between clients and a broker, as a load balancer does, and can lose one whole reply."""

import asyncio
import threading
import time
from contextlib import suppress
from typing import Final, Self

from support.machine import patient

CHUNK_BYTES: Final = 1 << 16
QUIET_S: Final = 0.5  # after this long without a byte the reply is taken whole
START_S: Final = patient(10.0)


class LossyRelay:
    """Listens at `endpoint` in a thread of its own and carries bytes to `target`."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._ready = threading.Event()
        self._lost = threading.Event()
        self._bytes = 0  # of the reply to lose, 0: none
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))
        self._stop = asyncio.Event()
        self.endpoint = ""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(START_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def lose(self, reply_bytes: int) -> None:
        """Take the next reply of at least so many bytes, and end both of its connections.

        Called before the request; of the reply its client gets less than `reply_bytes`. The
        broker's end is closed in order, after all was read from it.
        """
        self._lost.clear()
        self._bytes = reply_bytes

    def wait_lost(self, timeout_s: float) -> float:
        """Wait until a reply was lost; return when, in seconds of the monotonic clock."""
        assert self._lost.wait(timeout_s), "no reply was lost"
        return time.monotonic()

    async def _run(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        async with server:
            await self._stop.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _serve(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        try:
            broker, ask = await asyncio.open_connection(*self._target.split(":"))
        except OSError:  # the broker is down
            answer.close()
            return
        up = asyncio.create_task(self._carry(client, ask))
        down = asyncio.create_task(self._carry_down(broker, answer))
        try:
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (up, down):
                task.cancel()
                with suppress(asyncio.CancelledError, OSError):
                    await task
            ask.close()
            answer.transport.abort()  # what it has not sent its client gets no more

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()

    async def _carry_down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wanted = carried = 0
        while data := await reader.read(CHUNK_BYTES):
            if wanted != self._bytes:
                wanted, carried = self._bytes, 0
            carried += len(data)
            if wanted and carried >= wanted:
                self._bytes = 0
                with suppress(TimeoutError):
                    while await asyncio.wait_for(reader.read(CHUNK_BYTES), QUIET_S):
                        pass
                self._lost.set()
                return
            writer.write(data)
            await writer.drain()
