"""What every answer says to a browser, and which hosts and requests are answered at all."""

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
HEALTH: Final = "/healthz"  # of the console's own process, for probes: no session, no broker
QUERY_FIELDS_MAX: Final = 1_200
WITHOUT_BODY: Final = frozenset({"GET", "HEAD"})
HOST_PREFIX: Final = "__Host-"  # of a cookie that browsers take and send over https alone
YEAR_S: Final = 31_536_000


class Guarded:
    """An ASGI application with these headers on every answer, and few hosts.

    A connection whose request had a body that nobody read ends with the answer.
    """

    def __init__(self, app: App, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(map(str.lower, hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        more = {**HEADERS, "cache-control": "no-store"}
        if _is_static(scope):
            more["cache-control"] = f"public, max-age={YEAR_S}, immutable"
        if is_secure(scope):
            more["strict-transport-security"] = f"max-age={YEAR_S}"
        unread = _has_body(scope)

        async def receive_whole() -> MutableMapping[str, Any]:
            nonlocal unread
            message = await receive()
            unread = unread and bool(message.get("more_body"))
            return message

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                if unread:
                    more["connection"] = "close"
                message["headers"] = [
                    *((k, v) for k, v in message["headers"] if k.decode("latin-1") not in more),
                    *((name.encode(), value.encode()) for name, value in more.items()),
                ]
            await send(message)

        refusal = _refusal(scope)
        if refusal:
            await _say(send_with_headers, 400, refusal)
        elif scope["path"] == HEALTH:
            await _say(send_with_headers, 200, "ok")
        elif self._hosts is not None and host_of(scope) not in self._hosts:
            words = "The console does not answer to this name; see `latermq console --host`."
            await _say(send_with_headers, 421, words)
        else:
            await self._app(scope, receive_whole, send_with_headers)


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


def is_secure(scope: Scope) -> bool:
    """Tell whether the browser came by https: to us, or to a proxy that we believe."""
    return scope.get("scheme") == "https"


def cookie_name(scope: Scope, name: str) -> str:
    """Return a cookie's name: behind https no other site and no clear text can set it."""
    return HOST_PREFIX + name if is_secure(scope) else name


def _has_body(scope: Scope) -> bool:
    return bool(header(scope, b"transfer-encoding")) or header(scope, b"content-length") not in (
        "",
        "0",
    )


def _refusal(scope: Scope) -> str:
    """Say what is wrong with a request's frame, which proxies may read otherwise; "": nothing."""
    if header(scope, b"transfer-encoding"):
        if header(scope, b"content-length"):
            return "Content-Length and Transfer-Encoding are given; one of them says where it ends."
        if scope.get("http_version") == "1.0":
            return "HTTP/1.0 has no Transfer-Encoding."
    if scope["method"] in WITHOUT_BODY and _has_body(scope):
        return f"{scope['method']} takes no body."
    if scope["query_string"].count(b"&") >= QUERY_FIELDS_MAX:
        return f"A query has at most {QUERY_FIELDS_MAX:,} fields."
    return ""


async def _say(send: Send, status: int, words: str) -> None:
    body = f"{words}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
