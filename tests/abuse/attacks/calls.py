"""Calls that are opened and left open, until nobody else may have one: number 4."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

from abuse.attacks.requests import REFLECTION, SEND, TELEMETRY
from abuse.peer import MESSAGING, Peer, Target, framed
from abuse.siege import GUEST, WORKER, Attack, Case
from latermq_h2.http2 import frames
from support import wire_requests

STREAMS: Final = 1_000  # `http2.streams_max`
CONNECTIONS: Final = 56  # as many as fill `server.calls_max`
HOLD_S: Final = 3.0
WATCH: Final = "/grpc.health.v1.Health/Watch"
RECEIVE: Final = f"{MESSAGING}/ReceiveMessage"
HERE: Final = "127.0.0.1"  # where the neighbour is, too

Opening = Callable[[Peer], bytes]


def bare(path: str) -> Opening:
    """HEADERS, and nothing after them."""

    def opening(peer: Peer) -> bytes:
        return peer.head(peer.new_id(), path)

    return opening


def asked(path: str, message: bytes = b"") -> Opening:
    """A whole request, whose answer never ends."""

    def opening(peer: Peer) -> bytes:
        stream_id = peer.new_id()
        body = frames.frame(frames.DATA, frames.END_STREAM, stream_id, framed(message))
        return peer.head(stream_id, path) + body

    return opening


def many(opening: Opening, *, addresses: int = 1, here: bool = False) -> Attack:
    """As many calls as the whole broker takes, and some more, all kept open."""

    async def attack(target: Target) -> str:
        async with AsyncExitStack() as stack:
            opened = []
            for number in range(CONNECTIONS):
                source = HERE if here else f"127.0.1.{1 + number % addresses}"
                peer = await stack.enter_async_context(await Peer.open(target.at(source)))
                opened.append(peer)
                peer.write(b"".join(opening(peer) for _ in range(STREAMS)))
                await peer.flush()
            await asyncio.sleep(HOLD_S)
            return opened[-1].said

    return attack


def poll() -> bytes:
    return wire_requests.receive("quiet", "quiet", wait_ms=20_000).SerializeToString()


CASES: Final = (
    Case(
        number=4,
        name="bare-headers",
        what="56,000 calls of which only HEADERS come, on 56 connections",
        attack=many(bare(SEND)),
    ),
    Case(
        number=4,
        name="bare-headers-here",
        what="the same from the neighbour's own address",
        attack=many(bare(SEND), here=True),
        always=False,
    ),
    Case(
        number=4,
        name="bare-headers-many-addresses",
        what="the same from 56 addresses",
        attack=many(bare(SEND), addresses=56),
        always=False,
    ),
    Case(
        number=4,
        name="health-watch",
        what="56,000 Health/Watch, from 56 addresses",
        attack=many(asked(WATCH), addresses=56),
    ),
    Case(
        number=4,
        name="health-watch-begun",
        what="56,000 Health/Watch of which only HEADERS come",
        attack=many(bare(WATCH), addresses=56),
        always=False,
    ),
    Case(
        number=4,
        name="reflection-streams",
        what="56,000 reflection streams that say nothing",
        attack=many(bare(REFLECTION), addresses=56),
        always=False,
    ),
    Case(
        number=4,
        name="telemetry-streams",
        what="56,000 telemetry streams that say nothing",
        attack=many(bare(TELEMETRY), addresses=56),
        always=False,
    ),
    Case(
        number=4,
        name="telemetry-streams-signed",
        what="the same, signed by a user without rights",
        attack=many(bare(TELEMETRY), addresses=56),
        by=GUEST,
        always=False,
    ),
    Case(
        number=4,
        name="polls-signed",
        what="56,000 receives that wait, by a user who may",
        attack=many(asked(RECEIVE, poll()), addresses=56),
        by=WORKER,
        always=False,
    ),
)
