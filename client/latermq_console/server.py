"""The process: routes, a socket, uvicorn; from its start to its drain."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from latermq.errors import LaterMQError
from latermq_console.routes import routes
from latermq_console.serving.console import Console
from latermq_console.serving.headers import Guarded
from latermq_console.serving.templates import PACKAGE
from latermq_console.settings import Settings, check_exposure
from latermq_text.listening import bound_sockets

BACKLOG: Final = 128
REQUESTS_AT_ONCE_MAX: Final = 256
DRAIN_S: Final = 3


def application(console: Console) -> Guarded:
    """Return the ASGI application of a console; whoever made it closes it."""
    static = Mount("/static", StaticFiles(packages=[(PACKAGE, "static")]))
    app = Starlette(routes=[static, *routes(console)])
    return Guarded(app, console.settings.hosts, secure=console.settings.secure)


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Console]:
    console = Console(settings)
    try:
        yield console
    finally:
        await console.close()


async def serve(
    settings: Settings,
    host: str,
    port: int,
    files: tuple[str | None, str | None],
    say: Callable[[str], None],
    *,
    exposed: bool,
) -> None:
    """Serve until a signal ends it.

    Args:
        files: certificate and private key of https.
        say: is given the address once, when browsers can come.
    Raises:
        ListenError: where strangers could act; nothing was opened.
        OSError: the port is not to be had.
    """
    async with opened(settings) as console:
        asks: bool | None = None
        try:
            asks = await console.asks_for_names()
        except LaterMQError as error:
            print(f"latermq console: {settings.endpoint} does not answer yet: {error}",
                  file=sys.stderr)  # fmt: skip
        if not exposed:
            check_exposure(host, asks_for_names=asks, secure=settings.secure)
        sockets = bound_sockets(host, port)
        try:
            certificate, key = files
            config = uvicorn.Config(
                application(console), lifespan="off", log_level="warning", access_log=False,
                server_header=False, proxy_headers=False, limit_concurrency=REQUESTS_AT_ONCE_MAX,
                timeout_graceful_shutdown=DRAIN_S, ssl_certfile=certificate, ssl_keyfile=key,
            )  # fmt: skip
            config.load()  # the certificate, too: before it is said that it serves
            scheme = "https" if settings.secure else "http"
            for listening in sockets:
                listening.listen(BACKLOG)
            bound = sockets[0].getsockname()
            name = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
            say(f"{scheme}://{name}:{bound[1]}")
            await uvicorn.Server(config).serve(sockets=sockets)
        finally:
            for listening in sockets:
                listening.close()
