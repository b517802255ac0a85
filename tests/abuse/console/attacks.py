"""What strangers and a signed-in user may do to a console, each for a few seconds."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from abuse.console.siege import GROUP, Case, Place

SOCKETS: Final = 256
SECONDS: Final = 4.0
OTHER_ADDRESS: Final = "127.0.0.2"
DRIP_S: Final = 0.2
GUESSES: Final = 240
FORM: Final = "content-type: application/x-www-form-urlencoded\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
OnSocket = Callable[[Place, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def head(place: Place, line: str, *more: str) -> bytes:
    """Write a request's head, all but the empty line when it ends with "…"."""
    fields = "".join(f"{each}\r\n" for each in more if each != "…")
    text = f"{line} HTTP/1.1\r\nhost: {place.host}:{place.port}\r\n{fields}"
    return (text if "…" in more else f"{text}\r\n").encode()


async def dial(place: Place, source: str) -> Streams:
    return await asyncio.open_connection(place.host, place.port, local_addr=(source, 0))


def sockets(
    on_each: OnSocket, source: str, count: int = SOCKETS
) -> Callable[[Place], Awaitable[str]]:
    """Open `count` sockets and treat them alike; one that is closed is opened again at once."""

    async def attack(place: Place) -> str:
        until_s = time.monotonic() + SECONDS
        opened = 0

        async def one() -> None:
            nonlocal opened
            while time.monotonic() < until_s:
                try:
                    reader, writer = await dial(place, source)
                except OSError:
                    await asyncio.sleep(0.01)
                    continue
                opened += 1
                try:
                    async with asyncio.timeout(max(0.0, until_s - time.monotonic())):
                        await on_each(place, reader, writer)
                except (OSError, TimeoutError, asyncio.IncompleteReadError):
                    pass
                finally:
                    writer.transport.abort()

        await asyncio.gather(*(one() for _ in range(count)))
        return f"{opened} sockets opened"

    return attack


async def idle(_: Place, reader: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    await reader.read(1)


async def leave(*_: object) -> None:
    """Say nothing, and go."""


def dripping(line: str, header: str, piece: bytes) -> OnSocket:
    """Begin a request, and send a piece of it now and then."""

    async def on_each(
        place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(head(place, line, header))
        while not reader.at_eof():
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(DRIP_S)

    return on_each


async def slow_reader(place: Place, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ask for pages, and read none of them."""
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    while True:
        writer.write(head(place, "GET /static/console.css"))
        await writer.drain()


async def large_form(
    place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    body = b"a&" * (1 << 19)
    writer.write(head(place, "POST /sign-in", f"content-length: {len(body)}"))
    writer.write(body)
    await writer.drain()
    await reader.read()


async def smuggled(
    place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    writer.write(
        head(place, "POST /sign-in", "content-length: 4", "transfer-encoding: chunked")
        + b"0\r\n\r\n" + head(place, "GET /")
    )  # fmt: skip
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400 "), answer[:80]
    assert answer.count(b"HTTP/1.1") == 1, "what follows is not taken for a request"


async def flood(place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ask for the form to sign in, as fast as it comes."""
    while True:
        await ask(reader, writer, head(place, "GET /sign-in"))


def looking(path: str) -> OnSocket:
    """Ask for a page with a session, as fast as it comes."""

    async def look(
        place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            cookie = f"cookie: latermq_console={place.cookie}"
            where = path.format(*place.message_ids, group=GROUP)
            status, body = await ask(reader, writer, head(place, f"GET {where}", cookie))
            assert status in (200, 429), (status, body[:200])
            assert len(body) < 1 << 20, f"a page of {len(body)} bytes"

    return look


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> tuple[int, bytes]:
    writer.write(request)
    fields = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", fields)
    body = await reader.readexactly(int(length[1]) if length else 0)
    return int(fields.split(None, 2)[1]), body


async def guesses(place: Place) -> str:
    """Guess a secret with many forms at once, from the person's own address."""
    counts: Counter[int] = Counter()

    async def guess() -> None:
        reader, writer = await dial(place, place.host)
        try:
            writer.write(head(place, "GET /sign-in"))
            fields = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", fields)
            page = await reader.readexactly(int(length[1]) if length else 0)
            nonce = re.search(rb"latermq_console_form=([^;]+)", fields)
            token = re.search(rb'name="csrf" value="([^"]+)"', page)
            assert nonce, fields
            assert token, page
            body = b"csrf=" + token[1] + b"&access_key=worker&secret=not-the-secret-of-it"
            cookie = f"cookie: latermq_console_form={nonce[1].decode()}"
            request = head(
                place, "POST /sign-in", cookie, FORM.strip(), f"content-length: {len(body)}"
            )
            status, _ = await ask(reader, writer, request + body)
            counts[status] += 1
        finally:
            writer.transport.abort()

    async def again_and_again() -> None:
        until_s = time.monotonic() + SECONDS
        while time.monotonic() < until_s:
            with suppress(OSError, asyncio.IncompleteReadError):
                await guess()

    await asyncio.gather(*(again_and_again() for _ in range(GUESSES)))
    tried, refused = counts.pop(403, 0), counts.pop(429, 0)
    assert not counts, counts
    assert tried <= 30, f"{tried} guesses were tried"
    return f"few tried, {refused} refused"


CASES: Final = (
    Case(name="idle_sockets", attack=sockets(idle, OTHER_ADDRESS)),
    Case(name="idle_sockets_same_address", attack=sockets(idle, "127.0.0.1", 2 * SOCKETS)),
    Case(name="slow_heads", attack=sockets(dripping("GET /", "…", b"x-a: b\r\n"), "127.0.0.1")),
    Case(
        name="slow_bodies",
        attack=sockets(dripping("POST /sign-in", "content-length: 100000", b"a"), "127.0.0.1"),
    ),
    Case(name="slow_readers", attack=sockets(slow_reader, "127.0.0.1")),
    Case(name="churn", attack=sockets(leave, OTHER_ADDRESS, 4)),
    Case(name="large_forms", attack=sockets(large_form, OTHER_ADDRESS, 16)),
    Case(name="smuggled_requests", attack=sockets(smuggled, OTHER_ADDRESS, 4)),
    Case(name="flood_of_forms", attack=sockets(flood, OTHER_ADDRESS, 64)),
    Case(name="guessed_secrets", attack=guesses, answers=r"few tried, \d+ refused"),
    Case(
        name="nested_body",
        attack=sockets(looking("/dead/{group}/letters/0"), OTHER_ADDRESS, 16),
    ),
    Case(
        name="unprintable_body",
        attack=sockets(looking("/dead/{group}/letters/1"), OTHER_ADDRESS, 16),
    ),
    Case(
        name="large_body",
        attack=sockets(looking("/dead/{group}/letters/2"), OTHER_ADDRESS, 16),
    ),
    Case(name="message_of_quotes", attack=sockets(looking("/messages/{3}"), OTHER_ADDRESS, 16)),
    Case(name="flood_of_pages", attack=sockets(looking("/groups"), OTHER_ADDRESS, 64)),
)
