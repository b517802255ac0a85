"""What the console takes of a request before a page is made: frames, forms, cookies, memory."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from latermq.errors import UnauthorizedError
from latermq_console.pages.sign_in import KNOWN
from latermq_console.reading import desk as looks
from latermq_console.reading.desk import Desk
from latermq_console.reading.jobs import (
    EVERY,
    KEPT_PER_USER_MAX,
    RUNNING_PER_USER_MAX,
    Job,
    Jobs,
    Plan,
    TooManyJobsError,
)
from latermq_console.server import application
from latermq_console.serving.console import (
    COOKIE,
    FIELD_CHARACTERS_MAX,
    FORM_BYTES_MAX,
    FORM_FIELDS_MAX,
    UNREAD_BYTES_MAX,
    Console,
    FormError,
    form_of,
)
from latermq_console.serving.headers import QUERY_FIELDS_MAX
from latermq_console.settings import Settings, parse_proxy
from latermq_proto.latermq.v1 import broker_pb2, message_pb2

NOWHERE = "127.0.0.1:1"


@pytest.fixture
async def console() -> AsyncIterator[Console]:
    """One whose broker nobody answers for; behind a proxy at 10.0.0.7."""
    console = Console(Settings(endpoint=NOWHERE, proxies=("10.0.0.7",)))
    yield console
    await console.close()


def browser(console: Console, peer: str = "127.0.0.1", scheme: str = "http") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(application(console), client=(peer, 1))
    return httpx.AsyncClient(transport=transport, base_url=f"{scheme}://127.0.0.1:8088")


async def asks(*_: object, **__: object) -> bool:
    return True


async def test_a_probe_is_answered_whoever_it_is(console: Console) -> None:
    async with browser(console) as client:
        answer = await client.get("/healthz", headers={"host": "10.1.2.3"})
        assert (answer.status_code, answer.text) == (200, "ok\n")
        assert (await client.get("/", headers={"host": "10.1.2.3"})).status_code == 421


@pytest.mark.parametrize(
    ("method", "headers", "query"),
    [
        ("POST", {"content-length": "4", "transfer-encoding": "chunked"}, ""),
        ("GET", {"content-length": "4"}, ""),
        ("HEAD", {"transfer-encoding": "chunked"}, ""),
        ("GET", {}, "&" * QUERY_FIELDS_MAX),
    ],
)
async def test_a_frame_that_others_may_read_otherwise_is_refused(
    console: Console, method: str, headers: dict[str, str], query: str
) -> None:
    async with browser(console) as client:
        answer = await client.request(method, f"/sign-in?{query}", headers=headers)
        assert answer.status_code == 400
        assert ("connection" in answer.headers) == bool(headers), "its body is not read"


def form(data: bytes, *, announced: int = 0, pieces: int = 1, whole: bool = True) -> Request:
    size = -(-len(data) // pieces)
    parts = [data[at : at + size] for at in range(0, len(data), size)]

    async def receive() -> dict[str, Any]:
        if not parts:
            return {"type": "http.disconnect"}
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts) or not whole}

    headers = [(b"content-length", str(announced or len(data)).encode())]
    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (form(b"a=" + b"b" * FORM_BYTES_MAX, pieces=3), "at most 128 KiB"),
        (form(b"x", announced=50_000_000), "at most 128 KiB"),
        (form(b"a&" * (UNREAD_BYTES_MAX // 2 + 9), pieces=50), "at most 128 KiB"),
        (form(b"&".join([b"a=b"] * (FORM_FIELDS_MAX + 1))), "more than 1,200 fields"),
        (form(b"a=" + b"b" * (FIELD_CHARACTERS_MAX + 1)), "at most 4,096 characters"),
        (form(b"b" * (FIELD_CHARACTERS_MAX + 1)), "at most 4,096 characters"),
        (form(b"a=%ff"), "not readable"),
        (form(b"a=b", whole=False), "did not come whole"),
    ],
)
async def test_a_form_is_bounded(request_: Request, why: str) -> None:
    with pytest.raises(FormError, match=why):
        await form_of(request_)


async def test_a_form_within_its_bounds_is_read() -> None:
    fields = b"&".join([b"offset=%d" % number for number in range(1_000)])
    assert len((await form_of(form(fields, pieces=7)))["offset"]) == 1_000


@pytest.mark.parametrize(
    ("peer", "scheme", "forwarded", "secure"),
    [
        ("127.0.0.1", "https", "", True),
        ("10.0.0.7", "http", "https", True),
        ("10.0.0.7", "http", "http", False),
        ("10.0.0.8", "http", "https", False),
        ("127.0.0.1", "http", "", False),
    ],
)
async def test_cookies_belong_to_this_host_behind_https(
    console: Console,
    monkeypatch: pytest.MonkeyPatch,
    peer: str,
    scheme: str,
    forwarded: str,
    secure: bool,
) -> None:
    async def answers(*_: object, **__: object) -> broker_pb2.GetBrokerResponse:
        return broker_pb2.GetBrokerResponse()

    monkeypatch.setattr(console, "asks_for_names", asks)
    monkeypatch.setattr(Desk, "call", answers)
    headers = {"x-forwarded-proto": forwarded} if forwarded else {}
    async with browser(console, peer, scheme) as client:
        client.headers.update(headers)
        page = await client.get("/sign-in")
        assert ("strict-transport-security" in page.headers) == secure
        token = page.text.split('name="csrf" value="')[1].split('"')[0]
        # The jar of httpx sends no Secure cookie back where it believes to speak clear text.
        cookies = {each.split("=")[0]: each.split("=", 1)[1].split(";")[0]
                   for each in page.headers.get_list("set-cookie")}  # fmt: skip
        client.headers["cookie"] = "; ".join(f"{key}={text}" for key, text in cookies.items())
        form = {"csrf": token, "access_key": "shop", "secret": "12345678"}
        answer = await client.post("/sign-in", data=form)
    assert answer.status_code == 303, answer.text
    given = answer.headers.get_list("set-cookie")
    for name in (COOKIE, KNOWN):
        (cookie,) = [each for each in given if each.split("=")[0].removeprefix("__Host-") == name]
        assert cookie.startswith("__Host-") == secure
        assert ("Secure" in cookie) == secure
        assert "HttpOnly" in cookie
        assert "Path=/" in cookie
        assert "Domain" not in cookie


async def test_a_form_s_token_makes_no_known_browser(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever guesses would have a lane for each guess."""
    tried: list[str] = []

    async def refuses(*_: object, **__: object) -> None:
        raise UnauthorizedError(40100, "no")

    monkeypatch.setattr(console, "asks_for_names", asks)
    monkeypatch.setattr(Desk, "call", refuses)
    monkeypatch.setattr(console.attempts._pace, "begin", lambda address, *_: tried.append(address))
    async with browser(console) as client:
        nonce = "known name shop"
        token = console.seal.token(nonce)
        client.headers["cookie"] = f'latermq_console_form="{nonce}"; {KNOWN}=name.{token}'
        form = {"csrf": token, "access_key": "shop", "secret": "12345678"}
        assert (await client.post("/sign-in", data=form)).status_code == 403
    assert tried == ["127.0.0.1"]


@pytest.mark.parametrize("text", ["10.0.0.7", "10.0.0.0/24", "::1", "2001:db8::/32"])
def test_a_proxy_is_an_address_or_a_network(text: str) -> None:
    assert parse_proxy(f" {text} ") == text


@pytest.mark.parametrize("text", ["*", "proxy", "10.0.0.1/24", ""])
def test_what_is_no_proxy(text: str) -> None:
    with pytest.raises(ValueError, match="--proxy"):
        parse_proxy(text)


async def test_answers_are_remembered_within_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    way, asked = Desk(NOWHERE, False), list[str]()

    async def call(_: Any, request: message_pb2.DescribeMessageRequest, **__: Any) -> Any:
        asked.append(request.message_id)
        size = looks.LOOK_BYTES_MAX * (2 if request.message_id == "huge" else 1) - 100
        return message_pb2.DescribeMessageResponse(
            lives=[message_pb2.MessageLife(message=message_pb2.FoundMessage(body=bytes(size)))]
        )

    monkeypatch.setattr(way.admin, "call", call)

    async def look(name: str) -> None:
        request = message_pb2.DescribeMessageRequest(message_id=name)
        await way.look(way.admin.messages.DescribeMessage, request, age_s=100.0)

    names = [str(number) for number in range(6)]
    for name in [*names, "huge", "huge", "5", "0"]:
        await look(name)
    assert asked == [*names, "huge", "huge", "0"]
    assert sum(way._sizes.values()) <= looks.LOOKS_BYTES_MAX
    assert way._sizes.keys() <= way._looks.keys()
    monkeypatch.setattr(looks, "LOOKS_S_MAX", -1.0)
    way.sweep()
    assert not way._looks
    assert not way._sizes
    await way.close()


async def jobs_ended(job: Job) -> None:
    assert job.task is not None
    await asyncio.wait((job.task,))


async def test_jobs_of_one_user_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    end = asyncio.Event()

    async def stream(*_: Any) -> AsyncIterator[Any]:
        await end.wait()
        return
        yield

    monkeypatch.setattr(Desk, "stream", stream)
    jobs = Jobs()
    shop, other = (Desk(NOWHERE, False, name, "12345678") for name in ("shop", "b"))
    plan = Plan(group="billing", verb="redrive", filter=EVERY)

    def begin(desk: Desk) -> Job:
        return jobs.begin(desk, "billing", plan, "", {}, expected=1_000)

    others = begin(other)
    for _ in range(RUNNING_PER_USER_MAX):
        begin(shop)
    with pytest.raises(TooManyJobsError, match="4 jobs of yours run already"):
        begin(shop)
    begin(other)
    end.set()
    for job in jobs.of_user("shop"):
        await jobs_ended(job)
    for _ in range(KEPT_PER_USER_MAX + 5):
        await jobs_ended(begin(shop))
    assert len(jobs.of_user("shop")) == KEPT_PER_USER_MAX
    assert others in jobs.of_user("b"), "another's jobs are not forgotten for it"
    await jobs.stop_all()
    await shop.close()
    await other.close()
