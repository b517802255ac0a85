"""The console as a whole: who is in it, what runs in it, and one way for every page.

`Console.page` is that way: the session, the form's token, the handler, errors as pages.
A handler gets a `View` and returns a response; it raises what the SDK raises.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from latermq.codes import Code
from latermq.errors import (
    ForbiddenError,
    GroupNotFoundError,
    LaterMQError,
    NotFoundError,
    RequestError,
    TopicNotFoundError,
    UnauthorizedError,
    UnsupportedError,
)
from latermq_console.drawing.words import plain
from latermq_console.reading.desk import Desk
from latermq_console.reading.history import History
from latermq_console.reading.jobs import Jobs, words_of
from latermq_console.reading.letters import Shelves
from latermq_console.reading.shards import ShardLook
from latermq_console.reading.watch import Sample, Watch
from latermq_console.serving.attempts import Attempts
from latermq_console.serving.connections import SESSION
from latermq_console.serving.gate import Gate, TooManyRequestsError
from latermq_console.serving.headers import Scope, cookie_name, header, is_same_origin, is_secure
from latermq_console.serving.sessions import AGE_S_MAX, FormSeal, Session, Sessions
from latermq_console.serving.templates import environment
from latermq_console.settings import Settings
from latermq_proto.latermq.v1 import broker_pb2
from latermq_text.places import network_of
from latermq_text.version import own_version

log = logging.getLogger("latermq.console")

COOKIE: Final = "latermq_console"
FORM_BYTES_MAX: Final = 128 << 10
FORM_FIELDS_MAX: Final = 1_200  # 1,000 chosen letters, and what else stands in their form
FIELD_CHARACTERS_MAX: Final = 4_096
UNREAD_BYTES_MAX: Final = 1 << 20  # of a form that is too large; beyond, its connection is closed
NUMBER_MAX: Final = (1 << 63) - 1  # that a call of the broker's can carry
LIVE_HEADER: Final = "x-console-live"
SIGN_IN: Final = "/sign-in"
BODIES_AT_ONCE_MAX: Final = 4  # pages that hold a message's body, which may be large
SWEEP_S: Final = 30.0
TOO_LARGE: Final = f"a form has at most {FORM_BYTES_MAX >> 10} KiB: too much was chosen at once"
OPEN_S: Final = 5.0  # that the broker asks for names is known for so long

Handler = Callable[["View"], Awaitable[Response]]


class FormError(Exception):
    """What a form says makes no sense; the text is for whoever sent it."""


class View:
    """A request of somebody who is in, and how to answer it."""

    __slots__ = ("console", "form", "live", "request", "session")

    def __init__(self, console: "Console", request: Request, session: Session) -> None:
        self.console = console
        self.request = request
        self.session = session
        self.live = LIVE_HEADER in request.headers
        self.form: dict[str, list[str]] = {}

    @property
    def desk(self) -> Desk:
        return self.session.desk

    @property
    def watch(self) -> Watch:
        watch = self.console.watch_of(self.session)
        if watch is None:  # it went with the user's last session, while this page was on its way
            raise UnauthorizedError(Code.UNAUTHORIZED, "the session has ended")
        return watch

    @property
    def shelves(self) -> Shelves:
        return self.session.shelves

    @property
    def shards(self) -> ShardLook:
        return self.session.shards

    async def whose(self, handle: str) -> tuple[str, Desk]:
        """Return what a handle such as billing@1 names, and the way to its shard.

        A handle that names no shard is of the broker that the console was given. Raises FormError.
        """
        name, at, number = handle.rpartition("@")
        if not at or not number.isdecimal():
            return handle, self.desk
        desk = (await self.shards.desks()).get(whole_number(number, "a shard"))
        if desk is None:
            raise FormError(f"there is no shard {number}")
        return name, desk

    def path(self, name: str) -> str:
        """Return a part of the path."""
        return str(self.request.path_params[name])

    def asked(self, name: str) -> str:
        """Return a value of the query, "" without one."""
        return str(self.request.query_params.get(name, "")).strip()

    def field(self, name: str) -> str:
        """Return a value of the form, "" without one."""
        return self.form.get(name, [""])[-1].strip()

    def whole(self, name: str, largest: int) -> int:
        """Return a number of the form, 0 without one. Raises FormError."""
        text = self.field(name)
        return whole_number(text, name.replace("_", " "), largest) if text else 0

    def render(self, template: str, status: int = 200, **context: Any) -> Response:
        return self.console.render(self, template, status, **context)

    def go(self, path: str, kind: str = "", notice: str = "") -> Response:
        """Send the browser to a page of ours, with something to show there."""
        if notice:
            self.session.tell(kind, notice)
        return RedirectResponse(path, 303)

    def back(self, otherwise: str) -> str:
        """Return the page of ours that the form was on."""
        return safe_path(self.field("back"), otherwise)


class Console:
    """Made inside a running loop; to be closed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sessions = Sessions(self._ended)
        self.jobs = Jobs()
        self.history = History(settings.prometheus) if settings.prometheus else None
        self.seal = FormSeal()
        self.known_browsers = FormSeal()  # another key: tokens of forms are given to anybody
        self.attempts = Attempts()
        self.bodies = asyncio.Semaphore(BODIES_AT_ONCE_MAX)
        self.gate = Gate()
        self._templates = environment()
        self._version = own_version() or ""  # read from files each time
        self._outside = self.desk()  # who has not signed in
        self._watches: dict[str, Watch] = {}
        self._samples: deque[Sample] = deque()  # of the last watch that ended
        self._closing: set[asyncio.Task[None]] = set()
        self._own_watch = settings.access_key
        self._sweeper = asyncio.ensure_future(self._sweep())
        if settings.access_key:
            self._begin_watch(settings.access_key, self.desk(settings.access_key, settings.secret))

    def desk(self, access_key: str = "", secret: str = "") -> Desk:
        return Desk(self.settings.endpoint, self.settings.tls, access_key, secret)

    async def asks_for_names(self) -> bool:
        """Tell whether people have to sign in. Raises LaterMQError: the broker does not answer."""
        brokers = self._outside.admin.brokers
        try:
            request = broker_pb2.GetBrokerRequest()
            await self._outside.look(brokers.GetBroker, request, age_s=OPEN_S)
        except UnauthorizedError:
            return True
        return False

    def page(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that has a session, a checked form, and errors as pages."""

        async def endpoint(request: Request) -> Response:
            live = LIVE_HEADER in request.headers
            session = self.sessions.get(cookie_of(request), person=not live)
            # By name, here and at the gate: a session that has ended is kept by nothing.
            request.scope[SESSION] = session.csrf if session is not None else None
            made = ""
            if session is None:
                try:
                    if await self.asks_for_names():
                        return self._to_sign_in(request, live)
                except LaterMQError as error:
                    return self._outage(request, error)
                made, session = self.open(self.desk())
            view = View(self, request, session)
            try:
                answering = self._answer(view, handler, fresh=bool(made))
                response = await self.gate.run(
                    session.csrf, session.user, request.url.path, answering
                )
            except TooManyRequestsError:
                words = "Wait until some of your pages have come."
                response = self.error(view, 429, "Too many requests at once", words)
            if made:
                self.set_cookie(request.scope, response, made)
            return response

        return endpoint

    async def _answer(self, view: View, handler: Handler, *, fresh: bool) -> Response:
        try:
            if view.request.method == "POST":
                view.form = await form_of(view.request)
                own = is_same_origin(view.request.scope)
                if fresh or not own or view.field("csrf") != view.session.csrf:
                    words = "This form is from another session. Go back, reload, try again."
                    return self.error(view, 403, "Not done", words)
            return await handler(view)
        except UnauthorizedError:
            self.sessions.end(cookie_of(view.request))
            return self._to_sign_in(view.request, view.live)
        except FormError as error:
            if view.request.method == "POST":
                return view.go(view.back("/"), "bad", str(error))
            return self.error(view, 400, "That does not work", str(error))
        except LaterMQError as error:
            if view.request.method == "POST":
                return view.go(view.back("/"), "bad", f"Not done: {words_of(error)}")
            status, title = _named(error)
            return self.error(view, status, title, words_of(error))
        except Exception:
            log.exception("the page %s failed", view.request.url.path)
            words = "This is a fault of the console's own; what it prints has the details."
            return self.error(view, 500, "That went wrong", words)

    def render(
        self, view: View | None, template: str, status: int = 200, **context: Any
    ) -> Response:
        live = view is not None and view.live
        session = view.session if view is not None else None
        here = ""
        if view is not None:
            url = view.request.url
            here = url.path + (f"?{url.query}" if url.query else "")
        text = self._templates.get_template(template).render(
            layout="live.html" if live else "base.html",
            session=session,
            notices=session.take_notices() if session and not live else [],
            here=here,
            section=here.split("?")[0].split("/")[1] if here else "",
            endpoint=self.settings.endpoint,
            version=self._version,
            watch=self.watch_of(session) if session else None,
            **context,
        )
        return HTMLResponse(text, status)

    def error(self, view: View | None, status: int, title: str, words: str) -> Response:
        return self.render(view, "error.html", status, title=title, words=plain(words), code=status)

    def whose(self, scope: Scope) -> Session | str:
        """Return the session that a request names, or the address that it comes from."""
        session = self.sessions.peek(cookie_of(Request(scope)))
        return session or network_of(str((scope.get("client") or ("",))[0]))

    def open(self, desk: Desk) -> tuple[str, Session]:
        """Begin a session, and with a user's first one the watch."""
        cookie, session = self.sessions.open(desk)
        watch = self._watches.get(session.user)
        if watch is None or watch.over:  # over: it was begun with a secret of another time
            self._begin_watch(session.user, desk.another())
        return cookie, session

    def set_cookie(self, scope: Scope, response: Response, cookie: str) -> None:
        set_cookie(scope, response, COOKIE, cookie, AGE_S_MAX)

    def watch_of(self, session: Session) -> Watch | None:
        """Return what looks on for a session's user; None of one that has ended."""
        return self._watches.get(session.user)

    async def close(self) -> None:
        self._sweeper.cancel()
        await self.jobs.stop_all()
        self.sessions.end_all()
        for watch in list(self._watches.values()):
            await watch.stop()
        if self._closing:
            await asyncio.wait(self._closing)
        await self._outside.close()
        if self.history is not None:
            await self.history.close()

    async def _sweep(self) -> None:
        """End sessions in time, with their secrets and watches, where nobody comes to notice."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self.sessions.sweep()
            self.sessions.forget_old_answers()

    def _begin_watch(self, user: str, desk: Desk) -> None:
        samples = next((each.samples for each in self._watches.values()), self._samples)
        watch = self._watches[user] = Watch(desk, samples)
        watch.start()

    def _ended(self, session: Session) -> None:
        """Let go of what a session had: it is not in `sessions` any more."""
        session.shelves.stop()
        self._later(session.shards.close())
        self._later(session.desk.close())
        user = session.user
        if user != self._own_watch and not self.sessions.of_user(user):
            watch = self._watches.pop(user)
            self._samples = watch.samples
            self._later(watch.stop())

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _to_sign_in(self, request: Request, live: bool) -> Response:
        if live:
            return Response(status_code=401)
        url = request.url
        wanted = url.path + (f"?{url.query}" if url.query else "")
        keep = wanted != "/" and request.method == "GET"
        return RedirectResponse(SIGN_IN + (f"?{urlencode({'next': wanted})}" if keep else ""), 303)

    def _outage(self, request: Request, error: LaterMQError) -> Response:
        status, title = _named(error)
        return self.error(None, status, title, words_of(error))


def cookie_of(request: Request) -> str:
    """Return the text of the session's cookie, "" without one."""
    return str(request.cookies.get(cookie_name(request.scope, COOKIE), ""))


def set_cookie(
    scope: Scope, response: Response, name: str, value: str, age_s: float | None = None
) -> None:
    """Have the browser keep a cookie for `age_s`, 0: drop it; None: until the browser ends."""
    response.set_cookie(
        cookie_name(scope, name), value, max_age=None if age_s is None else int(age_s), path="/",
        httponly=True, samesite="lax", secure=is_secure(scope),
    )  # fmt: skip


async def form_of(request: Request) -> dict[str, list[str]]:
    """Read a form: at most FORM_BYTES_MAX, FORM_FIELDS_MAX fields, FIELD_CHARACTERS_MAX in each.

    Raises:
        FormError: it is larger, not readable, or did not come whole.
    """
    data, size = bytearray(), 0
    try:
        # What is announced as far too large is not read at all.
        announced = header(request.scope, b"content-length")
        if len(announced) > len(str(UNREAD_BYTES_MAX)):
            raise FormError(TOO_LARGE)
        async for piece in request.stream():
            size += len(piece)
            if size > UNREAD_BYTES_MAX:
                break
            if size <= FORM_BYTES_MAX:
                data += piece
    except ClientDisconnect:
        raise FormError("the form did not come whole") from None
    if size > FORM_BYTES_MAX:
        raise FormError(TOO_LARGE)
    try:
        form = parse_qs(
            data.decode("ascii"), keep_blank_values=True, encoding="utf-8", errors="strict",
            max_num_fields=FORM_FIELDS_MAX,
        )  # fmt: skip
    except ValueError:
        raise FormError(
            f"the form is not readable, or has more than {FORM_FIELDS_MAX:,} fields"
        ) from None
    for name, values in form.items():
        if max(map(len, (name, *values))) > FIELD_CHARACTERS_MAX:
            raise FormError(f"a field has at most {FIELD_CHARACTERS_MAX:,} characters")
    return form


def whole_number(text: str, what: str, largest: int = NUMBER_MAX) -> int:
    """Read a number that somebody wrote. Raises FormError."""
    if not text.isdecimal() or len(text) > len(str(NUMBER_MAX)) or int(text) > largest:
        raise FormError(f"{what} is a whole number, at most {largest:,}")
    return int(text)


def safe_path(wanted: str, otherwise: str = "/") -> str:
    """Return a path of ours, never an address elsewhere."""
    try:
        parts = urlsplit(wanted)
    except ValueError:
        return otherwise
    clean = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and wanted.isprintable()
    if not clean or "\\" in wanted or parts.netloc or parts.scheme or parts.path == SIGN_IN:
        return otherwise
    return wanted


def _named(error: LaterMQError) -> tuple[int, str]:
    """Return the HTTP status and the title of an error's page."""
    if isinstance(error, ForbiddenError):
        return 403, "You may not see this"
    if isinstance(error, NotFoundError | TopicNotFoundError | GroupNotFoundError):
        return 404, "Not there"
    if isinstance(error, UnsupportedError):
        return 501, "This broker cannot tell"
    if isinstance(error, RequestError):
        return (400 if error.code < 50000 else 502), "The broker refused"
    return 503, "The broker does not answer"
