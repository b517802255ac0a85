"""Signing in as a user of the broker, and out."""

import asyncio
import secrets
from collections import OrderedDict, deque
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from latermq.errors import ForbiddenError, LaterMQError, UnauthorizedError
from latermq_console import clock
from latermq_console.reading.jobs import words_of
from latermq_console.serving.console import (
    COOKIE,
    Console,
    FormError,
    View,
    form_of,
    safe_path,
)
from latermq_console.serving.headers import is_same_origin
from latermq_proto.latermq.v1 import broker_pb2

NONCE: Final = "latermq_console_form"
FAILURES_MAX: Final = 10  # of one address in FAILURES_S
FAILURES_S: Final = 60.0
ADDRESSES_MAX: Final = 4_096
FIELD_MAX: Final = 256


class Failures:
    """Who failed to sign in lately, by address: the broker sees us alone, and cannot tell."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, deque[float]] = OrderedDict()

    def too_many(self, address: str) -> bool:
        times = self._kept.get(address)
        while times and times[0] < clock.monotonic_s() - FAILURES_S:
            times.popleft()
        return bool(times) and len(times or ()) >= FAILURES_MAX

    def add(self, address: str) -> None:
        self._kept.setdefault(address, deque(maxlen=FAILURES_MAX)).append(clock.monotonic_s())
        self._kept.move_to_end(address)
        if len(self._kept) > ADDRESSES_MAX:
            self._kept.popitem(last=False)


class SignIn:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._failures = Failures()

    async def show(self, request: Request) -> Response:
        """Show the form, or go straight in where the broker asks nobody for a name."""
        console = self._console
        wanted = safe_path(request.query_params.get("next", "/"))
        try:
            if not await console.asks_for_names():
                return RedirectResponse(wanted, 303)
        except LaterMQError as error:
            return console.error(None, 503, "The broker does not answer", words_of(error))
        return self._form(request, wanted)

    async def enter(self, request: Request) -> Response:
        """Begin a session for whoever the broker knows."""
        console = self._console
        try:
            form = await form_of(request)
        except FormError as error:
            return console.error(None, 400, "That does not work", str(error))
        fields = {name: values[-1] for name, values in form.items()}
        wanted = safe_path(fields.get("next", "/"))
        nonce = request.cookies.get(NONCE, "")
        sealed = console.seal.fits(nonce, fields.get("csrf", ""))
        if not sealed or not is_same_origin(request.scope):
            return self._form(request, wanted, "This form was too old. Try again.", 403)
        key, secret = fields.get("access_key", "").strip(), fields.get("secret", "")
        address = request.client.host if request.client else ""
        if self._failures.too_many(address):
            words = "Too many attempts from here. Wait a minute."
            return self._form(request, wanted, words, 429, key)
        if not key or not secret or len(key) > FIELD_MAX or len(secret) > FIELD_MAX:
            return self._form(request, wanted, "Give an access key and its secret.", 400, key)
        desk = console.desk(key, secret)
        try:
            await desk.call(desk.admin.brokers.GetBroker, broker_pb2.GetBrokerRequest())
        except (UnauthorizedError, ForbiddenError):
            self._failures.add(address)
            await desk.close()
            words = "No such user, another secret, or the user is disabled."
            return self._form(request, wanted, words, 403, key)
        except LaterMQError as error:
            await desk.close()
            return self._form(request, wanted, f"Not signed in: {words_of(error)}", 503, key)
        except asyncio.CancelledError:
            await desk.close()
            raise
        console.sessions.end(request.cookies.get(COOKIE, ""))
        cookie, _ = console.open(desk)
        response = RedirectResponse(wanted, 303)
        console.set_cookie(response, cookie)
        response.delete_cookie(NONCE, path="/")
        return response

    def _form(
        self, request: Request, wanted: str, problem: str = "", status: int = 200, key: str = ""
    ) -> Response:
        console = self._console
        nonce = request.cookies.get(NONCE) or secrets.token_urlsafe(16)
        response = console.render(
            None, "sign_in.html", status, wanted=wanted, problem=problem, key=key,
            token=console.seal.token(nonce),
        )  # fmt: skip
        response.set_cookie(NONCE, nonce, httponly=True, samesite="lax", path="/",
                            secure=console.settings.secure)  # fmt: skip
        return response


async def sign_out(view: View) -> Response:
    """End the session, and with it the connection that knows the secret."""
    view.console.sessions.end(view.request.cookies.get(COOKIE, ""))
    response = RedirectResponse("/", 303)
    response.delete_cookie(COOKIE, path="/")
    return response
