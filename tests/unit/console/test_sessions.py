"""Who is in, for how long; where the console listens; whom it answers."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from latermq.errors import ClosedError
from latermq_console import clock
from latermq_console.reading import letters
from latermq_console.reading.desk import Desk
from latermq_console.reading.shards import _tokens
from latermq_console.serving import sessions as rules
from latermq_console.serving.console import COOKIE, Console, View, safe_path
from latermq_console.serving.headers import Guarded, host_of, is_same_origin
from latermq_console.serving.sessions import FormSeal, Session, Sessions
from latermq_console.settings import (
    ListenError,
    Settings,
    check_exposure,
    is_loopback,
    overheard,
    parse_listen,
)
from latermq_proto.latermq.v1 import broker_pb2


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [1_000.0]
    monkeypatch.setattr(clock, "monotonic_s", lambda: time[0])
    return time


def desk(user: str = "") -> Desk:
    return Desk("127.0.0.1:1", False, user, "12345678" if user else "")


async def test_a_session_ends_by_age_and_by_idleness(now: list[float]) -> None:
    ended: list[Session] = []
    kept = Sessions(ended.append)
    cookie, session = kept.open(desk())
    now[0] += rules.IDLE_S_MAX - 1
    assert kept.get(cookie) is session
    now[0] += rules.IDLE_S_MAX - 1
    assert kept.get(cookie, person=False) is session, "a page that refreshes itself sees it"
    now[0] += 2
    assert kept.get(cookie, person=False) is None, "and does not keep it alive"
    cookie, session = kept.open(desk())
    for _ in range(13):
        now[0] += rules.AGE_S_MAX / 13 + 1
        kept.get(cookie)
    assert kept.get(cookie) is None
    assert len(ended) == 2


async def test_sessions_are_bounded_for_each_user_and_for_all(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "SESSIONS_MAX", 4)
    monkeypatch.setattr(rules, "SESSIONS_PER_USER_MAX", 2)
    ended: list[Session] = []
    kept = Sessions(ended.append)
    shop = desk("shop")
    opened = [kept.open(shop) for _ in range(3)]
    assert ended == [opened[0][1]]
    others = [kept.open(desk()) for _ in range(3)]
    assert len(kept) == 4
    assert kept.get(opened[1][0]) is None, "the longest idle went"
    assert kept.get(others[0][0]) is others[0][1]
    kept.end(others[0][0])
    kept.end("never-made")
    assert len(kept) == 3


async def test_visitors_without_a_cookie_end_nobody_s_session(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "SESSIONS_MAX", 4)
    kept = Sessions(lambda _: None)
    cookie, session = kept.open(desk())
    assert kept.get(cookie) is session
    for _ in range(20):
        kept.open(desk())
    assert kept.get(cookie) is session


async def test_letters_kept_for_all_sessions_are_bounded(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "SHELVES_MAX", 3)
    kept = Sessions(lambda _: None)
    (_, first), (_, second) = kept.open(desk()), kept.open(desk())
    shelf = first.shelves.of(first.desk, "billing")
    shelf._rows[7] = letters.Row(7, "", "", "", "", 0)
    shelf._total = 1
    for name in ("a", "b"):
        second.shelves.of(second.desk, name)
    assert first.shelves.of(first.desk, "billing")._rows
    for name in ("a", "b", "c"):
        second.shelves.of(second.desk, name)
    assert (dict(shelf._rows), shelf._total) == ({}, -1)
    assert first.shelves.of(first.desk, "billing") is shelf


@pytest.fixture
async def console() -> AsyncIterator[Console]:
    """One whose broker nobody answers for."""
    console = Console(Settings(endpoint="127.0.0.1:1"))
    yield console
    await console.close()


async def signed_out_under_its_page(console: Console, look: Callable[[View], Any]) -> Response:
    """Ask for a page that looks when its session has ended: another tab signed out."""
    cookie, _ = console.open(console.desk("shop", "12345678"))

    async def page(view: View) -> Response:
        console.sessions.end(cookie)
        look(view)
        return view.console.error(view, 200, "Fine", "It was read in time.")

    headers = [(b"cookie", f"{COOKIE}={cookie}".encode())]
    request = Request(
        {"type": "http", "method": "GET", "path": "/x", "query_string": b"", "headers": headers,
         "scheme": "http", "server": ("127.0.0.1", 8088)}
    )  # fmt: skip
    return await console.page(page)(request)


async def test_a_page_that_outlives_its_session_is_led_to_signing_in(console: Console) -> None:
    answer = await signed_out_under_its_page(console, lambda view: view.watch.groups)
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in?next=%2Fx")
    assert (await signed_out_under_its_page(console, lambda _: None)).status_code == 200


async def test_what_a_session_read_is_no_other_sessions(console: Console) -> None:
    """It was kept by the session's address in memory, which the next session may get."""
    kept: list[Any] = []
    await signed_out_under_its_page(
        console, lambda view: kept.extend(map(weakref.ref, (view.shelves, view.shards)))
    )
    await console.close()
    gc.collect()
    assert [each() for each in kept] == [None, None]


def test_what_is_no_token_begins_at_the_beginning() -> None:
    assert _tokens('{"1": "abc"}') == {1: "abc"}
    for text in ("", "abc", "[]", '{"a": 1}', "[" * 50_000):
        assert _tokens(text) == {}


async def test_who_looks_while_the_session_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CancelledError would have been a traceback in what the console prints."""
    way, asked = desk("shop"), asyncio.Event()

    async def never(*_: Any, **__: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(way.admin, "call", never)
    looking = asyncio.ensure_future(
        way.look(way.admin.brokers.GetBroker, broker_pb2.GetBrokerRequest())
    )
    await asked.wait()
    await way.close()
    with pytest.raises(ClosedError):
        await looking


async def test_who_begins_to_look_as_the_session_ends_is_told() -> None:
    """A call that is cancelled before its first step sees nothing of it: the page hung for ever."""
    way = desk("shop")
    request = broker_pb2.GetBrokerRequest()
    looking = asyncio.ensure_future(way.look(way.admin.brokers.GetBroker, request))
    while not way._asking:
        await asyncio.sleep(0)
    (call,), ((_, answer),) = way._asking, way._looks.values()
    await way.close()
    await asyncio.wait({call})
    assert answer.done()
    with pytest.raises(ClosedError):
        await looking


async def test_a_cookie_is_not_what_is_kept(now: list[float]) -> None:
    kept = Sessions(lambda _: None)
    cookie, session = kept.open(desk())
    assert cookie not in repr(vars(kept))
    assert kept.get(cookie + "x") is None
    assert kept.get("\udcff") is None
    assert session.csrf != cookie


def test_a_sealed_form_fits_its_browser_only() -> None:
    seal = FormSeal()
    assert seal.fits("nonce", seal.token("nonce"))
    assert not seal.fits("other", seal.token("nonce"))
    assert not seal.fits("", seal.token(""))
    assert not FormSeal().fits("nonce", seal.token("nonce")), "another process"
    assert not seal.fits("nonce", "é")


def test_notices_are_shown_once() -> None:
    async def make() -> Session:
        return Session(desk(), 0.0)

    session = asyncio.run(make())
    for number in range(7):
        session.tell("note", str(number))
    assert [text for _, text in session.take_notices()] == ["2", "3", "4", "5", "6"]
    assert session.take_notices() == []


@pytest.mark.parametrize(
    ("text", "where"),
    [("127.0.0.1:8088", ("127.0.0.1", 8088)), ("[::1]:0", ("::1", 0)), ("a.b:1", ("a.b", 1))],
)
def test_where_to_listen(text: str, where: tuple[str, int]) -> None:
    assert parse_listen(text) == where


@pytest.mark.parametrize("text", ["8088", ":8088", "a:b", "a:70000", "a:", "a:²"])
def test_where_not_to_listen(text: str) -> None:
    with pytest.raises(ListenError):
        parse_listen(text)


def test_it_does_not_listen_to_strangers_unguarded() -> None:
    assert is_loopback("127.9.9.9")
    assert is_loopback("::1")
    assert not is_loopback("example.com")
    check_exposure("localhost", asks_for_names=None, secure=False)
    check_exposure("0.0.0.0", asks_for_names=True, secure=True)
    for asks, secure, why in [
        (False, True, "asks nobody for a name"),
        (None, True, "does not answer now"),
        (True, False, "clear text"),
    ]:
        with pytest.raises(ListenError, match=why):
            check_exposure("0.0.0.0", asks_for_names=asks, secure=secure)


@pytest.mark.parametrize(
    ("host", "secure", "prometheus", "words"),
    [
        ("127.0.0.1", False, "http://me:pw@localhost:9090", []),
        ("0.0.0.0", True, "https://me:pw@figures:9090", []),
        ("0.0.0.0", True, "http://figures:9090", []),
        ("0.0.0.0", False, "", ["secrets come to 0.0.0.0 in clear text"]),
        ("::1", True, "http://me:pw@figures:9090", ["password for Prometheus at figures"]),
    ],
)
def test_what_can_be_overheard(host: str, secure: bool, prometheus: str, words: list[str]) -> None:
    settings = Settings(endpoint="127.0.0.1:8081", secure=secure, prometheus=prometheus)
    warnings = overheard(settings, host)
    assert len(warnings) == len(words)
    assert all(word in warning for word, warning in zip(words, warnings, strict=True))
    assert "pw" not in "".join(warnings)


def scope(**headers: str) -> dict[str, Any]:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"headers": pairs}


def test_hosts_and_origins() -> None:
    assert host_of(scope(host="LocalHost:80")) == "localhost"
    assert host_of(scope(host="[::1]:80")) == "::1"
    assert host_of(scope(host="[x")) == ""
    assert is_same_origin(scope(host="a:1", origin="http://a:1"))
    assert is_same_origin(scope(host="a:1"))
    assert not is_same_origin(scope(host="a:1", origin="http://b:1"))
    assert not is_same_origin(scope(host="a:1", origin="null"))
    assert not is_same_origin(scope(host="a:1", origin="http://[x"))
    assert not is_same_origin(scope(host="a:1", sec_fetch_site="cross-site"))


GET = {"type": "http", "method": "GET", "path": "/", "query_string": b""}


async def test_a_host_is_known_however_it_is_written() -> None:
    answered: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        answered.append("the page")

    async def send(message: Any) -> None:
        answered.append(message.get("status", "body"))

    guarded = Guarded(app, frozenset({"Console.Example"}))
    for host in ("CONSOLE.example:8088", "other.example"):
        await guarded({**GET, **scope(host=host)}, None, send)  # type: ignore[arg-type]
    assert answered == ["the page", 421, "body"]


@pytest.mark.parametrize(
    "wanted",
    [
        "//evil",
        "/\\evil",
        "https://evil",
        "evil",
        "",
        "/a\\b",
        "/\t/evil",
        "/sign-in",
        "javascript:x",
    ],
)
def test_a_link_back_stays_here(wanted: str) -> None:
    assert safe_path(wanted, "/here") == "/here"
    assert safe_path("/dead/a%2Fb?q=1") == "/dead/a%2Fb?q=1"
