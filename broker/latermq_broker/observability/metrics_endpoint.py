"""Plain HTTP/1.1 for a Prometheus and whoever asks whether the broker lives: off unless
`metrics.listen` names an address.

    /metrics   the figures
    /healthz   200 while the event loop answers
    /readyz    200 while calls are served, 503 while the broker starts or ends; what is out of order
               with it is listed, a line each: it serves without

One short answer a connection, then it is closed. Connections that have not asked yet share places
by address, and the page has places of its own: neither keeps /healthz or /readyz from anybody.
Nothing can be changed here and no body or key is shown; topics' and groups' names are. There is no
TLS and no login: keep it on a loopback or a network of its own.
"""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Self

from latermq_broker.background.jobs import SCRAPE, Background, in_turns
from latermq_broker.config.addresses import listen_address
from latermq_broker.config.config import MetricsConfig
from latermq_broker.errors import ConfigError
from latermq_broker.observability.exposition import OPEN_TYPE, PLAIN_TYPE, as_openmetrics
from latermq_text.listening import bound_sockets
from latermq_text.places import Places, network_of

log = logging.getLogger("latermq.metrics")

REQUEST_BYTES_MAX: Final = 8 << 10
REQUEST_S_MAX: Final = 5.0
CONNECTIONS_MAX: Final = 32  # that have not asked yet
PAGES_MAX: Final = 8  # made, or read by those who asked, at once
PAGES_PER_ADDRESS_MAX: Final = 4
ACCEPTS_MAX: Final = 4  # in one turn of the loop: a millisecond
ACCEPT_PAUSE_S: Final = 0.1  # when the process has no file descriptor left
BACKLOG: Final = 100
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
        self._listeners: list[socket.socket] = []
        self._open: set[asyncio.Task[None]] = set()
        self._silent: Places[asyncio.Task[None]] = Places(CONNECTIONS_MAX)
        self._unbegun: dict[asyncio.Task[None], socket.socket] = {}
        self._pages: Counter[str] = Counter()  # under way, by address
        self.address = ""  # HOST:PORT as bound

    async def __aenter__(self) -> Self:
        """Bind, if it is wanted. Raises ConfigError: the address cannot be bound."""
        if self._config.listen:
            self._bind()
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
        return [listener.fileno() for listener in self._listeners]

    def leave_port(self) -> None:
        """Accept nothing more."""
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener)
            listener.close()
        self._listeners.clear()

    def _bind(self) -> None:
        host, port = listen_address("metrics.listen", self._config.listen)
        try:
            for listener in self._given or bound_sockets(host, port):
                self._listen(listener)
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(
                "metrics.listen", f"cannot bind {self._config.listen}: {reason}"
            ) from error
        bound = self._listeners[0].getsockname()
        self.address = f"[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"{bound[0]}:{bound[1]}"
        log.info("metrics served", extra={"address": self.address})

    def _listen(self, listener: socket.socket) -> None:
        """Raises OSError."""
        self._listeners.append(listener)
        listener.setblocking(False)
        listener.listen(BACKLOG)
        self._watch(listener)

    def _watch(self, listener: socket.socket) -> None:
        """Accept at a socket, unless the port was left meanwhile."""
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTS_MAX):
            try:
                accepted, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor is left: try again soon
                loop.remove_reader(listener)
                loop.call_later(ACCEPT_PAUSE_S, self._watch, listener)
                return
            accepted.setblocking(False)
            host = str(address[0])
            task = loop.create_task(self._serve(accepted, host))
            self._open.add(task)
            self._unbegun[task] = accepted
            task.add_done_callback(self._over)
            loser = self._silent.take(host, task)
            if loser is not None:
                loser.cancel()

    def _over(self, task: asyncio.Task[None]) -> None:
        """Forget a connection; one that was given up before its task's first turn is closed."""
        self._open.discard(task)
        unbegun = self._unbegun.pop(task, None)
        if unbegun is not None:
            unbegun.close()

    async def _serve(self, accepted: socket.socket, host: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        del self._unbegun[task]
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=REQUEST_BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted)
        except OSError:  # it is gone
            self._silent.leave(host, task)
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                self._silent.leave(host, task)
                with self._page_place(head, host) as has_place:
                    writer.write(await self._answer(head) if has_place else _CROWDED)
                    await writer.drain()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            # Whoever asked has gone, says nothing or too much, or does not read: nothing is kept.
            writer.transport.abort()
        finally:
            self._silent.leave(host, task)
            writer.close()

    def _text(self, *, openmetrics: bool) -> Iterator[str]:
        return as_openmetrics(self._page()) if openmetrics else self._page()

    @contextmanager
    def _page_place(self, head: bytes, host: str) -> Iterator[bool]:
        """Count an answer among the pages under way, if it is one; tell whether it may be made."""
        address = network_of(host)
        if _path_of(head) != b"/metrics":
            yield True
        elif self._pages.total() >= PAGES_MAX or self._pages[address] >= PAGES_PER_ADDRESS_MAX:
            yield False
        else:
            self._pages[address] += 1
            try:
                yield True
            finally:
                self._pages[address] -= 1
                if not self._pages[address]:
                    del self._pages[address]

    async def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response("400 Bad Request", "this is HTTP\n")
        method, path = words[0], _path_of(head)
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


def _path_of(head: bytes) -> bytes:
    """Return the path in a request's first line, without its query; b"" if there is none."""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    return words[1].split(b"?")[0] if len(words) > 1 else b""


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


_CROWDED: Final = _response(
    "503 Service Unavailable", "too many ask for the figures at once: ask again\n"
)
