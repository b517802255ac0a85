"""Plain HTTP/1.1 for a Prometheus and whoever asks whether the broker lives: off unless
`metrics.listen` names an address.

    /metrics   the figures
    /healthz   200 while the event loop answers
    /readyz    200 while calls are served, 503 while the broker starts or ends; what is out of order
               with it is listed, a line each: it serves without

One short answer a connection, then it is closed. Nothing can be changed here and no body or key is
shown; topics' and groups' names are. There is no TLS and no login: keep it on a loopback or a
network of its own.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Self

from latermq_broker.background.jobs import SCRAPE, Background, in_turns
from latermq_broker.config.addresses import listen_address
from latermq_broker.config.config import MetricsConfig
from latermq_broker.errors import ConfigError
from latermq_broker.observability.exposition import OPEN_TYPE, PLAIN_TYPE, as_openmetrics
from latermq_text.listening import bound_sockets

log = logging.getLogger("latermq.metrics")

REQUEST_BYTES_MAX: Final = 8 << 10
REQUEST_S_MAX: Final = 5.0
CONNECTIONS_MAX: Final = 32
OPEN_ACCEPT: Final = b"application/openmetrics-text"

Page = Callable[[], Iterator[str]]  # made for each question


class MetricsEndpoint:
    """Answers for the page while it is entered, where `metrics.listen` says; nowhere without that.

    Args:
        page: its pieces; the loop may do other work between two of them.
        ready: whether calls are served.
        troubles: what is out of order, a line each.
        sockets: bound to the address already; none: it is bound here.
        background: gives a page with many pieces its turns; None: it is made in one go.
    """

    def __init__(
        self,
        config: MetricsConfig,
        page: Page,
        ready: Callable[[], bool],
        troubles: Callable[[], list[str]] = list,
        sockets: Sequence[socket.socket] = (),
        background: Background | None = None,
    ) -> None:
        self._config = config
        self._page = page
        self._ready = ready
        self._troubles = troubles
        self._given = sockets
        self._background = background
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.Task[None]] = set()
        self.address = ""  # HOST:PORT as bound

    async def __aenter__(self) -> Self:
        """Bind, if it is wanted. Raises ConfigError: the address cannot be bound."""
        if self._config.listen:
            await self._bind()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Answer nobody any more."""
        self.leave_port()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    @property
    def descriptors(self) -> list[int]:
        """Return the descriptors of the sockets that listen now."""
        return [listener.fileno() for server in self._servers for listener in server.sockets]

    def leave_port(self) -> None:
        """Accept nothing more."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def _bind(self) -> None:
        host, port = listen_address("metrics.listen", self._config.listen)
        try:
            for listener in self._given or bound_sockets(host, port):
                await self._listen(listener)
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(
                "metrics.listen", f"cannot bind {self._config.listen}: {reason}"
            ) from error
        bound = self._servers[0].sockets[0].getsockname()
        self.address = f"[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"{bound[0]}:{bound[1]}"
        log.info("metrics served", extra={"address": self.address})

    async def _listen(self, listener: socket.socket) -> None:
        """Raises OSError."""
        self._servers.append(
            await asyncio.start_server(self._accept, limit=REQUEST_BYTES_MAX, sock=listener)
        )

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head))
                await writer.drain()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            # Whoever asked has gone, says nothing or too much, or does not read: nothing is kept.
            writer.transport.abort()
        finally:
            writer.close()

    def _text(self, *, openmetrics: bool) -> Iterator[str]:
        return as_openmetrics(self._page()) if openmetrics else self._page()

    async def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response("400 Bad Request", "this is HTTP\n")
        method, path = words[0], words[1].split(b"?")[0]
        if path not in (b"/metrics", b"/healthz", b"/readyz"):
            return _response("404 Not Found", "there are /metrics, /healthz and /readyz\n")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", "only GET and HEAD\n")
        body = method == b"GET"
        if path == b"/healthz":
            return _response("200 OK", "alive\n", body=body)
        if path == b"/readyz":
            said = "".join(f"not in order: {line}\n" for line in self._troubles())
            if self._ready():
                return _response("200 OK", f"ready\n{said}", body=body)
            return _response("503 Service Unavailable", f"not serving\n{said}", body=body)
        openmetrics = OPEN_ACCEPT in head.lower()
        try:
            text = await in_turns(
                self._background, SCRAPE, lambda: self._text(openmetrics=openmetrics)
            )
        except Exception:
            log.exception("metrics failed")
            return _response("500 Internal Server Error", "see the broker's log\n")
        return _response("200 OK", text, OPEN_TYPE if openmetrics else PLAIN_TYPE, body=body)


def _response(
    status: str, text: str, kind: str = "text/plain; charset=utf-8", *, body: bool = True
) -> bytes:
    content = text.encode()
    allow = "Allow: GET, HEAD\r\n" if status.startswith("405") else ""
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
        f"{allow}Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + (content if body else b"")
