"""Signing in as a user of the broker, and out."""

import asyncio
import secrets
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from latermq.errors import ForbiddenError, LaterMQError, UnauthorizedError
from latermq_console.reading.jobs import words_of
from latermq_console.serving.attempts import KEY_EVERY_S, Attempt, TooManyAttemptsError
from latermq_console.serving.connections import CONNECTIONS_MAX
from latermq_console.serving.console import (
    COOKIE,
    Console,
    FormError,
    View,
    cookie_of,
    form_of,
    safe_path,
    set_cookie,
)
from latermq_console.serving.headers import cookie_name, is_same_origin
from latermq_proto.latermq.v1 import broker_pb2
from latermq_text.places import network_of

NONCE: Final = "latermq_console_form"
KNOWN: Final = "latermq_console_known"  # names a browser in which a user has signed in before
KNOWN_AGE_S: Final = 30 * 86_400.0
FIELD_MAX: Final = 256


class SignIn:
    def __init__(self, console: Console) -> None:
        self._console = console

    async def show(self, request: Request) -> Response:
        """Show the form, or go straight in where the broker asks nobody for a name."""
        console = self._console
        console.gate.note(None)
        wanted = safe_path(request.query_params.get("next", "/"))
        try:
            if not await console.asks_for_names():
                return RedirectResponse(wanted, 303)
        except LaterMQError as error:
            return console.error(None, 503, "The broker does not answer", words_of(error))
        return await self._form(request, wanted)

    async def enter(self, request: Request) -> Response:
        """Begin a session for whoever the broker knows."""
        console = self._console
        console.gate.note(None)
        try:
            form = await form_of(request)
        except FormError as error:
            return console.error(None, 400, "That does not work", str(error))
        fields = {name: values[-1] for name, values in form.items()}
        wanted = safe_path(fields.get("next", "/"))
        nonce = request.cookies.get(cookie_name(request.scope, NONCE), "")
        sealed = console.seal.fits(nonce, fields.get("csrf", ""))
        if not sealed or not is_same_origin(request.scope):
            return await self._form(request, wanted, "This form was too old. Try again.", 403)
        key, secret = fields.get("access_key", "").strip(), fields.get("secret", "")
        if not key or not secret or len(key) > FIELD_MAX or len(secret) > FIELD_MAX:
            return await self._form(request, wanted, "Give an access key and its secret.", 400, key)
        try:
            async with console.attempts.turn(self._whence(request, key), key) as attempt:
                return await self._try(request, wanted, key, secret, attempt)
        except TooManyAttemptsError:
            words = f"Too many attempts at once from here. Try again in {KEY_EVERY_S:.0f} seconds."
            response = await self._form(request, wanted, words, 429, key)
            response.headers["retry-after"] = f"{KEY_EVERY_S:.0f}"
            return response

    async def _try(
        self, request: Request, wanted: str, key: str, secret: str, attempt: Attempt
    ) -> Response:
        """Ask the broker whether the secret is right."""
        console = self._console
        desk = console.desk(key, secret)
        try:
            await desk.call(desk.admin.brokers.GetBroker, broker_pb2.GetBrokerRequest())
        except (UnauthorizedError, ForbiddenError):
            await desk.close()
            words = "No such user, another secret, or the user is disabled."
            return await self._form(request, wanted, words, 403, key)
        except LaterMQError as error:
            await desk.close()
            return await self._form(request, wanted, f"Not signed in: {words_of(error)}", 503, key)
        except asyncio.CancelledError:
            await desk.close()
            raise
        attempt.right = True
        console.sessions.end(cookie_of(request))
        cookie, _ = console.open(desk)
        response = RedirectResponse(wanted, 303)
        console.set_cookie(request.scope, response, cookie)
        set_cookie(request.scope, response, NONCE, "", 0)
        name = secrets.token_urlsafe(16)
        token = console.known_browsers.token(_known(name, key))
        set_cookie(request.scope, response, KNOWN, f"{name}.{token}", KNOWN_AGE_S)
        return response

    def _whence(self, request: Request, key: str) -> str:
        """Return what attempts are counted by beside the key: a known browser, else the address.

        So guesses of others behind its address do not delay a browser where the user was before.
        """
        known = request.cookies.get(cookie_name(request.scope, KNOWN), "")
        name, _, token = known.partition(".")
        if name and self._console.known_browsers.fits(_known(name, key), token):
            return f"browser {name}"
        return _address(request)

    async def _form(
        self, request: Request, wanted: str, problem: str = "", status: int = 200, key: str = ""
    ) -> Response:
        console = self._console
        kept = request.cookies.get(cookie_name(request.scope, NONCE), "")
        nonce = kept if 0 < len(kept) <= FIELD_MAX else secrets.token_urlsafe(16)
        async with console.gate.turn(_address(request), 1, CONNECTIONS_MAX):
            response = console.render(
                None, "sign_in.html", status, wanted=wanted, problem=problem, key=key,
                token=console.seal.token(nonce),
            )  # fmt: skip
        set_cookie(request.scope, response, NONCE, nonce)
        return response


async def sign_out(view: View) -> Response:
    """End the session, and with it the connection that knows the secret."""
    view.console.sessions.end(cookie_of(view.request))
    response = RedirectResponse("/", 303)
    set_cookie(view.request.scope, response, COOKIE, "", 0)
    return response


def _address(request: Request) -> str:
    return network_of(request.client.host if request.client else "")


def _known(name: str, key: str) -> str:
    """Return what a known browser's cookie is sealed for."""
    return f"known {name} {key}"
