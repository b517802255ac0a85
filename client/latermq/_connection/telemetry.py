"""One telemetry stream: says who this client is, hears what the broker decided, comes back.

    opening ──settings sent──→ waiting ──settings answered──→ open
       ↑                          │                            │
       └────── backoff ←──────────┴──── stream ended ←─────────┘

A broker that refuses the settings ends the wait of `ready` with its error; one that is away does
not: the stream is tried again until it is closed.
"""

import asyncio
import logging
import random
from collections.abc import Callable

from latermq._connection.transport import Stream
from latermq._values.settings import Settings
from latermq._wire.session_calls import Command, Orphan, Taken, read_command
from latermq.backoff import RECONNECT_BACKOFF, Pace
from latermq.errors import LaterMQError, RequestError, UnavailableError

log = logging.getLogger("latermq.client")


class Telemetry:
    """The stream to one broker; `run` is its life."""

    def __init__(
        self,
        open_stream: Callable[[], Stream],
        settings_command: Callable[[], bytes],
        adopt: Callable[[Settings], None],
        asked: Callable[[Orphan | Taken], None],
        failed: Callable[[LaterMQError], None],
        backoff: Pace = RECONNECT_BACKOFF,
    ) -> None:
        self._open_stream = open_stream
        self._settings_command = settings_command
        self._adopt = adopt
        self._asked = asked
        self._tell_failed = failed
        self._backoff = backoff
        self._stream: Stream | None = None
        self._known = False  # the broker has answered our settings on the present stream
        self._opened = False  # the last stream came so far, at least once
        self._failure: LaterMQError | None = None
        self._news = asyncio.Event()  # replaced each time it is set

    async def run(self) -> None:
        """Keep the stream open until cancelled."""
        retry = 0
        while True:
            self._failure, self._opened = None, False
            try:
                await self._converse()
            except LaterMQError as error:
                self._tell_failed(error)
                self._failure = error
                self._tell()
            retry = 1 if self._opened else retry + 1
            await asyncio.sleep(self._backoff.wait(retry, random.random()).total_seconds())

    async def ready(self, timeout: float) -> None:
        """Wait until the broker knows us, at most `timeout` seconds.

        Raises:
            RequestError: it refused them.
            UnavailableError: no answer in time.
        """
        try:
            async with asyncio.timeout(timeout):
                while not self._known:
                    if isinstance(self._failure, RequestError):
                        raise self._failure
                    await self._news.wait()
        except TimeoutError:
            raise self._failure or UnavailableError("no answer to the client's settings") from None

    async def announce(self) -> None:
        """Send the settings again, on the stream that is open; a stream yet to open sends them."""
        if self._stream is not None:
            try:
                await self._stream.write(self._settings_command())
            except LaterMQError as error:
                log.debug("settings not sent: %s", error, extra={"reason": str(error)})

    async def _converse(self) -> None:
        self._stream = self._open_stream()
        try:
            await self._stream.write(self._settings_command())
            while (data := await self._stream.read()) is not None:
                if not await self._obey(data):
                    return
        finally:
            self._known = False
            self._stream.cancel()
            self._stream = None

    async def _obey(self, data: bytes) -> bool:
        """Do what one command says; False to open the stream anew."""
        answer = read_command(data)
        if isinstance(answer, Settings):
            self._adopt(answer)
            self._known = self._opened = True
            self._tell()
            return True
        if isinstance(answer, Orphan | Taken):
            self._asked(answer)
            return True
        if answer.reply is not None and self._stream is not None:
            await self._stream.write(answer.reply)
        return answer.command is not Command.RECONNECT

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
