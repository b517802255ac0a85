"""Clients that a broker has to survive: each round opens a connection of its own and misbehaves.

A round returns what became of it, one word or two; it raises nothing but what a socket raises.
"""

import asyncio
import random
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple

from latermq_h2.hpack.encoder import encode, literal
from latermq_h2.http2 import frames
from support import wire_requests
from support.http2_peer import HELLO, OPEN_WINDOWS, SETTINGS_ACK
from support.machine import patient

MESSAGING: Final = "/apache.rocketmq.v2.MessagingService"
BROKERS: Final = "/latermq.v1.Brokers/GetBroker"
ANSWER_S_MAX: Final = patient(10.0)
FLOOD: Final = 5_000
RESET_LINGER: Final = struct.pack("ii", 1, 0)  # close with RST


class Target(NamedTuple):
    host: str
    port: int
    topic: str

    @classmethod
    def of(cls, endpoint: str, topic: str) -> "Target":
        host, _, port = endpoint.rpartition(":")
        return cls(host, int(port), topic)


Round = Callable[[Target, random.Random], Awaitable[str]]


def head(stream_id: int, path: str, *more: tuple[bytes, bytes], end: bool = False) -> bytes:
    fields = [
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()),
        (b":authority", b"soak"), (b"te", b"trailers"), (b"content-type", b"application/grpc"),
        (b"x-mq-client-id", b"hostile@1@0@soak"), (b"x-mq-language", b"PYTHON"), *more,
    ]  # fmt: skip
    flags = frames.END_HEADERS | (frames.END_STREAM if end else 0)
    return frames.frame(frames.HEADERS, flags, stream_id, encode(fields))


def body(stream_id: int, message: bytes) -> bytes:
    framed = struct.pack(">BI", 0, len(message)) + message
    return frames.frame(frames.DATA, frames.END_STREAM, stream_id, framed)


def long_poll(target: Target, stream_id: int, *more: tuple[bytes, bytes]) -> bytes:
    """A receive that waits: nobody sends to its topic."""
    request = wire_requests.receive(f"{target.topic}-quiet", "idlers", wait_ms=5_000)
    path = f"{MESSAGING}/ReceiveMessage"
    return head(stream_id, path, *more) + body(stream_id, request.SerializeToString())


async def opened(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(target.host, target.port)


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Everything until the broker closes."""
    found = bytearray()
    with suppress(ConnectionError):
        async with asyncio.timeout(ANSWER_S_MAX):
            while data := await reader.read(65_536):
                found += data
    return bytes(found)


async def goodbye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """The code of the broker's last GOAWAY; the connection is closed on both sides."""
    try:
        found = await rest(reader)
    except TimeoutError:
        return "not ended"
    finally:
        writer.close()
    return last_code(found, frames.GOAWAY, 4) or "closed"


def last_code(found: bytes, wanted: int, at: int) -> str:
    """Of the last whole frame of this kind; its code is `at` that byte. "" without one."""
    said, position = "", 0
    while position + frames.HEAD_BYTES <= len(found):
        high, low, kind, _, _ = frames.HEAD.unpack_from(found, position)
        start = position + frames.HEAD_BYTES
        position = start + (high << 8 | low)
        if kind == wanted and position <= len(found):
            said = frames.ErrorCode(int.from_bytes(found[start + at : start + at + 4])).name
    return said


def drop(writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Be gone: in order, or with a TCP reset."""
    if chance.random() < 0.5:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_LINGER)
    writer.transport.abort()


# --- the rounds ---------------------------------------------------------------------------------


async def handshake_cut(target: Target, chance: random.Random) -> str:
    """A TLS client that is gone, or falls silent, within its first flight."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    reader, writer = await opened(target)
    writer.write(hello[: chance.randrange(1, len(hello) + 1)])
    if chance.random() < 0.3:  # it waits to be thrown out
        return f"silent: {await goodbye(reader, writer)}"
    await asyncio.sleep(chance.random() * 0.05)
    drop(writer, chance)
    return "left"


async def handshake_garbage(target: Target, chance: random.Random) -> str:
    """The first byte of TLS, then noise."""
    reader, writer = await opened(target)
    writer.write(b"\x16" + chance.randbytes(chance.randrange(20, 600)))
    return await goodbye(reader, writer)


async def half_open(target: Target, chance: random.Random) -> str:
    """Connected, and perhaps polite, and then never heard of again."""
    reader, writer = await opened(target)
    said = chance.choice((b"", HELLO[:10], HELLO, HELLO + SETTINGS_ACK))
    writer.write(said)
    if said.endswith(SETTINGS_ACK):  # a call waits; our ping finds that nobody is there
        writer.write(OPEN_WINDOWS + long_poll(target, 1))
    if chance.random() < 0.5:
        return f"silent: {await goodbye(reader, writer)}"
    await asyncio.sleep(chance.random())
    drop(writer, chance)
    return "left"


async def polls_given_up(target: Target, chance: random.Random) -> str:
    """Long polls: some reset, some past their deadline, some on a connection that goes."""
    _, writer = await opened(target)
    writer.write(HELLO + SETTINGS_ACK)
    for number in range(20):
        deadline = [(b"grpc-timeout", b"%dm" % chance.randrange(5, 400))] if number % 3 else []
        writer.write(long_poll(target, 2 * number + 1, *deadline))
    await asyncio.sleep(chance.random() * 0.3)
    for number in range(0, 20, 4):
        writer.write(frames.rst_stream(2 * number + 1, frames.ErrorCode.CANCEL))
    await asyncio.sleep(chance.random() * 0.3)
    drop(writer, chance)
    return "left"


async def slow_reader(target: Target, chance: random.Random) -> str:
    """No window at first; then it reads in bites, or goes, or is thrown out."""
    reader, writer = await opened(target)
    shut = struct.pack(">HI", frames.INITIAL_WINDOW_SIZE, 0)
    writer.write(frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0, shut) + SETTINGS_ACK)
    for number in range(10):
        writer.write(head(2 * number + 1, BROKERS) + body(2 * number + 1, b""))
    fate = chance.random()
    if fate < 0.3:
        writer.write(b"")
        await asyncio.sleep(chance.random())
        drop(writer, chance)
        return "left"
    if fate < 0.5:  # until the broker gives it up
        await asyncio.sleep(4)
        drop(writer, chance)
        return "stalled"
    for _ in range(200):
        for number in range(10):
            writer.write(frames.window_update(2 * number + 1, chance.randrange(1, 64)))
        with suppress(TimeoutError):
            await asyncio.wait_for(reader.read(4_096), 0.01)
    drop(writer, chance)
    return "read in bites"


async def tls_call(target: Target, chance: random.Random) -> str:
    """A whole TLS connection and a call; it ends without a word."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection(target.host, target.port, ssl=context)
    writer.write(HELLO + SETTINGS_ACK + head(1, BROKERS) + body(1, b"") + long_poll(target, 3))
    found = b""
    async with asyncio.timeout(ANSWER_S_MAX):
        while b"grpc-status" not in found:
            if not (data := await reader.read(65_536)):
                break
            found += data
    drop(writer, chance)
    return "answered" if found else "no answer"


async def slow_hello(target: Target, chance: random.Random) -> str:
    """The preface a byte at a time, and never all of it."""
    reader, writer = await opened(target)
    for byte in frames.PREFACE[:-1]:
        writer.write(bytes((byte,)))
        await asyncio.sleep(0.01)
    return await goodbye(reader, writer)


async def slow_headers(target: Target, chance: random.Random) -> str:
    """A header block that is never ended."""
    reader, writer = await opened(target)
    block = encode([(b":method", b"POST"), (b":scheme", b"http")])
    writer.write(HELLO + SETTINGS_ACK + frames.frame(frames.HEADERS, 0, 1, block))
    return await goodbye(reader, writer)


async def zero_window(target: Target, chance: random.Random) -> str:
    """Answers are wanted and never taken: what their streams are reset with."""
    reader, writer = await opened(target)
    shut = struct.pack(">HI", frames.INITIAL_WINDOW_SIZE, 0)
    writer.write(frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0, shut) + SETTINGS_ACK)
    for number in range(100):
        writer.write(head(2 * number + 1, BROKERS) + body(2 * number + 1, b""))
    found, said = b"", ""
    with suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_S_MAX):
            while not said and (data := await reader.read(65_536)):
                found += data
                said = last_code(found, frames.RST_STREAM, 0)
    writer.close()
    return said or "not reset"


def flood(pieces: Callable[[], bytes]) -> Round:
    async def run(target: Target, chance: random.Random) -> str:
        reader, writer = await opened(target)
        with suppress(ConnectionError):
            writer.write(HELLO + SETTINGS_ACK + pieces())
            await writer.drain()
        return await goodbye(reader, writer)

    return run


def rapid_resets() -> bytes:
    path = f"{MESSAGING}/SendMessage"
    return b"".join(
        head(number, path) + frames.rst_stream(number, frames.ErrorCode.CANCEL)
        for number in range(1, 2 * FLOOD, 2)
    )


def continuations() -> bytes:
    block = encode([(b":method", b"POST")])
    more = frames.frame(frames.CONTINUATION, 0, 1, literal(b"x", b"y" * 1_000))
    return frames.frame(frames.HEADERS, 0, 1, block) + more * FLOOD


def pings() -> bytes:
    return frames.frame(frames.PING, 0, 0, b"12345678") * FLOOD


def settings() -> bytes:
    return frames.frame(frames.SETTINGS, 0, 0) * FLOOD


def oversized_headers() -> bytes:
    large = literal(b"x", b"y" * 16_000)
    block = encode([(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a/b")]) + large
    more = frames.frame(frames.CONTINUATION, 0, 1, large) * 4
    return frames.frame(frames.HEADERS, 0, 1, block[:16_384]) + more


FLOODS: Final = {
    "rapid resets": flood(rapid_resets),
    "continuation flood": flood(continuations),
    "ping flood": flood(pings),
    "settings flood": flood(settings),
    "headers too large": flood(oversized_headers),
}

# With the pause between two rounds of one kind, in seconds.
ROUNDS: Final[dict[str, tuple[Round, float]]] = {
    "TLS handshake cut short": (handshake_cut, 0.15),
    "TLS garbage": (handshake_garbage, 0.5),
    "TLS call, then gone": (tls_call, 0.3),
    "half-open connection": (half_open, 0.2),
    "long polls given up": (polls_given_up, 0.2),
    "slow reader": (slow_reader, 0.2),
    **{name: (run, 3.0) for name, run in FLOODS.items()},
}
