"""The process: routes, a socket, uvicorn; from its start to its drain."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from latermq.errors import LaterMQError
from latermq_console.routes import routes
from latermq_console.serving.connections import DEADLINES_S, Phase
from latermq_console.serving.console import Console
from latermq_console.serving.headers import App, Guarded
from latermq_console.serving.listener import Server
from latermq_console.serving.templates import static_file
from latermq_console.serving.turns import Turns
from latermq_console.settings import Settings, check_exposure
from latermq_text.listening import bound_sockets

BACKLOG: Final = 512
DRAIN_S: Final = 3
FILES_WANTED: Final = 4_096  # descriptors: browsers' connections, and a few for each session


def application(console: Console) -> App:
    """Return the ASGI application of a console; whoever made it closes it."""
    static = Route("/static/{name}", static_file, methods=["GET"])
    pages = Turns(Starlette(routes=[static, *routes(console)]), console.whose)
    app: Any = Guarded(pages, console.settings.hosts)
    if console.settings.proxies:
        app = ProxyHeadersMiddleware(app, trusted_hosts=list(console.settings.proxies))
    answering: App = app
    return answering


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
        _raise_files_limit()
        try:
            certificate, key = files
            config = uvicorn.Config(
                application(console), lifespan="off", access_log=False,
                log_level="error",  # warnings are about requests, which strangers send
                http="h11", ws="none", server_header=False, proxy_headers=False,
                timeout_keep_alive=int(DEADLINES_S[Phase.IDLE]),
                timeout_graceful_shutdown=DRAIN_S, ssl_certfile=certificate, ssl_keyfile=key,
            )  # fmt: skip
            config.load()  # the certificate, too: before it is said that it serves
            scheme = "https" if settings.secure else "http"
            for listening in sockets:
                listening.listen(BACKLOG)
            bound = sockets[0].getsockname()
            name = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
            say(f"{scheme}://{name}:{bound[1]}")
            await Server(config).serve(sockets=sockets)
        finally:
            for listening in sockets:
                listening.close()


def _raise_files_limit() -> None:
    """Let the process open FILES_WANTED files, if the machine's limit allows it."""
    try:
        resource = import_module("resource")
    except ImportError:  # not a POSIX system
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
