"""What every answer says to a browser, and which hosts are answered at all."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
}
STATIC: Final = "/static/"
YEAR_S: Final = 31_536_000


class Guarded:
    """An ASGI application with these headers on every answer, and few hosts."""

    def __init__(self, app: App, hosts: frozenset[str] | None, *, secure: bool) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(map(str.lower, hosts))
        self._headers = dict(HEADERS)
        if secure:
            self._headers["strict-transport-security"] = f"max-age={YEAR_S}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        kept = f"public, max-age={YEAR_S}, immutable" if _is_static(scope) else "no-store"

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                more = {**self._headers, "cache-control": kept}
                message["headers"] = [
                    *((k, v) for k, v in message["headers"] if k.decode("latin-1") not in more),
                    *((name.encode(), value.encode()) for name, value in more.items()),
                ]
            await send(message)

        if self._hosts is not None and host_of(scope) not in self._hosts:
            await _refuse(send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


def host_of(scope: Scope) -> str:
    """Return the name a browser believes to talk to, without port and brackets."""
    try:
        return urlsplit(f"//{header(scope, b'host')}").hostname or ""
    except ValueError:
        return ""


def is_same_origin(scope: Scope) -> bool:
    """Tell whether a form comes from one of our own pages, as far as the browser says."""
    if header(scope, b"sec-fetch-site") not in ("", "same-origin", "none"):
        return False
    origin = header(scope, b"origin")
    try:
        return not origin or urlsplit(origin).netloc == header(scope, b"host")
    except ValueError:  # no browser's
        return False


def header(scope: Scope, name: bytes) -> str:
    """Return a header's value, "" without one."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return ""


def _is_static(scope: Scope) -> bool:
    return str(scope["path"]).startswith(STATIC) and b"v=" in scope["query_string"]


async def _refuse(send: Send) -> None:
    text = b"The console does not answer to this name; see `latermq console --host`.\n"
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": 421, "headers": headers})
    await send({"type": "http.response.body", "body": text})
