"""How a worker tells others whether it is well: a file that it touches, a port that it answers on.

    GET /healthz    200 while the event loop answers
    GET /readyz     200 while every listener receives and the broker answers; else 503, and why

Enough of HTTP/1.1 for probes: one request a connection, its head bounded in bytes and time. Of too
many connections that have not asked yet the oldest goes, of the address that has most: so nobody
keeps probes out by connecting and saying nothing.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self

from latermq_text.listening import bound_sockets
from latermq_text.places import Places

log = logging.getLogger("latermq.worker")

TOUCHED_S: Final = 1.0  # between two touches of the file
HEAD_BYTES_MAX: Final = 4_096
ASKED_WITHIN_S: Final = 5.0
CONNECTIONS_MAX: Final = 16  # that have not asked yet


class Health:
    """Tells of a worker for as long as the `async with` lasts.

    Args:
        trouble: says why the worker is not ready; "": it is.
        file: touched each second while it is, and not there when it is not.
        address: where to listen, HOST:PORT; port 0: a free one, which the log names.
    Raises:
        ValueError: the address is none.
    """

    def __init__(self, trouble: Callable[[], str], file: Path | None, address: str | None) -> None:
        self._trouble = trouble
        self._file = file
        self._address = None if address is None else _parsed(address)
        self._servers: list[asyncio.Server] = []  # one for each address
        self._tasks: set[asyncio.Task[None]] = set()  # of connections
        self._silent: Places[asyncio.Task[None]] = Places(CONNECTIONS_MAX)
        self._touching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin to tell. Raises OSError: the address cannot be listened on."""
        if self._address is not None:
            host, port = self._address
            try:
                listeners = bound_sockets(host, port)
            except OSError as error:
                why = f"health: cannot listen on {host}:{port}: {error.strerror or error}"
                raise OSError(error.errno, why) from error
            for listener in listeners:
                self._servers.append(
                    await asyncio.start_server(self._asked, sock=listener, limit=HEAD_BYTES_MAX)
                )
            host, port = self._servers[0].sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            log.info("health: http://%s:%d/healthz and /readyz", shown, port)
        if self._file is not None:
            self._touching = asyncio.create_task(self._touch(self._file))
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = list(self._tasks)
        if self._touching is not None:
            tasks.append(self._touching)
        for server in self._servers:
            server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _touch(self, path: Path) -> None:
        warned_of = ""
        try:
            while True:
                try:
                    if not self._looked():
                        path.touch()
                        warned_of = ""
                except OSError as error:
                    if warned_of != (warned_of := str(error)):
                        log.warning("the health file does not tell that all is well: %s", error)
                await asyncio.sleep(TOUCHED_S)
        finally:
            with suppress(OSError):  # said already
                path.unlink(missing_ok=True)

    def _looked(self) -> str:
        """Return why the worker is not ready, once its file is gone; "": it is ready.

        Raises OSError.
        """
        trouble = self._trouble()
        if trouble and self._file is not None:
            self._file.unlink(missing_ok=True)
        return trouble

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        peer = writer.get_extra_info("peername")
        host = str(peer[0]) if peer else ""  # gone already
        self._tasks.add(task)
        loser = self._silent.take(host, task)
        if loser is not None:
            loser.cancel()
        try:
            async with asyncio.timeout(ASKED_WITHIN_S):
                head = await reader.readuntil(b"\r\n\r\n")
                self._silent.leave(host, task)
                writer.write(self._answer(head))
                await writer.drain()
        except (TimeoutError, EOFError, asyncio.LimitOverrunError, ConnectionError):
            pass  # nobody is there who could be told
        finally:
            self._silent.leave(host, task)
            self._tasks.discard(task)
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path not in (b"/healthz", b"/readyz"):
            status, said = HTTPStatus.NOT_FOUND, "here are /healthz and /readyz"
        elif method not in (b"GET", b"HEAD"):
            status, said = HTTPStatus.METHOD_NOT_ALLOWED, "GET or HEAD"
        else:
            trouble = self._trouble() if path == b"/readyz" else ""
            with suppress(OSError):  # told where the file is touched
                self._looked()  # both tell the same
            status = HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK
            said = trouble or "ok"
        body = f"{said}\n".encode()
        lines = (
            f"HTTP/1.1 {status.value} {status.phrase}",
            *(("Allow: GET, HEAD",) if status is HTTPStatus.METHOD_NOT_ALLOWED else ()),
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        answer = "\r\n".join((*lines, "", "")).encode()
        return answer if method == b"HEAD" else answer + body


def _parsed(address: str) -> tuple[str, int]:
    """Split HOST:PORT. Raises ValueError: it is none."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"health={address!r} should be HOST:PORT, e.g. 127.0.0.1:8080")
    return host, int(port)
